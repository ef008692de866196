"""Behaviour that a change of the code may not change, observed the same way on any revision.

`project/before_and_after` runs these modules in the environment of the old code and in that of the
new code: `asks` runs every method, `evaluations` runs trials, `documents` reads recorded stores.
Modules of the product move between revisions, so they use the public names of `prefect_tune` and
its command line, with the help of `product`. `differences` compares two observations.
"""
