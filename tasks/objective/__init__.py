"""Judging a pipeline: the `metric`, and constraints on other quantities measured on it.

`predictions` checks the output of any model before a metric sees it. A `declaration` describes a
metric or a quantity without computing anything. `quantities` measures quantities that a
`constraint` bounds. A `risk` is the loss in a bootstrap of the held-out examples, computed for many
bootstraps at once. `two_classes` has the AUROC with its interval, and the calibration. A
`paired_comparison` tests whether one model is better than another, and `usefulness` whether a model
is better than a constant prediction.
"""
