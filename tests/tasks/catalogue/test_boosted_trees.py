"""Boosted trees of other libraries: sparse matrices, missing values, and missing libraries."""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostClassifier
from lightgbm import LGBMClassifier
from scipy import sparse
from xgboost import XGBClassifier

from prefect_tune.optimizers import Space, Step
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue import spaces
from prefect_tune.tasks.catalogue.boosting import cat_boost, light_gbm, xg_boost
from prefect_tune.tasks.catalogue.spaces import (
    SPACES,
    algorithms_of,
    missing_libraries,
    usable_part,
)

FEW = {"random_state": 0, "n_estimators": 30}
MODELS: dict[str, tuple[Any, type, dict[str, int]]] = {
    "lightgbm": (light_gbm.classifier, LGBMClassifier, FEW),
    "xgboost": (xg_boost.classifier, XGBClassifier, FEW),
    "catboost": (cat_boost.classifier, CatBoostClassifier, {"random_state": 0, "iterations": 30}),
}


def averages(n: int = 900) -> tuple[np.ndarray, np.ndarray]:
    """Return a sparse matrix of positive and negative averages of few numbers."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 30)).round(2) / 3
    X[rng.random(X.shape) < 0.8] = 0.0
    return X, (X @ rng.normal(size=30) + 0.3 * rng.normal(size=n) > 0).astype(int)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "library", "arguments"), MODELS.values(), ids=MODELS)
def test_sparse_and_dense_matrix_give_the_same_model(make, library, arguments, monkeypatch) -> None:
    seen: list[Any] = []
    fit, predict = library.fit, library.predict_proba

    def noting(call: Any) -> Any:
        return lambda self, X, *more, **named: seen.append(X) or call(self, X, *more, **named)

    X, y = averages()
    new = sparse.csc_array(X[600:])  # in another form, and with zeros that are stored
    new.data[::5] = 0.0
    with monkeypatch.context() as patched:
        patched.setattr(library, "fit", noting(fit))
        patched.setattr(library, "predict_proba", noting(predict))
        of_sparse = make(**arguments).fit(sparse.csr_array(X[:600]), y[:600])
        found = of_sparse.predict_proba(new)
    assert len(seen) == 2
    for matrix in seen:
        assert sparse.issparse(matrix)
        assert matrix.format == "csr"
        assert (matrix.dtype, matrix.indices.dtype) == (np.float32, np.int32)
    of_dense = make(**arguments).fit(X[:600], y[:600])
    assert np.array_equal(found, of_dense.predict_proba(new.toarray()))
    assert np.array_equal(found, of_sparse.predict_proba(new.toarray()))
    assert np.ptp(found[:, 0]) > 0.5


@pytest.mark.slow
def test_xgboost_treats_zeros_of_matrices_as_missing_but_not_of_tables() -> None:
    X, y = averages()
    gaps = np.where(X == 0.0, np.nan, X)
    some = np.where(np.arange(X.size).reshape(X.shape) % 2, gaps, X)

    def found(matrix: Any, new: Any) -> np.ndarray:
        model = xg_boost.classifier(n_estimators=9, random_state=0).fit(matrix, y)
        return model.predict_proba(new)

    assert np.array_equal(found(X, X), found(gaps, gaps))
    assert np.array_equal(found(X, X), found(some, some))
    table, with_gaps = pd.DataFrame(X), pd.DataFrame(gaps)
    assert not np.array_equal(found(table, table), found(table, with_gaps))
    assert np.array_equal(found(with_gaps, with_gaps), found(gaps, gaps))
    overridden = xg_boost.classifier(n_estimators=2, missing=-1.0).fit(X, y)
    assert overridden.estimator_.missing == -1.0


def test_error_names_missing_or_broken_libraries_until_installed(monkeypatch) -> None:
    def broken(_: str) -> None:
        raise OSError("libgomp.so.1: cannot open shared object file")

    space = SPACES["modern"]
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "catboost", None)
        patched.delitem(sys.modules, "lightgbm")
        patched.setattr(spaces, "import_module", broken)
        missing = {m.package: m for m in missing_libraries(algorithms_of(space))}
        assert set(missing) >= {"catboost", "lightgbm"}
        assert missing["catboost"].remedy == "pip install catboost"
        assert "libgomp1" in missing["lightgbm"].remedy
        models = {algorithm.id for algorithm in usable_part(space).steps[-1].algorithms}
        assert not {"lightgbm", "catboost"} & models
        assert "random_forest" in models
        catboost = space.step("fit model").algorithm("catboost")
        trees = Step("fit model", (replace(catboost, ignores=()),))
        with pytest.raises(BadInput, check=lambda e: "pip install catboost" in e.remedy):
            usable_part(Space("own", (trees,)))
    assert not missing_libraries(algorithms_of(space))
