"""The models of the modern spaces, beside boosted trees.

What looks at distances is only ever fitted to rescaled columns, and trees never: a rescaled column
splits where it did before.
"""

from dataclasses import replace

from ConfigSpace import Categorical, ConfigurationSpace, EqualsCondition, Float, Integer
from ConfigSpace.hyperparameters import Hyperparameter

from prefect_tune.optimizers.space.algorithm import Algorithm, Flags
from prefect_tune.tasks.catalogue import classification

__all__ = ["MODELS", "MODELS_OF_NUMBERS", "TREES"]

_OWN = "prefect_tune.tasks.catalogue.scaled_targets"
_FOREST = Flags(weights="class_weight", stochastic=True)


def _forest(*more: Hyperparameter, exponent: float) -> ConfigurationSpace:  # type: ignore[type-arg]
    """Return the hyperparameters of forests; of p columns, p^max_features are tried at a split."""
    return ConfigurationSpace(
        space=[
            Integer("n_estimators", (50, 500), default=200, log=True),
            Float("max_features", (0.2, 1.0), default=exponent),
            Integer("min_samples_leaf", (1, 40), default=1, log=True),
            *more,
        ]
    )


def _kernel_space(*more: Hyperparameter) -> ConfigurationSpace:  # type: ignore[type-arg]
    """Return those of support vector machines; gamma counts in units of 1 / p."""
    kernel = Categorical("kernel", ["rbf", "linear"], default="rbf")
    gamma = Float("rbf.gamma", (1e-2, 10.0), default=1.0, log=True)
    space = ConfigurationSpace(
        space=[kernel, gamma, Float("C", (1e-2, 1e3), default=1.0, log=True), *more]
    )
    space.add(EqualsCondition(gamma, kernel, "rbf"))
    return space


RANDOM_FOREST = Algorithm(
    id="random_forest",
    estimator="sklearn.ensemble.RandomForestClassifier",
    hyperparameters=_forest(
        Categorical("criterion", ["gini", "entropy"], default="gini"), exponent=0.5
    ),
    fixed={"n_jobs": 1},
    transforms={"max_features": "power_of_p"},
    flags=_FOREST,
    ignores=("rescale",),
)
EXTRA_TREES = replace(
    RANDOM_FOREST, id="extra_trees", estimator="sklearn.ensemble.ExtraTreesClassifier"
)
MLP = Algorithm(
    id="mlp",
    estimator=f"{_OWN}.mlp_classifier",
    hyperparameters=ConfigurationSpace(
        space=[
            Integer("hidden_layers", (1, 3), default=2),
            Integer("nodes_per_layer", (16, 256), default=64, log=True),
            Float("alpha", (1e-7, 1e-1), default=1e-4, log=True),
            Float("learning_rate_init", (1e-4, 3e-2), default=3e-3, log=True),
            Categorical("activation", ["relu", "tanh"], default="relu"),
        ]
    ),
    fixed={"max_iter": 100, "early_stopping": True},
    flags=Flags(stochastic=True),
    ignores=("balance",),
)
K_NEAREST = Algorithm(
    id="k_nearest",
    estimator="sklearn.neighbors.KNeighborsClassifier",
    hyperparameters=ConfigurationSpace(
        space=[
            Integer("n_neighbors", (1, 100), default=7, log=True),
            Categorical("weights", ["uniform", "distance"], default="distance"),
            Categorical("p", [1, 2], default=2),
        ]
    ),
    transforms={"n_neighbors": "clip_n"},
    ignores=("balance",),
)
KERNEL_SVM = Algorithm(
    id="kernel_svm",
    estimator="sklearn.svm.SVC",
    hyperparameters=_kernel_space(),
    fixed={"cache_size": 200},
    transforms={"rbf.gamma": "per_column"},
    flags=Flags(weights="class_weight"),
)
MODELS = (
    classification.LOGISTIC_REGRESSION,
    RANDOM_FOREST,
    EXTRA_TREES,
    MLP,
    K_NEAREST,
    KERNEL_SVM,
)
TREES = frozenset({"random_forest", "extra_trees"})

RANDOM_FOREST_OF_NUMBERS = replace(
    RANDOM_FOREST,
    estimator="sklearn.ensemble.RandomForestRegressor",
    hyperparameters=_forest(exponent=0.8),
    flags=Flags(stochastic=True),
)
MODELS_OF_NUMBERS = (
    Algorithm(
        id="ridge",
        estimator="sklearn.linear_model.Ridge",
        hyperparameters=ConfigurationSpace(
            space=[Float("alpha", (1e-3, 1e4), default=1.0, log=True)]
        ),
        flags=Flags(stochastic=True),
    ),
    RANDOM_FOREST_OF_NUMBERS,
    replace(
        RANDOM_FOREST_OF_NUMBERS,
        id="extra_trees",
        estimator="sklearn.ensemble.ExtraTreesRegressor",
    ),
    replace(MLP, estimator=f"{_OWN}.mlp_regressor", ignores=()),
    replace(K_NEAREST, estimator="sklearn.neighbors.KNeighborsRegressor", ignores=()),
    Algorithm(
        id="kernel_svm",
        estimator=f"{_OWN}.kernel_svm_regressor",
        hyperparameters=_kernel_space(Float("epsilon", (1e-3, 1.0), default=0.1, log=True)),
        fixed={"cache_size": 200},
        transforms={"rbf.gamma": "per_column"},
    ),
)
