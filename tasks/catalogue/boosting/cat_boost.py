"""CatBoost's boosted trees."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from catboost import CatBoostClassifier as LibraryClassifier
from catboost import CatBoostRegressor as LibraryRegressor
from numpy.typing import NDArray
from scipy import sparse

from prefect_tune.tasks.catalogue.boosting import NativeClassifier, NativeRegressor, Weights

_THREADS = re.compile(r'("thread_count":)\d+')
_SETTINGS: Mapping[str, Any] = {"thread_count": 1, "verbose": False, "allow_writing_files": False}


class _CatBoost:
    codes_: Any
    prediction_settings: Mapping[str, Any] = {"thread_count": 1}

    def _fit_coded(self, model: Any, X: Any, y: NDArray[Any], weights: Weights) -> None:
        columns = np.flatnonzero(self.codes_.is_category_).tolist()
        model.fit(self._seen(X), y, sample_weight=weights, cat_features=columns)
        # Fitted models reject changes of parameters, which are stored in two places.
        model._init_params["thread_count"] = 1  # noqa: SLF001
        described = model.get_metadata()
        described["params"] = _THREADS.sub(r"\g<1>1", described["params"])

    def _seen(self, X: Any) -> Any:
        """Return a table as a frame of integer codes, as CatBoost requires; -1 means missing."""
        if sparse.issparse(X):  # CatBoost rejects read-only arrays, which steps may return
            places = (np.require(part, requirements="W") for part in (X.indices, X.indptr))
            return sparse.csr_matrix((X.data, *places), shape=X.shape)
        if not self.codes_.is_table_:
            return X
        columns = dict(enumerate(X.T))
        for i in np.flatnonzero(self.codes_.is_category_):
            columns[int(i)] = np.nan_to_num(columns[int(i)], nan=-1.0).astype(np.int32)
        return pd.DataFrame(columns)


class CatBoostClassifier(_CatBoost, NativeClassifier):
    """CatBoost for classification."""


class CatBoostRegressor(_CatBoost, NativeRegressor):
    """CatBoost for regression."""


def classifier(**arguments: Any) -> CatBoostClassifier:
    """Return a CatBoost classifier that predicts on one thread."""
    return CatBoostClassifier(LibraryClassifier(**_SETTINGS, **arguments))


def regressor(**arguments: Any) -> CatBoostRegressor:
    """Return a CatBoost regressor that predicts on one thread."""
    return CatBoostRegressor(LibraryRegressor(**_SETTINGS, **arguments))
