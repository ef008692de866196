"""Behavior that a change of the code must keep, observed in the same way on any revision.

`project/before_and_after` runs these modules in the environments of the old and the new code:
`asks` runs every method, `evaluations` runs trials, `documents` reads recorded stores. Modules of
the product move between revisions, so these modules use only the public names of `prefect_tune` and
the command line, through `product`. `differences` compares two observations.
"""
