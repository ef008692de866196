"""Judging a pipeline: the `metric`, and constraints on other quantities measured of it.

`predictions` checks what any model returns before a metric sees it. A metric is one of our own or
one of scikit-learn's `scorers`. A `quantity` is what can be bounded, a `constraint` the bound;
`measurement` measures it, `latency` and the comparison of `groups` in files of their own. A `risk`
is the loss in a bootstrap of the held-out examples, and `weighted` computes those of all bootstraps
at once; those of labels alone from how they are in `confusion`. `by_part` says how good predictions
are of each class.
"""
