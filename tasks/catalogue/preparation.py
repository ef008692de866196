"""Steps before feature preprocessing: imputing, encoding, rescaling, balancing of classes.

Sources: the first two blocks of FLASH's Table 5, and the scalers in ADMM's Table A2.
"""

from typing import Any

from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from prefect_tune.optimizers.space.algorithm import Algorithm, Flags
from prefect_tune.tasks.catalogue.notation import OWN, choice, declare, real, step, whole

MAX_CATEGORIES = 100
"""Maximum number of categories per column; all rarer categories share one category."""


def by_kind(numbers: Any, categories: Any, **options: Any) -> ColumnTransformer:
    """Return a transformer that treats columns of numbers and columns of categories separately."""
    return ColumnTransformer(
        [
            ("numbers", numbers, make_column_selector(dtype_include="number")),
            ("categories", categories, make_column_selector(dtype_exclude="number")),
        ],
        verbose_feature_names_out=False,
        **options,
    )


def make_imputer(strategy: str = "median") -> ColumnTransformer:
    """Impute medians by default; missing categories become a separate category."""
    numbers = SimpleImputer(strategy=strategy, keep_empty_features=True)
    constant = SimpleImputer(strategy="constant", fill_value="(missing)", keep_empty_features=True)
    return by_kind(numbers, constant).set_output(transform="pandas")


def make_encoder() -> ColumnTransformer:
    """Encode categories one-hot; categories unseen in training become zeros in all columns."""
    one_hot = OneHotEncoder(
        max_categories=MAX_CATEGORIES + 1, handle_unknown="ignore", sparse_output=False
    )
    return by_kind("passthrough", one_hot, sparse_threshold=0)


IMPUTE = step(
    "impute",
    declare(f"{__name__}.make_imputer", name="median", flags=Flags(output="same")),
    fixed=True,
)
ENCODE = step(
    "encode",
    declare(f"{__name__}.make_encoder", name="one_hot", flags=Flags(output="dense")),
    fixed=True,
)


NONE = Algorithm(id="none")
MINMAX = declare(
    "sklearn.preprocessing.MinMaxScaler",
    name="minmax",
    fixed={"clip": True},
    sparse_estimator="sklearn.preprocessing.MaxAbsScaler",
)
STANDARDIZE = declare(
    "sklearn.preprocessing.StandardScaler", name="standardize", sparse_fixed={"with_mean": False}
)
NORMALIZE = declare("sklearn.preprocessing.Normalizer", name="normalize")
QUANTILES = declare(
    "sklearn.preprocessing.QuantileTransformer",
    whole(n_quantiles=(10, 2000, 1000)),
    choice(output_distribution=["normal", "uniform"]),
    name="quantiles",
    transforms={"n_quantiles": "clip_n"},
    sparse_fixed={"ignore_implicit_zeros": True},
    flags=Flags(stochastic=True),
)
ROBUST = declare(
    f"{OWN}.robust_scaler",
    real(q_min=(0.001, 0.3, 0.25), q_max=(0.7, 0.999, 0.75)),
    choice(with_centering=[True, False], with_scaling=[True, False]),
    name="robust",
    sparse_fixed={"with_centering": False},
)
BINARIZE = declare("sklearn.preprocessing.Binarizer", name="binarize", fixed={"threshold": 0.0})
DISCRETIZE = declare(
    f"{OWN}.discretizer",
    whole(n_bins=(2, 20, 5)),
    choice(strategy=["uniform", "quantile", "kmeans"], default="quantile"),
    name="discretize",
    flags=Flags(accepts_sparse=False, output="dense", stochastic=True),
)
RESCALE = step("rescale", NONE, MINMAX, STANDARDIZE, NORMALIZE)
"""FLASH's four choices of rescaling."""
BALANCE = step("balance", NONE, Algorithm(id="weighting", class_weights="balanced"))
