"""Evaluation of pipelines: the `metric`, and `constraints` on other measured quantities.

`predictions` checks the output of a model before a metric uses the output. `risk` computes losses
of predictions, also for many bootstraps of the held-out examples at once. A `comparison` tests
whether a model is better than another model, or than a constant prediction.
"""
