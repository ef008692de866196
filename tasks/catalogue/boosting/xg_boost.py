"""XGBoost's boosted trees."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xgboost import XGBClassifier, XGBRegressor

from prefect_tune.tasks.catalogue.boosting import NativeClassifier, NativeRegressor, Weights

_SETTINGS: Mapping[str, Any] = {
    "n_jobs": 1,
    "verbosity": 0,
    "tree_method": "hist",
    "enable_categorical": True,
}


class _XGBoost:
    """XGBoost, which treats unstored entries of a sparse matrix as missing values.

    Zeros in dense matrices also count as missing, so that dense and sparse matrices give equal
    trees. In tables, zeros are numbers or category codes and do not count as missing.
    """

    codes_: Any

    def _fit_coded(self, model: Any, X: Any, y: NDArray[Any], weights: Weights) -> None:
        model.set_params(feature_types=["c" if c else "q" for c in self.codes_.is_category_])
        if not self.codes_.is_table_ and np.isnan(model.missing):
            model.set_params(missing=0.0)
        model.fit(X, y, sample_weight=weights)


class XGBoostClassifier(_XGBoost, NativeClassifier):
    """XGBoost for classification."""


class XGBoostRegressor(_XGBoost, NativeRegressor):
    """XGBoost for regression."""


def classifier(**arguments: Any) -> XGBoostClassifier:
    """Return an XGBoost classifier on one thread."""
    return XGBoostClassifier(XGBClassifier(**_SETTINGS, **arguments))


def regressor(**arguments: Any) -> XGBoostRegressor:
    """Return an XGBoost regressor on one thread."""
    return XGBoostRegressor(XGBRegressor(**_SETTINGS, **arguments))
