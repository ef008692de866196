"""A final model as others read it, with as little of prefect-tune as can be.

`plain` puts scikit-learn's classes in place of ours, `portable` pickles what is left of our code
with it, and a `skops_file` runs nothing when it is read.
"""
