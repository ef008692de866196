"""The models of ADMM's two spaces (Tables A2 and A3), where they are not those of FLASH.

Options that scikit-learn no longer has are replaced, so that the table's counts come out: gradient
boosting's `criterion` by `init`, logistic regression's `penalty` by `l1_ratio` 0 or 1.
"""

from ConfigSpace import (
    Categorical,
    ConfigurationSpace,
    Float,
    Integer,
)

from prefect_tune.optimizers.space.algorithm import Algorithm, Flags, Step
from prefect_tune.tasks.catalogue import classification
from prefect_tune.tasks.catalogue.shared_spaces import C, forest_space

__all__ = ["CLASSIFY", "CLASSIFY_LARGE"]

_ESTIMATORS = "prefect_tune.tasks.catalogue.estimators"


def _forest(*, bootstrap: bool) -> ConfigurationSpace:
    return forest_space(
        Float("max_features", (0.0, 1.0), default=0.5),
        Integer("n_estimators", (50, 500), default=100),
        bootstrap=bootstrap,
    )


_GRADIENT_BOOSTING = Algorithm(
    id="gradient_boosting",
    estimator="sklearn.ensemble.GradientBoostingClassifier",
    hyperparameters=ConfigurationSpace(
        space=[
            Float("learning_rate", (0.01, 1.0), default=0.1, log=True),
            Float("subsample", (0.01, 1.0), default=1.0),
            Float("max_features", (0.1, 1.0), default=1.0),
            Integer("n_estimators", (50, 500), default=100),
            Integer("max_depth", (1, 10), default=3),
            Integer("min_samples_split", (2, 20), default=2),
            Integer("min_samples_leaf", (1, 20), default=1),
            Categorical("loss", ["log_loss", "exponential"], default="log_loss"),
            Categorical("init", ["none", "zero"], default="none"),
        ]
    ),
    transforms={"init": "word", "loss": "two_class_loss"},
    flags=Flags(weights="sample_weight", stochastic=True),
)
_FOREST = Flags(weights="class_weight", stochastic=True)
_RANDOM_FOREST = Algorithm(
    id="random_forest",
    estimator="sklearn.ensemble.RandomForestClassifier",
    hyperparameters=_forest(bootstrap=True),
    fixed={"n_jobs": 1},
    transforms={"max_features": "power_of_p"},
    flags=_FOREST,
)
_EXTRA_TREES = Algorithm(
    id="extra_trees",
    estimator="sklearn.ensemble.ExtraTreesClassifier",
    hyperparameters=_forest(bootstrap=False),
    fixed={"n_jobs": 1},
    transforms={"max_features": "power_of_p"},
    flags=_FOREST,
)
CLASSIFY = Step(
    "fit model",
    (
        classification.GAUSSIAN_NB,
        classification.QUADRATIC_DISCRIMINANT,
        _GRADIENT_BOOSTING,
        classification.K_NEAREST,
        _RANDOM_FOREST,
        _EXTRA_TREES,
    ),
)
CLASSIFY_LARGE = Step(
    "fit model",
    (
        *CLASSIFY.algorithms,
        Algorithm(
            id="ada_boost",
            estimator=f"{_ESTIMATORS}.ada_boost_classifier",
            hyperparameters=ConfigurationSpace(
                space=[
                    Float("learning_rate", (0.01, 2.0), default=0.1, log=True),
                    Integer("n_estimators", (50, 500), default=50),
                    Integer("max_depth", (1, 10), default=1),
                ]
            ),
            flags=Flags(weights="sample_weight", stochastic=True),
        ),
        Algorithm(
            id="decision_tree",
            estimator="sklearn.tree.DecisionTreeClassifier",
            hyperparameters=ConfigurationSpace(
                space=[
                    Float("max_depth", (0.0, 2.0), default=0.5),
                    Float("max_features", (0.1, 1.0), default=1.0),
                    Float("min_weight_fraction_leaf", (0.0, 0.1), default=0.0),
                    Categorical("criterion", ["gini", "entropy"], default="gini"),
                    Integer("min_samples_split", (2, 20), default=2),
                    Integer("min_samples_leaf", (1, 20), default=1),
                ]
            ),
            transforms={"max_depth": "depth_factor"},
            flags=Flags(weights="class_weight", stochastic=True),
        ),
        Algorithm(
            id="gaussian_process",
            estimator=f"{_ESTIMATORS}.gaussian_process",
            memory="kernel_matrix",
            hyperparameters=ConfigurationSpace(
                space=[
                    Categorical("kernel", ["RBF", "Matern52"], default="RBF"),
                    Integer("max_iter_predict", (20, 200), default=100, log=True),
                ]
            ),
            flags=Flags(accepts_sparse=False, stochastic=True),
        ),
        Algorithm(
            id="logistic_regression",
            estimator=f"{_ESTIMATORS}.logistic_regression",
            hyperparameters=ConfigurationSpace(
                space=[
                    Float("C", C, default=1.0, log=True),
                    Float("tol", (1e-5, 0.1), default=1e-4, log=True),
                    Categorical("penalty", ["l2", "l1"], default="l2"),
                    Categorical("fit_intercept", [True, False], default=True),
                    Categorical("class_weight", ["none", "balanced"], default="none"),
                ]
            ),
            fixed={"max_iter": 500},
            transforms={"class_weight": "word"},
            flags=Flags(weights="class_weight", stochastic=True),
        ),
        Algorithm(
            id="mlp",
            estimator=f"{_ESTIMATORS}.mlp",
            hyperparameters=ConfigurationSpace(
                space=[
                    Float("alpha", (1e-7, 0.1), default=1e-4, log=True),
                    Float("learning_rate_init", (1e-4, 0.5), default=1e-3, log=True),
                    Integer("hidden_layers", (1, 3), default=1),
                    Integer("nodes_per_layer", (16, 264), default=32, log=True),
                    Categorical("activation", ["tanh", "relu"], default="relu"),
                    Categorical("early_stopping", [True, False], default=True),
                    Integer("batch_size", (32, 256), default=200, log=True),
                ]
            ),
            fixed={"max_iter": 512},
            transforms={"batch_size": "clip_n"},
            flags=Flags(stochastic=True),
        ),
    ),
)
