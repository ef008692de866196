"""Synthetic patient cohorts with a planted truth.

`spec` reads `cohort:NAME?option=value`, `cohort` generates, `orders` draws what is planted, and
`meds` writes a cohort as a MEDS data set.
"""
