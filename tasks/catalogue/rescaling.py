"""Rescaling of columns or rows (FLASH, Table 5, first block; ADMM, Table A2, scalers)."""

from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer

from prefect_tune.optimizers.space.algorithm import Algorithm, Flags, Step

__all__ = [
    "BINARIZE",
    "DISCRETIZE",
    "MINMAX",
    "NONE",
    "NORMALIZE",
    "QUANTILES",
    "RESCALE",
    "ROBUST",
    "STANDARDIZE",
]

NONE = Algorithm(id="none")
MINMAX = Algorithm(
    id="minmax",
    estimator="sklearn.preprocessing.MinMaxScaler",
    fixed={"clip": True},
    sparse_estimator="sklearn.preprocessing.MaxAbsScaler",
)
STANDARDIZE = Algorithm(
    id="standardize",
    estimator="sklearn.preprocessing.StandardScaler",
    sparse_fixed={"with_mean": False},
)
NORMALIZE = Algorithm(id="normalize", estimator="sklearn.preprocessing.Normalizer")
QUANTILES = Algorithm(
    id="quantiles",
    estimator="sklearn.preprocessing.QuantileTransformer",
    hyperparameters=ConfigurationSpace(
        space=[
            Integer("n_quantiles", (10, 2000), default=1000),
            Categorical("output_distribution", ["normal", "uniform"], default="normal"),
        ]
    ),
    transforms={"n_quantiles": "clip_n"},
    sparse_fixed={"ignore_implicit_zeros": True},
    flags=Flags(stochastic=True),
)
ROBUST = Algorithm(
    id="robust",
    estimator="prefect_tune.tasks.catalogue.estimators.robust_scaler",
    hyperparameters=ConfigurationSpace(
        space=[
            Float("q_min", (0.001, 0.3), default=0.25),
            Float("q_max", (0.7, 0.999), default=0.75),
            Categorical("with_centering", [True, False], default=True),
            Categorical("with_scaling", [True, False], default=True),
        ]
    ),
    sparse_fixed={"with_centering": False},
)
BINARIZE = Algorithm(
    id="binarize", estimator="sklearn.preprocessing.Binarizer", fixed={"threshold": 0.0}
)
DISCRETIZE = Algorithm(
    id="discretize",
    estimator="prefect_tune.tasks.catalogue.estimators.discretizer",
    hyperparameters=ConfigurationSpace(
        space=[
            Integer("n_bins", (2, 20), default=5),
            Categorical("strategy", ["uniform", "quantile", "kmeans"], default="quantile"),
        ]
    ),
    flags=Flags(accepts_sparse=False, output="dense", stochastic=True),
)

RESCALE = Step("rescale", (NONE, MINMAX, STANDARDIZE, NORMALIZE))
"""FLASH's four."""
