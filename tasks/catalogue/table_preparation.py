"""The fixed first steps for tables: impute gaps, encode categories."""

from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from prefect_tune.optimizers.space.algorithm import Algorithm, Flags, Step

__all__ = ["ENCODE", "IMPUTE", "make_encoder", "make_imputer"]

MAX_CATEGORIES = 100
"""Categories of a column beyond this many, the rarest, become one."""


def make_imputer(strategy: str = "median") -> ColumnTransformer:
    """Impute medians by default, and in categories a category of its own."""
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
    """Encode categories one-hot; those not seen in training become all zeros."""
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
