"""Evaluation of pipelines: the `metric`, and `constraints` on other measured quantities.

`predictions` checks the output of a model before a metric uses the output. `risk` computes losses
of predictions, including for many bootstraps of the held-out examples at once. `comparison` tests
whether a model is better than another model or a constant prediction.
"""
