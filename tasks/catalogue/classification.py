"""Classifiers (FLASH, Table 5, fourth block, and logistic regression), in the order of the table.

Class weights reach every classifier that can take them, even if the paper's own code did not pass
them on. Nearest neighbours and discriminants take none, so `weighting` has no effect on them.
"""

from dataclasses import replace

from ConfigSpace import Categorical, ConfigurationSpace, EqualsCondition, Float, Integer
from ConfigSpace.hyperparameters import UniformFloatHyperparameter

from prefect_tune.optimizers.space.algorithm import Algorithm, Flags, Step
from prefect_tune.tasks.catalogue.shared_spaces import (
    KERNEL_GROWTH,
    C,
    forest_space,
    kernel_svm_space,
    ranges,
    sgd_space,
)

_ESTIMATORS = "prefect_tune.tasks.catalogue.estimators"


def _max_features() -> UniformFloatHyperparameter:
    return Float("max_features", (1.0, 5.0), default=1.0)


def _discriminant_space() -> ConfigurationSpace:
    shrinkage = Categorical("shrinkage", ["none", "auto", "manual"], default="none")
    factor = Float("manual.shrinkage", (0.0, 1.0), default=0.5)
    space = ranges(
        shrinkage,
        factor,
        Integer("n_components", (1, 250), default=10),
        Float("tol", (1e-5, 0.1), default=1e-4, log=True),
    )
    space.add(EqualsCondition(factor, shrinkage, "manual"))
    return space


