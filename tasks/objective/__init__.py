"""Judging a pipeline: the `metric`, and constraints on other quantities measured of it.

`predictions` checks what any model returns before a metric sees it. A metric is one of our own or
one of scikit-learn's `scorers`. A `quantity` is what can be bounded, a `constraint` the bound, and
`quantities` measures them. A `risk` is the loss in a bootstrap of the held-out examples, and
`weighted` computes those of all bootstraps at once.
"""
