"""Judging a pipeline: the `metric`, and constraints on other quantities measured of it.

`predictions` checks what any model returns before a metric sees it. A `declaration` is all that is
known of a metric, our own two and scikit-learn's scorers, or of a quantity without computing
anything; `quantities` measures those that a `constraint` bounds. A `risk` is the loss in a
bootstrap of the held-out examples, of many bootstraps at once. `two_classes` has the AUROC with its
interval, and the calibration of probabilities.
"""