ADA_BOOST = Algorithm(
    id="ada_boost",
    estimator=f"{_ESTIMATORS}.ada_boost_classifier",
    hyperparameters=ranges(
        Integer("n_estimators", (50, 500), default=50),
        Float("learning_rate", (1e-4, 2.0), default=0.1, log=True),
        Categorical("splitter", ["best", "random"], default="best"),
        Integer("max_depth", (1, 10), default=1),
    ),
    growth={"n_estimators": 1.0, "max_depth": 1.0},
    flags=Flags(weights="sample_weight", stochastic=True),
    kind="boosted_trees",
)
DECISION_TREE = Algorithm(
    id="decision_tree",
    estimator="sklearn.tree.DecisionTreeClassifier",
    hyperparameters=ranges(
        Categorical("criterion", ["gini", "entropy"], default="gini"),
        Float("max_depth", (0.0, 2.0), default=0.5),
        Integer("min_samples_split", (2, 20), default=2),
        Integer("min_samples_leaf", (1, 20), default=1),
    ),
    transforms={"max_depth": "depth_factor"},
    flags=Flags(weights="class_weight", stochastic=True),
    kind="trees",
)
EXTRA_TREES = Algorithm(
    id="extra_trees",
    estimator="sklearn.ensemble.ExtraTreesClassifier",
    hyperparameters=forest_space(_max_features(), bootstrap=False),
    fixed={"n_estimators": 100, "n_jobs": 1},
    threads="n_jobs",
    transforms={"max_features": "logp_max_features"},
    flags=Flags(weights="class_weight", stochastic=True),
    kind="trees",
)
GAUSSIAN_NB = Algorithm(
    id="gaussian_nb",
    estimator="sklearn.naive_bayes.GaussianNB",
    flags=Flags(accepts_sparse=False, weights="sample_weight"),
)
GRADIENT_BOOSTING = Algorithm(
    id="gradient_boosting",
    estimator="sklearn.ensemble.GradientBoostingClassifier",
    hyperparameters=ranges(
        Float("learning_rate", (1e-4, 1.0), default=0.1, log=True),
        Integer("max_depth", (1, 10), default=3),
        Integer("min_samples_split", (2, 20), default=2),
        Integer("min_samples_leaf", (1, 20), default=1),
        Float("subsample", (0.01, 1.0), default=1.0),
        Float("max_features", (1.0, 5.0), default=1.0),
    ),
    fixed={"n_estimators": 100},
    transforms={"max_features": "logp_max_features"},
    flags=Flags(weights="sample_weight", stochastic=True),
    kind="boosted_trees",
)
K_NEAREST = Algorithm(
    id="k_nearest",
    estimator="sklearn.neighbors.KNeighborsClassifier",
    hyperparameters=ranges(
        Integer("n_neighbors", (1, 100), default=1, log=True),
        Categorical("weights", ["uniform", "distance"], default="uniform"),
        Categorical("p", [1, 2], default=2),
    ),
    transforms={"n_neighbors": "clip_n"},
    growth={"held_out": 1.0},
)
LINEAR_DISCRIMINANT = Algorithm(
    id="linear_discriminant",
    estimator=f"{_ESTIMATORS}.linear_discriminant",
    hyperparameters=_discriminant_space(),
    transforms={"shrinkage": "word", "n_components": "inert"},
    flags=Flags(accepts_sparse=False),
    kind="linear",
)
LINEAR_SVM = Algorithm(
    id="linear_svm",
    estimator="sklearn.svm.LinearSVC",
    hyperparameters=ranges(
        Float("tol", (1e-5, 0.1), default=1e-4, log=True), Float("C", C, default=1.0, log=True)
    ),
    fixed={"penalty": "l2", "loss": "squared_hinge", "dual": False},
    flags=Flags(weights="class_weight", stochastic=True),
    kind="linear",
)
KERNEL_SVM = Algorithm(
    id="kernel_svm",
    estimator="sklearn.svm.SVC",
    hyperparameters=kernel_svm_space(tol=1e-4),
    fixed={"cache_size": 200},
    growth=KERNEL_GROWTH,
    flags=Flags(weights="class_weight"),
)
MULTINOMIAL_NB = Algorithm(
    id="multinomial_nb",
    estimator="sklearn.naive_bayes.MultinomialNB",
    hyperparameters=ranges(
        Float("alpha", (0.01, 100.0), default=1.0, log=True),
        Categorical("fit_prior", [True, False], default=True),
    ),
    flags=Flags(needs_nonnegative=True, weights="sample_weight"),
)
PASSIVE_AGGRESSIVE = Algorithm(
    id="passive_aggressive",
    estimator=f"{_ESTIMATORS}.passive_aggressive_classifier",
    hyperparameters=ranges(
        Categorical("loss", ["hinge", "squared_hinge"], default="hinge"),
        Integer("max_iter", (5, 1000), default=20, log=True),
        Float("C", (1e-5, 10.0), default=1.0, log=True),
    ),
    flags=Flags(weights="class_weight", stochastic=True),
    kind="linear",
)
QUADRATIC_DISCRIMINANT = Algorithm(
    id="quadratic_discriminant",
    estimator=f"{_ESTIMATORS}.QuadraticDiscriminant",
    hyperparameters=ranges(Float("reg_param", (0.0, 1.0), default=0.5)),
    flags=Flags(accepts_sparse=False),
)
RANDOM_FOREST = replace(
    EXTRA_TREES,
    id="random_forest",
    estimator="sklearn.ensemble.RandomForestClassifier",
    hyperparameters=forest_space(_max_features(), bootstrap=True),
)
SGD = Algorithm(
    id="sgd",
    estimator="sklearn.linear_model.SGDClassifier",
    hyperparameters=sgd_space(
        ["hinge", "log_loss", "squared_hinge", "perceptron", "modified_huber"],
        Float("modified_huber.epsilon", (1e-5, 0.1), default=1e-4, log=True),
        Float("eta0", (1e-6, 0.1), default=0.01),
        learning_rate="optimal",
        epsilon_of="modified_huber",
    ),
    fixed={"tol": None},
    transforms={"modified_huber.epsilon": "inert"},
    flags=Flags(weights="class_weight", stochastic=True),
    kind="linear",
)
LOGISTIC_REGRESSION = Algorithm(
    id="logistic_regression",
    estimator="sklearn.linear_model.LogisticRegression",
    hyperparameters=ranges(Float("C", (1e-4, 1e4), default=1.0, log=True)),
    fixed={"max_iter": 200},
    flags=Flags(weights="class_weight"),
    kind="linear",
)

CLASSIFY = Step(
    "fit model",
    (
        ADA_BOOST,
        DECISION_TREE,
        EXTRA_TREES,
        GAUSSIAN_NB,
        GRADIENT_BOOSTING,
        K_NEAREST,
        LINEAR_DISCRIMINANT,
        LINEAR_SVM,
        KERNEL_SVM,
        MULTINOMIAL_NB,
        PASSIVE_AGGRESSIVE,
        QUADRATIC_DISCRIMINANT,
        RANDOM_FOREST,
        SGD,
    ),
)
"""FLASH's fourteen choices."""
