"""Boosted trees of other libraries: sparse matrices, missing values, and missing libraries."""

import pickle
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone

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
MODELS: dict[str, tuple[Any, dict[str, int]]] = {
    "lightgbm": (light_gbm.classifier, FEW),
    "xgboost": (xg_boost.classifier, FEW),
    "catboost": (cat_boost.classifier, {"random_state": 0, "iterations": 30}),
}


def averages(n: int = 900) -> tuple[np.ndarray, np.ndarray]:
    """Return a sparse matrix of positive and negative averages of few numbers."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 30)).round(2) / 3
    X[rng.random(X.shape) < 0.8] = 0.0
    return X, (X @ rng.normal(size=30) + 0.3 * rng.normal(size=n) > 0).astype(int)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "arguments"), MODELS.values(), ids=MODELS)
def test_sparse_and_dense_matrix_give_the_same_model(make, arguments, monkeypatch) -> None:
    seen: list[Any] = []

    def noting(call: Any) -> Any:
        return lambda self, X, *more: seen.append(X) or call(self, X, *more)

    X, y = averages()
    new = sparse.csc_array(X[600:])  # in another form, and with zeros that are stored
    new.data[::5] = 0.0
    kind = type(make())
    with monkeypatch.context() as patched:
        for name in ("_converted", "_predicted"):
            patched.setattr(kind, name, noting(getattr(kind, name)))
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
    overridden = xg_boost.classifier(n_estimators=9, random_state=0, missing=-1.0).fit(X, y)
    assert not np.array_equal(overridden.predict_proba(X), found(X, X))


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


def problem(kind: str, n_classes: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return 400 rows of a kind of data, targets (numbers if there are no classes), and weights."""
    rng = np.random.default_rng(n_classes)
    X = rng.normal(size=(400, 12))
    numbers = X[:, 0] * X[:, 1] + X[:, 2] + 0.5 * rng.normal(size=400)
    cuts = {0: None, 2: [0.3], 3: [-0.5, 0.5]}[n_classes]
    y = numbers if cuts is None else np.array(["a", "b", "c"])[np.digitize(numbers, cuts)]
    if kind == "sparse":
        X[np.abs(X) < 0.7] = 0.0
        return sparse.csr_array(X), y, 10.0 ** rng.uniform(-1, 1, 400)
    table = pd.DataFrame(X, columns=[f"x{i}" for i in range(12)])
    table["kind"] = pd.Categorical(np.where(X[:, 2] > 0, "up", rng.choice(list("abcdefgh"), 400)))
    table["rare"] = pd.Categorical(rng.choice(np.arange(60).astype(str), 400))
    return table.mask(rng.random(table.shape) < 0.1), y, 10.0 ** rng.uniform(-1, 1, 400)


RANDOM: dict[str, dict[str, Any]] = {
    "lightgbm": {"colsample_bytree": 0.5, "extra_trees": True, "num_leaves": 8},
    "xgboost": {"colsample_bytree": 0.5, "subsample": 0.8, "max_depth": 4},
    "catboost": {"depth": 4, "learning_rate": 0.1},
}
NUMBERS = {
    "lightgbm": light_gbm.regressor,
    "xgboost": xg_boost.regressor,
    "catboost": cat_boost.regressor,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["table", "sparse"])
@pytest.mark.parametrize("n_classes", [0, 2, 3])
@pytest.mark.parametrize("library", MODELS)
def test_training_with_stops_equals_training_at_once(library, n_classes, kind) -> None:
    X, y, weights = problem(kind, n_classes)
    make, few = MODELS[library][0] if n_classes else NUMBERS[library], MODELS[library][1]
    n_rounds = next(name for name in few if name != "random_state")
    model = make(**{**few, **RANDOM[library], n_rounds: 50}).set_params(warm_start=True)
    assert model.can_continue
    for weight in (None, weights):
        alone = {}
        for stop in (2, 3, 6, 18, 50):
            alone[stop] = clone(model).set_params(**{model.rounds: stop}).fit(X, y, weight)
        resumed, live = clone(model), clone(model)
        for stop in (2, 6, 18, 50):
            resumed = pickle.loads(pickle.dumps(resumed.set_params(**{model.rounds: stop})))
            resumed.fit(X, y, weight)
            live.set_params(**{model.rounds: stop}).fit(X, y, weight)
            assert np.array_equal(outputs(resumed, X), outputs(alone[stop], X))
            assert np.array_equal(outputs(live, X), outputs(alone[stop], X))
        assert not np.array_equal(outputs(resumed, X), outputs(alone[18], X))
        for stop, found in zip(alone, resumed.stages(X, [*alone]), strict=True):
            assert np.array_equal(found, outputs(alone[stop], X))


def outputs(model: Any, X: Any) -> np.ndarray:
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)
