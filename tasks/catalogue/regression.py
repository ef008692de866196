"""Regressors and preprocessing for numbers, modelled on FLASH's Table 5.

Classifiers and scores without a counterpart are replaced by one of the same kind, such as ridge for
linear discriminants and the lasso for selection by a linear SVM.
"""

from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer

from prefect_tune.optimizers.space.algorithm import Algorithm, Flags, Step
from prefect_tune.tasks.catalogue import classification, preprocessing
from prefect_tune.tasks.catalogue.shared_spaces import (
    GAMMA,
    KERNEL_GROWTH,
    C,
    forest_space,
    kernel_svm_space,
    ranges,
    sgd_space,
)

_ESTIMATORS = "prefect_tune.tasks.catalogue.estimators"
_SEEDED = Flags(stochastic=True)


def _forest_of_numbers(*, bootstrap: bool) -> ConfigurationSpace:
    share = Float("max_features", (0.1, 1.0), default=1.0)
    return forest_space(share, bootstrap=bootstrap, of_classes=False)


PREPROCESS_NUMBERS = Step(
    "preprocess",
    (
        Algorithm(
            id="extra_trees",
            estimator=f"{_ESTIMATORS}.select_by_extra_trees_regressor",
            hyperparameters=_forest_of_numbers(bootstrap=False),
            fixed={"n_estimators": 100, "n_jobs": 1},
            flags=_SEEDED,
        ),
        preprocessing.FAST_ICA,
        preprocessing.AGGLOMERATE,
        preprocessing.KERNEL_PCA,
        preprocessing.KITCHEN_SINKS,
        Algorithm(
            id="lasso",
            estimator=f"{_ESTIMATORS}.select_by_lasso",
            hyperparameters=ranges(
                Float("alpha", (1e-5, 1.0), default=1e-2, log=True),
                Float("tol", (1e-5, 0.1), default=1e-4, log=True),
            ),
        ),
        preprocessing.NONE,
        preprocessing.NYSTROEM,
        preprocessing.PCA,
        preprocessing.POLYNOMIAL,
        preprocessing.TREES_EMBEDDING,
        preprocessing.percentile_of("f_regression"),
        Algorithm(
            id="select_univariate",
            estimator=f"{_ESTIMATORS}.select_univariate",
            hyperparameters=ranges(
                Float("param", (0.01, 0.5), default=0.1), Integer("mode", (0, 2), default=0)
            ),
            fixed={"score": "f_regression"},
        ),
    ),
)
REGRESS = Step(
    "fit model",
    (
        Algorithm(
            id="ada_boost",
            estimator=f"{_ESTIMATORS}.ada_boost_regressor",
            hyperparameters=ranges(
                Integer("n_estimators", (50, 500), default=50),
                Float("learning_rate", (1e-2, 2.0), default=0.1, log=True),
                Categorical("loss", ["linear", "square", "exponential"], default="linear"),
                Integer("max_depth", (1, 10), default=1),
            ),
            flags=_SEEDED,
            kind="boosted_trees",
        ),
        Algorithm(
            id="decision_tree",
            estimator="sklearn.tree.DecisionTreeRegressor",
            hyperparameters=ranges(
                Categorical("splitter", ["best", "random"], default="best"),
                Float("max_depth", (0.0, 2.0), default=0.5),
                Integer("min_samples_split", (2, 20), default=2),
                Integer("min_samples_leaf", (1, 20), default=1),
            ),
            transforms={"max_depth": "depth_factor"},
            flags=_SEEDED,
            kind="trees",
        ),
        Algorithm(
            id="extra_trees",
            estimator="sklearn.ensemble.ExtraTreesRegressor",
            hyperparameters=_forest_of_numbers(bootstrap=False),
            fixed={"n_estimators": 100, "n_jobs": 1},
            threads="n_jobs",
            flags=_SEEDED,
            kind="trees",
        ),
        Algorithm(
            id="bayesian_ridge",
            estimator="sklearn.linear_model.BayesianRidge",
            flags=Flags(accepts_sparse=False),
            kind="linear",
        ),
        Algorithm(
            id="gradient_boosting",
            estimator="sklearn.ensemble.GradientBoostingRegressor",
            hyperparameters=classification.GRADIENT_BOOSTING.hyperparameters,
            fixed={"n_estimators": 100},
            transforms={"max_features": "logp_max_features"},
            flags=_SEEDED,
            kind="boosted_trees",
        ),
        Algorithm(
            id="k_nearest",
            estimator="sklearn.neighbors.KNeighborsRegressor",
            hyperparameters=classification.K_NEAREST.hyperparameters,
            transforms={"n_neighbors": "clip_n"},
        ),
        Algorithm(
            id="ridge",
            estimator="sklearn.linear_model.Ridge",
            hyperparameters=ranges(Float("alpha", (1e-5, 1e3), default=1.0, log=True)),
            flags=_SEEDED,
            kind="linear",
        ),
        Algorithm(
            id="linear_svm",
            estimator="sklearn.svm.LinearSVR",
            hyperparameters=ranges(
                Float("epsilon", (1e-3, 1.0), default=0.1, log=True),
                Float("tol", (1e-5, 0.1), default=1e-4, log=True),
                Float("C", C, default=1.0, log=True),
            ),
            fixed={"loss": "squared_epsilon_insensitive", "dual": False},
            flags=_SEEDED,
            kind="linear",
        ),
        Algorithm(
            id="kernel_svm",
            estimator="sklearn.svm.SVR",
            hyperparameters=kernel_svm_space(
                Float("epsilon", (1e-3, 1.0), default=0.1, log=True), tol=1e-3
            ),
            fixed={"cache_size": 200},
            growth=KERNEL_GROWTH,
        ),
        Algorithm(
            id="elastic_net",
            estimator="sklearn.linear_model.ElasticNet",
            hyperparameters=ranges(
                Float("alpha", (1e-5, 10.0), default=0.1, log=True),
                Float("l1_ratio", (0.01, 1.0), default=0.5),
            ),
            kind="linear",
        ),
        Algorithm(
            id="passive_aggressive",
            estimator=f"{_ESTIMATORS}.passive_aggressive_regressor",
            hyperparameters=ranges(
                Categorical(
                    "loss",
                    ["epsilon_insensitive", "squared_epsilon_insensitive"],
                    default="epsilon_insensitive",
                ),
                Integer("max_iter", (5, 1000), default=20, log=True),
                Float("C", (1e-5, 10.0), default=1.0, log=True),
                Float("epsilon", (1e-3, 1.0), default=0.1, log=True),
            ),
            flags=_SEEDED,
            kind="linear",
        ),
        Algorithm(
            id="kernel_ridge",
            estimator="sklearn.kernel_ridge.KernelRidge",
            memory="kernel_matrix",
            growth=KERNEL_GROWTH,
            hyperparameters=ranges(
                Float("alpha", (1e-5, 10.0), default=1.0, log=True),
                Float("gamma", GAMMA, default=0.1, log=True),
            ),
            fixed={"kernel": "rbf"},
        ),
        Algorithm(
            id="random_forest",
            estimator="sklearn.ensemble.RandomForestRegressor",
            hyperparameters=_forest_of_numbers(bootstrap=True),
            fixed={"n_estimators": 100, "n_jobs": 1},
            threads="n_jobs",
            flags=_SEEDED,
            kind="trees",
        ),
        Algorithm(
            id="sgd",
            estimator="sklearn.linear_model.SGDRegressor",
            hyperparameters=sgd_space(
                ["squared_error", "huber", "epsilon_insensitive", "squared_epsilon_insensitive"],
                Float("epsilon", (1e-5, 0.1), default=0.1, log=True),
                Float("eta0", (1e-6, 0.1), default=0.01, log=True),
                learning_rate="invscaling",
            ),
            fixed={"tol": None},
            flags=_SEEDED,
            kind="linear",
        ),
    ),
)
"""Fourteen regressors, in the order of the classifiers they match."""
