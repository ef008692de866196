"""LightGBM's boosted trees."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier, LGBMRegressor
from numpy.typing import NDArray

from prefect_tune.tasks.catalogue.boosting.native import NativeClassifier, NativeRegressor

_SETTINGS: Mapping[str, Any] = {
    "n_jobs": 1,
    "verbose": -1,
    "deterministic": True,
    "force_row_wise": True,  # or the machine's speed would choose
    "importance_type": "gain",
}


class _LightGBM:
    def _fit_coded(
        self,
        model: Any,
        X: Any,
        y: NDArray[Any],
        is_category: NDArray[np.bool_],
        sample_weight: NDArray[np.float64] | None,
    ) -> None:
        columns = [int(i) for i in np.flatnonzero(is_category)]
        model.fit(X, y, sample_weight=sample_weight, categorical_feature=columns)


class LightGBMClassifier(_LightGBM, NativeClassifier):
    """LightGBM for classes."""


class LightGBMRegressor(_LightGBM, NativeRegressor):
    """LightGBM for numbers."""


def classifier(**arguments: Any) -> LightGBMClassifier:
    """Return LightGBM for classes, on one thread."""
    return LightGBMClassifier(LGBMClassifier(**_SETTINGS, **arguments))


def regressor(**arguments: Any) -> LightGBMRegressor:
    """Return LightGBM for numbers, on one thread."""
    return LightGBMRegressor(LGBMRegressor(**_SETTINGS, **arguments))
