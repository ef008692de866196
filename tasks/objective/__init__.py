"""Judging a pipeline: the `metric`, and `constraints` on other quantities measured on it.

`predictions` checks the output of any model before a metric sees it. A `declaration` describes a
metric or a quantity without computing anything. A `risk` is the loss in a bootstrap of the held-out
examples, computed for many bootstraps at once. A `comparison` tests whether one model is better
than another, or than a constant prediction.
"""
