"""Spaces of models that train in epochs, for studies with real checkpoints.

They are read as users' own files: `--space live_spaces.py:networks`.
"""

from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer

from prefect_tune import Algorithm, Flags, Space, Step
from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE, MINMAX, STANDARDIZE

__all__ = ["mixed", "networks"]

_NETWORK = Algorithm(
    id="network",
    estimator="prefect_tune.tasks.catalogue.estimators.mlp",
    fixed={"hidden_layers": 1},
    hyperparameters=ConfigurationSpace(
        space=[
            Float("learning_rate_init", (1e-5, 0.1), log=True, default=1e-3),
            Float("alpha", (1e-7, 0.1), log=True, default=1e-4),
            Integer("batch_size", (16, 512), log=True, default=128),
            Integer("nodes_per_layer", (8, 256), log=True, default=64),
        ]
    ),
    flags=Flags(stochastic=True),
)
_BOOSTING = Algorithm(
    id="boosting",
    estimator="sklearn.ensemble.HistGradientBoostingClassifier",
    fixed={"max_iter": 50},
    hyperparameters=ConfigurationSpace(
        space=[
            Float("learning_rate", (0.0032, 0.63), log=True, default=0.1),
            Integer("max_leaf_nodes", (4, 32), log=True, default=31),
            Float("l2_regularization", (1e-6, 10.0), log=True, default=1e-3),
            Integer("min_samples_leaf", (2, 45), log=True, default=20),
        ]
    ),
    flags=Flags(stochastic=True),
)
_LINEAR = Algorithm(
    id="linear",
    estimator="sklearn.linear_model.SGDClassifier",
    hyperparameters=ConfigurationSpace(
        space=[
            Categorical("loss", ["log_loss", "hinge"], default="hinge"),
            Float("alpha", (1e-7, 0.1), log=True, default=1e-4),
            Categorical("average", [False, True], default=False),
        ]
    ),
    flags=Flags(stochastic=True),
)


def _before(*rescale: Algorithm) -> tuple[Step, ...]:
    return IMPUTE, ENCODE, Step("rescale", rescale, fixed=len(rescale) == 1)


networks = Space("networks", (*_before(MINMAX), Step("fit model", (_NETWORK,))))
mixed = Space(
    "mixed",
    (*_before(MINMAX, STANDARDIZE), Step("fit model", (_BOOSTING, _NETWORK, _LINEAR))),
)
