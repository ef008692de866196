"""Ensembles of pipelines: chosen by predictions of held-out rows, and as a model of scikit-learn.

A member's `contributions` are what it adds to an ensemble. `greedy` selection picks members one by
one, the `agnostic` Bayes ensemble weighs each by how often it is the best in bootstraps; both see
the candidates' predictions of the `held_out` rows and nothing else. `choosing` builds a kind, or
takes the best of all by a `nested` estimate, within a `fit_limit`. The `model` is a fitted
estimator.
"""

from prefect_tune.tasks.ensembling.held_out import blend, shares
from prefect_tune.tasks.ensembling.model import ClassEnsemble, NumberEnsemble

__all__ = ["ClassEnsemble", "NumberEnsemble", "blend", "shares"]
