"""LightGBM's boosted trees."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier, LGBMRegressor
from numpy.typing import NDArray

from prefect_tune.tasks.catalogue.boosting import NativeClassifier, NativeRegressor, Weights

_SETTINGS: Mapping[str, Any] = {
    "n_jobs": 0,  # all threads that OpenMP allows; other numbers would end up in the model's text
    "verbose": -1,
    "deterministic": True,
    "importance_type": "gain",
}


class _LightGBM:
    """LightGBM with results that do not depend on the number of threads.

    Column-wise training computes each sum on one thread, so the order of additions is fixed.
    Row-wise training and sparse columns split sums between threads. Matrices consist mostly of
    zeros and are faster row-wise, so they are fitted on one thread.
    """

    codes_: Any

    def _fit_coded(self, model: Any, X: Any, y: NDArray[Any], weights: Weights) -> None:
        columns = np.flatnonzero(self.codes_.is_category_).tolist()
        if self.codes_.is_table_:
            model.set_params(force_col_wise=True, is_enable_sparse=False)
        else:
            model.set_params(force_row_wise=True, n_jobs=1)
        model.fit(X, y, sample_weight=weights, categorical_feature=columns)
        model.set_params(n_jobs=1)  # for predictions


class LightGBMClassifier(_LightGBM, NativeClassifier):
    """LightGBM for classification."""


class LightGBMRegressor(_LightGBM, NativeRegressor):
    """LightGBM for regression."""


def classifier(**arguments: Any) -> LightGBMClassifier:
    """Return a LightGBM classifier that predicts on one thread."""
    return LightGBMClassifier(LGBMClassifier(**_SETTINGS, **arguments))


def regressor(**arguments: Any) -> LightGBMRegressor:
    """Return a LightGBM regressor that predicts on one thread."""
    return LightGBMRegressor(LGBMRegressor(**_SETTINGS, **arguments))
