"""The seven single-model spaces of Levesque, Gagne and Sabourin (2016), each without steps before.

Features are standardised first where the model looks at distances. Ratios of columns are rounded to
whole columns, at least one.
"""

from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer
from ConfigSpace.hyperparameters import UniformFloatHyperparameter

from prefect_tune.optimizers.space.algorithm import Algorithm, Flags
from prefect_tune.tasks.catalogue.shared_spaces import KERNEL_GROWTH

_ESTIMATORS = "prefect_tune.tasks.catalogue.estimators"


def _kernel_machine(*more: UniformFloatHyperparameter) -> ConfigurationSpace:
    return ConfigurationSpace(
        space=[
            Float("C", (1e-2, 1e3), default=1.0, log=True),
            Float("gamma", (1e-5, 1e3), default=0.1, log=True),
            *more,
        ]
    )


def _forest() -> ConfigurationSpace:
    return ConfigurationSpace(
        space=[
            Categorical("family", ["random_forest", "extra_trees"], default="random_forest"),
            Categorical("bootstrap", [True, False], default=True),
            Float("max_features", (1e-4, 1.0), default=0.5),
        ]
    )


def _boosting(*more: UniformFloatHyperparameter) -> ConfigurationSpace:
    return ConfigurationSpace(
        space=[
            Integer("max_depth", (1, 15), default=3),
            Float("learning_rate", (1e-2, 1.0), default=0.1, log=True),
            *more,
        ]
    )


SVM = Algorithm(
    id="svm",
    estimator="sklearn.svm.SVC",
    hyperparameters=_kernel_machine(),
    fixed={"kernel": "rbf"},
    growth=KERNEL_GROWTH,
    flags=Flags(weights="class_weight"),
)
SVR = Algorithm(
    id="svr",
    estimator="sklearn.svm.SVR",
    hyperparameters=_kernel_machine(Float("epsilon", (1e-2, 1.0), default=0.1, log=True)),
    fixed={"kernel": "rbf"},
    growth=KERNEL_GROWTH,
)
RANDOM_FOREST = Algorithm(
    id="random_forest",
    estimator=f"{_ESTIMATORS}.forest_classifier",
    hyperparameters=_forest(),
    fixed={"n_estimators": 100, "n_jobs": 1},
    threads="n_jobs",
    transforms={"max_features": "share_of_p"},
    flags=Flags(weights="class_weight", stochastic=True),
)
RANDOM_FOREST_REGRESSOR = Algorithm(
    id="random_forest_regressor",
    estimator=f"{_ESTIMATORS}.forest_regressor",
    hyperparameters=_forest(),
    fixed={"n_estimators": 100, "n_jobs": 1},
    threads="n_jobs",
    transforms={"max_features": "share_of_p"},
    flags=Flags(stochastic=True),
)
GRADIENT_BOOSTING = Algorithm(
    id="gradient_boosting",
    estimator="sklearn.ensemble.GradientBoostingClassifier",
    hyperparameters=_boosting(Float("max_features", (1e-3, 1.0), default=1.0)),
    fixed={"n_estimators": 100},
    transforms={"max_features": "share_of_p"},
    flags=Flags(weights="sample_weight", stochastic=True),
)
GRADIENT_BOOSTING_REGRESSOR = Algorithm(
    id="gradient_boosting_regressor",
    estimator="sklearn.ensemble.GradientBoostingRegressor",
    hyperparameters=_boosting(Float("alpha", (1e-4, 0.9999), default=0.9)),
    fixed={"n_estimators": 100, "loss": "huber"},
    flags=Flags(stochastic=True),
)
"""Huber's loss stands for the mixture of squared and absolute loss, as in the authors' code."""
MLP = Algorithm(
    id="mlp",
    estimator=f"{_ESTIMATORS}.layerwise_mlp",
    hyperparameters=ConfigurationSpace(
        space=[
            Integer("width_1", (1, 100), default=10),
            Integer("width_2", (1, 100), default=10),
            *(Float(f"alpha_{i}", (1e-5, 100.0), default=1e-3, log=True) for i in (1, 2, 3)),
        ]
    ),
    flags=Flags(stochastic=True),
)
