"""Classifiers (FLASH, Table 5, fourth block, and logistic regression)."""

from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer

from prefect_tune.optimizers.space import Algorithm, Flags

__all__ = ["DECISION_TREE", "EXTRA_TREES", "GAUSSIAN_NB", "K_NEAREST", "LOGISTIC_REGRESSION"]

DECISION_TREE = Algorithm(
    id="decision_tree",
    estimator="sklearn.tree.DecisionTreeClassifier",
    hyperparameters=ConfigurationSpace(
        space=[
            Categorical("criterion", ["gini", "entropy"], default="gini"),
            Float("max_depth", (0.0, 2.0), default=0.5),
            Integer("min_samples_split", (2, 20), default=2),
            Integer("min_samples_leaf", (1, 20), default=1),
        ]
    ),
    transforms={"max_depth": "depth_factor"},
    flags=Flags(weights="class_weight", stochastic=True),
)
EXTRA_TREES = Algorithm(
    id="extra_trees",
    estimator="sklearn.ensemble.ExtraTreesClassifier",
    hyperparameters=ConfigurationSpace(
        space=[
            Categorical("criterion", ["gini", "entropy"], default="gini"),
            Float("max_features", (1.0, 5.0), default=1.0),
            Integer("min_samples_split", (2, 20), default=2),
            Integer("min_samples_leaf", (1, 20), default=1),
            Categorical("bootstrap", [False, True], default=False),
        ]
    ),
    fixed={"n_estimators": 100, "n_jobs": 1},
    transforms={"max_features": "logp_max_features"},
    flags=Flags(weights="class_weight", stochastic=True),
)
GAUSSIAN_NB = Algorithm(
    id="gaussian_nb",
    estimator="sklearn.naive_bayes.GaussianNB",
    flags=Flags(accepts_sparse=False),
)
K_NEAREST = Algorithm(
    id="k_nearest",
    estimator="sklearn.neighbors.KNeighborsClassifier",
    hyperparameters=ConfigurationSpace(
        space=[
            Integer("n_neighbors", (1, 100), default=1, log=True),
            Categorical("weights", ["uniform", "distance"], default="uniform"),
            Categorical("p", [1, 2], default=2),
        ]
    ),
    transforms={"n_neighbors": "clip_n"},
)
LOGISTIC_REGRESSION = Algorithm(
    id="logistic_regression",
    estimator="sklearn.linear_model.LogisticRegression",
    hyperparameters=ConfigurationSpace(space=[Float("C", (1e-4, 1e4), default=1.0, log=True)]),
    fixed={"max_iter": 200},
    flags=Flags(weights="class_weight"),
)
