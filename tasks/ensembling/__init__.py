"""Ensembles of pipelines: chosen by predictions of held-out rows, and as scikit-learn models.

`choosing` picks members one by one (greedy selection), or weighs each by how often it is the best
in bootstraps (agnostic Bayes). Both see only the candidates' predictions of the `held_out` rows. A
nested estimate compares both kinds with a single model. The `model` is a fitted estimator.
"""

from prefect_tune.tasks.ensembling.held_out import blend, shares
from prefect_tune.tasks.ensembling.model import ClassEnsemble, NumberEnsemble

__all__ = ["ClassEnsemble", "NumberEnsemble", "blend", "shares"]
