"""Steps before feature preprocessing: imputing, encoding, rescaling, balancing of classes.

Sources: FLASH's Table 5, first two blocks, and the scalers of ADMM's Table A2.
"""

from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from prefect_tune.optimizers.space.algorithm import Algorithm, Flags, Step

MAX_CATEGORIES = 100
"""Most categories per column; beyond them, the rarest ones share one category."""


def make_imputer(strategy: str = "median") -> ColumnTransformer:
    """Impute medians by default; in categories, gaps become their own category."""
    numbers = SimpleImputer(strategy=strategy, keep_empty_features=True)
    categories = SimpleImputer(
        strategy="constant", fill_value="(missing)", keep_empty_features=True
    )
    return ColumnTransformer(
        [
            ("numbers", numbers, make_column_selector(dtype_include="number")),
            ("categories", categories, make_column_selector(dtype_exclude="number")),
        ],
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")


def make_encoder() -> ColumnTransformer:
    """Encode categories one-hot; categories not seen in training become all zeros."""
    one_hot = OneHotEncoder(
        max_categories=MAX_CATEGORIES + 1, handle_unknown="ignore", sparse_output=False
    )
    return ColumnTransformer(
        [
            ("numbers", "passthrough", make_column_selector(dtype_include="number")),
            ("categories", one_hot, make_column_selector(dtype_exclude="number")),
        ],
        verbose_feature_names_out=False,
        sparse_threshold=0,
    )


IMPUTE = Step(
    "impute",
    (Algorithm(id="median", estimator=f"{__name__}.make_imputer", flags=Flags(output="same")),),
    fixed=True,
)
ENCODE = Step(
    "encode",
    (Algorithm(id="one_hot", estimator=f"{__name__}.make_encoder", flags=Flags(output="dense")),),
    fixed=True,
)


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
"""FLASH's four choices."""


BALANCE = Step(
    "balance", (Algorithm(id="none"), Algorithm(id="weighting", class_weights="balanced"))
)
