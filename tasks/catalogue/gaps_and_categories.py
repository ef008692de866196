"""Imputation with missing-value indicators, and category encoders with hyperparameters."""

from operator import methodcaller
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, TargetEncoder

from prefect_tune.tasks.catalogue.preparation import MAX_CATEGORIES, by_kind

_PARTS = 5
"""Number of parts of the training rows; each part is encoded using the other parts."""


def imputer_with_indicators() -> ColumnTransformer:
    """Impute medians and add indicators; missing categories become a separate category.

    Names of new columns begin with the transformer's name to avoid clashes with columns of the
    table.
    """
    numbers = make_column_selector(dtype_include="number")
    medians = SimpleImputer(strategy="median", keep_empty_features=True)
    constant = SimpleImputer(strategy="constant", fill_value="(missing)", keep_empty_features=True)
    gaps = make_pipeline(
        MissingIndicator(features="missing-only", error_on_new=False),
        FunctionTransformer(methodcaller("astype", "float64"), feature_names_out="one-to-one"),
    )
    return ColumnTransformer(
        [
            ("numbers", medians, numbers),
            ("categories", constant, make_column_selector(dtype_exclude="number")),
            ("gaps", gaps, numbers),
        ]
    ).set_output(transform="pandas")


def one_hot_encoder(*, min_frequency: int) -> ColumnTransformer:
    """Encode categories one-hot; rare and unseen categories share a column."""
    encoder = OneHotEncoder(
        min_frequency=min_frequency,
        max_categories=MAX_CATEGORIES + 1,
        handle_unknown="infrequent_if_exist",
        sparse_output=False,
    )
    return by_kind("passthrough", encoder, sparse_threshold=0)


def ordinal_encoder(*, min_frequency: int) -> ColumnTransformer:
    """Encode categories as integers; rare categories share a number, and unseen ones get -1."""
    encoder = OrdinalEncoder(
        min_frequency=min_frequency, handle_unknown="use_encoded_value", unknown_value=-1
    )
    return by_kind("passthrough", encoder, sparse_threshold=0)


def target_encoder(
    *, smooth: float, target: str = "classification", random_state: int | None = None
) -> ColumnTransformer:
    """Encode categories by mean target or class frequencies, smoothed toward the overall mean."""
    kind = "continuous" if target == "regression" else "auto"
    parts = (KFold if target == "regression" else StratifiedKFold)(
        _PARTS, shuffle=True, random_state=random_state
    )
    encoder = OutOfFoldEncoder(target_type=kind, smooth=smooth, cv=parts)
    return by_kind("passthrough", encoder, sparse_threshold=0)


class OutOfFoldEncoder(TargetEncoder):
    """scikit-learn's target encoder, extended to any class labels and to few rows.

    `fit_transform` encodes each part of the training rows by the targets of the other parts.
    `transform` would use a row's own target, which would leak the target to the model.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Learn the encodings that are applied to new rows."""
        return super().fit(X, self._targets(y))

    def fit_transform(self, X: Any, y: Any) -> NDArray[np.float64]:
        """Learn the encodings, and return training rows encoded without their own targets."""
        return super().fit_transform(X, self._targets(y))

    def _targets(self, y: Any) -> NDArray[Any]:
        """Return numbers, or classes as positions; reduce the number of parts if rows are few."""
        numbers = np.asarray(y)
        largest = len(numbers)
        if self.target_type != "continuous":
            _, numbers, counts = np.unique(numbers, return_inverse=True, return_counts=True)
            largest = int(counts.max())
        self.cv.n_splits = max(2, min(_PARTS, largest))
        return numbers
