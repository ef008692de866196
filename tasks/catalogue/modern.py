"""A space for tables of today: fewer choices before the model, and models that win on tables.

Histogram gradient boosting, forests of 300 trees, networks, kernels and linear models; gaps and
categories in two ways each; the scalings that help what is not a tree. Ranges of boosting are those
within which FLAML and AutoGluon search.
"""

from dataclasses import replace

from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer

from prefect_tune.optimizers.space.algorithm import Algorithm, Flags
from prefect_tune.optimizers.space.step import Step
from prefect_tune.tasks.catalogue import classification, preprocessing, rescaling
from prefect_tune.tasks.catalogue.regression import PREPROCESS_NUMBERS, REGRESS
from prefect_tune.tasks.catalogue.table_preparation import ENCODE, IMPUTE

__all__ = [
    "CLASSIFY_MODERN",
    "ENCODE_MODERN",
    "IMPUTE_MODERN",
    "PREPROCESS_MODERN",
    "PREPROCESS_NUMBERS_MODERN",
    "REGRESS_MODERN",
    "RESCALE_MODERN",
]

_PREPARATION = "prefect_tune.tasks.catalogue.table_preparation"
_ESTIMATORS = "prefect_tune.tasks.catalogue.estimators"
_N_TREES = 300
_WEIGHTED = Flags(weights="class_weight", stochastic=True)

IMPUTE_MODERN = Step(
    "impute",
    (
        *IMPUTE.algorithms,
        Algorithm(
            id="median_and_gaps",
            estimator=f"{_PREPARATION}.make_imputer",
            fixed={"indicators": True},
            flags=Flags(output="same"),
        ),
    ),
)
"""Medians, with columns that say where the gaps were or without."""
ENCODE_MODERN = Step(
    "encode",
    (
        *ENCODE.algorithms,
        Algorithm(
            id="ordinal",
            estimator=f"{_PREPARATION}.make_ordinal_encoder",
            hyperparameters=ConfigurationSpace(
                space=[Integer("min_frequency", (1, 50), default=1, log=True)]
            ),
            flags=Flags(output="dense"),
        ),
    ),
)
POWER = Algorithm(
    id="power",
    estimator="sklearn.preprocessing.PowerTransformer",
    flags=Flags(accepts_sparse=False),
)
RESCALE_MODERN = Step(
    "rescale", (rescaling.NONE, rescaling.STANDARDIZE, rescaling.QUANTILES, POWER)
)
PREPROCESS_MODERN = Step(
    "preprocess",
    (
        preprocessing.NONE,
        preprocessing.SELECT_PERCENTILE,
        preprocessing.PCA,
        preprocessing.NYSTROEM,
    ),
)
PREPROCESS_NUMBERS_MODERN = Step(
    "preprocess",
    tuple(
        PREPROCESS_NUMBERS.algorithm(name)
        for name in ("none", "select_percentile", "pca", "nystroem")
    ),
)


def _histograms(estimator: str, weights: Flags) -> Algorithm:
    return Algorithm(
        id="hist_gradient_boosting",
        estimator=f"sklearn.ensemble.{estimator}",
        hyperparameters=ConfigurationSpace(
            space=[
                Float("learning_rate", (0.01, 1.0), default=0.1, log=True),
                Integer("max_iter", (16, 512), default=100, log=True),
                Integer("max_leaf_nodes", (4, 128), default=31, log=True),
                Integer("min_samples_leaf", (1, 200), default=20, log=True),
                Float("l2_regularization", (1e-8, 10.0), default=1e-8, log=True),
                Float("max_features", (0.2, 1.0), default=1.0),
            ]
        ),
        fixed={"early_stopping": False},
        flags=replace(weights, accepts_sparse=False, iterative="warm_start", epochs="max_iter"),
    )


def _forest(name: str, estimator: str, weights: Flags, *, bootstrap: bool) -> Algorithm:
    return Algorithm(
        id=name,
        estimator=f"sklearn.ensemble.{estimator}",
        hyperparameters=ConfigurationSpace(
            space=[
                Float("max_features", (0.05, 1.0), default=0.3),
                Integer("min_samples_leaf", (1, 20), default=1, log=True),
            ]
        ),
        fixed={"n_estimators": _N_TREES, "bootstrap": bootstrap, "n_jobs": 1},
        flags=replace(weights, iterative="warm_start", epochs="n_estimators"),
    )


def _network(estimator: str) -> Algorithm:
    return Algorithm(
        id="mlp",
        estimator=f"{_ESTIMATORS}.{estimator}",
        hyperparameters=ConfigurationSpace(
            space=[
                Integer("hidden_layers", (1, 3), default=1),
                Integer("nodes_per_layer", (16, 256), default=64, log=True),
                Float("alpha", (1e-6, 1.0), default=1e-4, log=True),
                Float("learning_rate_init", (1e-4, 1e-1), default=1e-3, log=True),
                Categorical("activation", ["relu", "tanh"], default="relu"),
            ]
        ),
        fixed={"max_iter": 200},
        flags=Flags(stochastic=True, iterative="warm_start", epochs="max_iter"),
    )


CLASSIFY_MODERN = Step(
    "fit model",
    (
        _histograms(
            "HistGradientBoostingClassifier", Flags(weights="sample_weight", stochastic=True)
        ),
        _forest("random_forest", "RandomForestClassifier", _WEIGHTED, bootstrap=True),
        _forest("extra_trees", "ExtraTreesClassifier", _WEIGHTED, bootstrap=False),
        classification.LOGISTIC_REGRESSION,
        _network("mlp"),
        classification.K_NEAREST,
        classification.KERNEL_SVM,
        classification.LINEAR_DISCRIMINANT,
    ),
)
_PLAIN = Flags(stochastic=True)
REGRESS_MODERN = Step(
    "fit model",
    (
        _histograms("HistGradientBoostingRegressor", _PLAIN),
        _forest("random_forest", "RandomForestRegressor", _PLAIN, bootstrap=True),
        _forest("extra_trees", "ExtraTreesRegressor", _PLAIN, bootstrap=False),
        REGRESS.algorithm("ridge"),
        _network("mlp_regressor"),
        REGRESS.algorithm("k_nearest"),
        REGRESS.algorithm("kernel_svm"),
    ),
)
