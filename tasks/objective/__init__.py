"""Judging a pipeline: the `metric`, and constraints on other quantities measured of it.

`predictions` checks what any model returns before a metric sees it. `metrics` knows the metrics by
name, each one `declaration`: our own two, and scikit-learn's scorers. A `quantity` is what can be
bounded, a `constraint` the bound, and `quantities` measures them. A `risk` is the loss in a
bootstrap of the held-out examples, and `weighted` computes the losses of all bootstraps at once.
`two_classes` has the AUROC with its interval, and the calibration of probabilities.
"""
