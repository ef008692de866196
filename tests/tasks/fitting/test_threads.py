"""Multiple threads: used if worthwhile, with equal results, and never part of a key."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import is_regressor
from studies import context_of, draw, evaluate

from prefect_tune.optimizers import Algorithm
from prefect_tune.optimizers.space.configuration import default_choice
from prefect_tune.tasks import threads
from prefect_tune.tasks.catalogue.modern import RANDOM_FOREST
from prefect_tune.tasks.catalogue.spaces import SPACES
from prefect_tune.tasks.fitting import fitting
from prefect_tune.tasks.fitting.epochs import EpochTraining, training_of
from prefect_tune.tasks.fitting.fitting import FoldData, fit_model
from prefect_tune.tasks.fitting.recipe import MatrixSummary, build, recipe
from prefect_tune.tasks.threads import fit_threads, one_thread, several_threads

N, P = 6_000, 8
USUAL = ("small: extra_trees", "modern: lightgbm")


def declared() -> list[Any]:
    """Return each estimator of the catalog that may use several threads."""
    found: dict[str, Any] = {}
    for space in SPACES.values():
        for step in space.steps:
            for algorithm in step.algorithms:
                name = f"{space.name}: {algorithm.id}"
                marks = () if name in USUAL else pytest.mark.full
                if algorithm.threads:
                    case = pytest.param(algorithm, id=name, marks=marks)
                    found.setdefault(algorithm.import_path, case)
    return list(found.values())


def rows(*, is_table: bool) -> tuple[Any, NDArray[np.float64], NDArray[np.float64]]:
    """Return rows, targets and weights such that each order of summation gives a different sum."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, P)).astype(np.float32)
    X[:, 3:] *= rng.random((N, P - 3)) < 0.1
    numbers = X[:, 0] * X[:, 1] + X[:, 2] + rng.normal(size=N)
    weights = 10.0 ** rng.uniform(-9, 9, N)
    if not is_table:
        return X, numbers, weights
    table = pd.DataFrame(X, columns=[f"x{i}" for i in range(P)])
    table["kind"] = pd.Categorical(rng.choice(list("abcdef"), N))
    table.loc[::7, "x0"] = np.nan
    return table, numbers, weights


def fitted(algorithm: Algorithm, n_threads: int, *, as_sparse: bool) -> tuple[Any, Any]:
    is_table = "boosting" in algorithm.id or bool(algorithm.requires)
    X, numbers, weights = rows(is_table=is_table and not as_sparse)
    X = sparse.csr_array(X) if as_sparse else X
    layout = "frame" if isinstance(X, pd.DataFrame) else "dense"
    summary = MatrixSummary(*X.shape, layout, "float", n_classes=3)
    how = recipe(algorithm, default_choice(algorithm), summary, balanced=False)
    known = (*algorithm.hyperparameters, *algorithm.fixed)
    few = {n: 8 for n in ("n_estimators", "max_iter", "iterations") if n in known}
    how = replace(how, arguments={**how.arguments, **few}, weights="sample_weight")
    estimator = build(how, seed=0)
    y = numbers if is_regressor(estimator) else np.digitize(numbers, [-0.5, 0.5])
    with one_thread():
        with several_threads(how.model_in(estimator), how.threads, n_threads):
            estimator.fit(X, y, **{how.weight_argument: weights})
        for method in ("predict_proba", "predict", "transform"):
            if hasattr(estimator, method):
                return estimator, getattr(estimator, method)(X)
    raise AssertionError(algorithm)


def kept(estimator: Any) -> Any:
    """Return the stored content of an estimator, without random names and times of CatBoost."""
    library = getattr(estimator, "estimator_", None)
    if not hasattr(library, "get_metadata"):
        return pickle.dumps(estimator)
    described = library.get_metadata()["params"]
    return estimator.estimator.get_params(), library.get_params(), described


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", declared())
def test_fit_gives_the_same_bytes_with_any_number_of_threads(algorithm) -> None:
    for as_sparse in (False, True)[: 1 + bool(algorithm.requires)]:
        alone, *others = (fitted(algorithm, n, as_sparse=as_sparse) for n in (1, 2, 3))
        for estimator, predictions in others:
            assert np.array_equal(predictions, alone[1])
            assert kept(estimator) == kept(alone[0])


@pytest.mark.parametrize(
    ("n_cells", "most", "n_threads"),
    [(10_000, 8, 1), (100_000_000, 8, 8), (100_000_000, 1, 1), (4_000_000, 64, 8)],
)
def test_small_fits_use_a_single_thread_and_large_fits_use_all_threads(
    n_cells, most, n_threads
) -> None:
    assert fit_threads(n_cells, most) == n_threads


def test_threads_are_not_part_of_keys() -> None:
    summary = MatrixSummary(N, P, "dense", "float64", n_classes=2)
    several, alone = (
        recipe(a, default_choice(a), summary, balanced=False).to_json(0)
        for a in (RANDOM_FOREST, replace(RANDOM_FOREST, threads=""))
    )
    assert several == alone


@pytest.fixture
def given(monkeypatch) -> list[int]:
    """Record the number of threads of each fit."""
    monkeypatch.setattr(threads, "_CELLS_PER_THREAD", 1)
    found: list[int] = []

    @contextmanager
    def noted(estimator: Any, way: str, n_threads: int) -> Iterator[None]:
        with several_threads(estimator, way, n_threads):
            found.append(n_threads if way else 1)
            yield

    monkeypatch.setattr(fitting, "several_threads", noted)
    return found


@pytest.mark.parametrize(
    ("most", "selection", "n_threads"),
    [(1, "extra_trees", 1), (2, "extra_trees", 2), (2, "pca", 1)],
)
def test_trial_uses_the_declared_threads(most, selection, n_threads, tmp_path, given) -> None:
    context = replace(context_of(tmp_path), most_threads=most)
    path = next(p for p in context.problem.find_space().paths() if selection in p)
    evaluate(context, draw(context, 0, path))
    assert max(given) == n_threads


def test_fits_use_several_threads_and_predictions_use_a_single_thread(given) -> None:
    X, numbers, _ = rows(is_table=False)
    y = (numbers > 0).astype(int)
    summary = MatrixSummary(300, P, "dense", "float32", n_classes=2)
    how = recipe(RANDOM_FOREST, default_choice(RANDOM_FOREST), summary, balanced=True)
    how = replace(how, arguments={**how.arguments, "n_estimators": 10})
    at_once, in_epochs = [], []
    for n in (1, 3):
        data = FoldData(X[:300], X[300:400], y[:300], np.array([0, 1]), most_threads=n)
        made, predictions = fit_model(how, 0, data)
        at_once.append((pickle.dumps(made.parts["estimator"]), predictions.score.tobytes()))
        training = EpochTraining(how, training_of(how), 0, data, epochs=5, loss=None)
        training.advance(2)
        training.advance(5)
        in_epochs.append(pickle.dumps(training.checkpoint().estimator))
    assert at_once[0] == at_once[1]
    assert in_epochs[0] == in_epochs[1]
    assert given == [1, 1, 1, 3, 3, 3]
