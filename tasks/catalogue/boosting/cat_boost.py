"""CatBoost's boosted trees."""

import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from catboost import CatBoostClassifier as LibraryClassifier
from catboost import CatBoostRegressor as LibraryRegressor
from catboost import Pool
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from prefect_tune.tasks.catalogue.boosting import (
    Native,
    NativeClassifier,
    NativeRegressor,
    Weights,
)

_THREADS = re.compile(r'("thread_count":)\d+')
_SETTINGS: Mapping[str, Any] = {"thread_count": 1, "verbose": False, "allow_writing_files": False}
_NEEDED = {"iterations", "learning_rate", "random_state"}
"""Arguments that must be given for training to continue: the library's own choice of the learning
rate depends on the number of rounds.
"""
_OF_FEW_ROUNDS: Mapping[str, Any] = {"leaf_estimation_iterations": 1, "max_ctr_complexity": 1}
"""The library's values for fewer than 200 rounds. Training that continues to more rounds would
otherwise fail, because the library's own values would change.
"""


class _CatBoost(Native):
    """CatBoost, which continues from a snapshot if training started with `warm_start`.

    A pickled model loses the state of its random numbers; a snapshot keeps the state.
    """

    snapshot_: bytes
    rounds: ClassVar[str] = "estimator__iterations"
    _plain: ClassVar[Mapping[str, tuple[Any, ...]]] = {"loss_function": (None, "RMSE")}
    _tested = frozenset([*_NEEDED, *_SETTINGS, "depth", "l2_leaf_reg", "loss_function"])

    @property
    def can_continue(self) -> bool:
        """Whether added rounds give the same model as a fit of all rounds."""
        return self.estimator.get_params().keys() >= _NEEDED and super().can_continue

    def _converted(self, coded: Any, y: NDArray[Any], weights: Weights) -> Pool:
        columns = np.flatnonzero(self.codes_.is_category_).tolist()
        pool = Pool(self._seen(coded), y, weight=weights, cat_features=columns)
        if self.can_continue:
            pool.quantize(random_seed=self.random_state)  # once for all fits
        return pool

    def _trained(self, data: Any, begun: Any, *, is_live: bool) -> Any:  # noqa: ARG002
        model: Any = clone(self.estimator)
        if self.can_continue:
            model.set_params(**_OF_FEW_ROUNDS)
        with TemporaryDirectory() as folder:
            kept, given = Path(folder, "snapshot"), {}
            if self.warm_start:
                model.set_params(train_dir=folder, allow_writing_files=True)
                given = {"save_snapshot": True, "snapshot_file": str(kept)}
            if begun is not None:
                kept.write_bytes(self.snapshot_)
            model.fit(data, **given)
            self.snapshot_ = kept.read_bytes() if given else b""
        # Fitted models reject changes of parameters, which are stored in several places.
        model._init_params = clone(self.estimator).set_params(thread_count=1).get_params()  # noqa: SLF001
        described = model.get_metadata()
        described["params"] = _THREADS.sub(r"\g<1>1", described["params"])
        described["output_options"] = "{}"  # names the folder
        return model

    def _keep(self, n_rounds: int) -> None:
        self.estimator_.shrink(n_rounds)
        self.snapshot_ = b""  # would be most of the model's size

    def _predicted(self, coded: Any) -> Any:
        return self._stage(coded, None, 0, 0)[0]  # 0 means all

    def _stage(self, coded: Any, total: Any, n_done: int, n_rounds: int) -> tuple[Any, Any]:  # noqa: ARG002 - sums differ in the last digit
        model = self.estimator_
        predict = model.predict_proba if hasattr(self, "classes_") else model.predict
        return predict(self._seen(coded), ntree_end=n_rounds, thread_count=1), None

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
