"""Judging a pipeline: the `metric`, and `constraints` on other quantities measured on it.

`predictions` checks the output of any model before a metric sees it. `risk` has the losses of
predictions, also in many bootstraps of the held-out examples at once. A `comparison` tests whether
one model is better than another, or than a constant prediction.
"""
