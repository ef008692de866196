"""Ensembles of pipelines: chosen by predictions of held-out rows, and as a model of scikit-learn.

`choosing` picks members one by one (greedy selection), or weighs each by how often it is the best
in bootstraps (agnostic Bayes); both see the candidates' predictions of the `held_out` rows and
nothing else. Kinds are compared by a nested estimate. The `model` is a fitted estimator.
"""

from prefect_tune.tasks.ensembling.held_out import blend, shares
from prefect_tune.tasks.ensembling.model import ClassEnsemble, NumberEnsemble

__all__ = ["ClassEnsemble", "NumberEnsemble", "blend", "shares"]
