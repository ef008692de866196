"""Several threads: as many as pay, equal results, and no trace in what is kept."""

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
from sklearn.ensemble import HistGradientBoostingClassifier
from studies import context_of, evaluate, with_space
from threadpoolctl import threadpool_info

from prefect_tune.optimizers import Algorithm, Query, Space, Step
from prefect_tune.optimizers.space.configuration import default_choice, default_configuration
from prefect_tune.tasks import threads
from prefect_tune.tasks.catalogue.modern import BOOSTED_TREES_OF_EVENTS, RANDOM_FOREST
from prefect_tune.tasks.catalogue.spaces import SPACES
from prefect_tune.tasks.fitting import fitting
from prefect_tune.tasks.fitting.epochs import EpochTraining, training_of
from prefect_tune.tasks.fitting.fitting import FoldData, fit_model
from prefect_tune.tasks.fitting.recipe import MatrixSummary, build, recipe
from prefect_tune.tasks.threads import OPENMP, fit_threads, one_thread, several_threads

N, P = 6_000, 8
NUMBERS_OF_THREADS = (1, 2, 3)


def declared() -> Iterator[tuple[str, Algorithm]]:
    """Each estimator of the catalogue that may have several threads."""
    found: dict[str, tuple[str, Algorithm]] = {}
    for space in SPACES.values():
        for step in space.steps:
            for algorithm in step.algorithms:
                if algorithm.threads:
                    found.setdefault(
                        algorithm.import_path, (f"{space.name}: {algorithm.id}", algorithm)
                    )
    yield from found.values()


DECLARED = dict(declared())
OF_SPARSE = [a for a in BOOSTED_TREES_OF_EVENTS if a.threads and a.flags.accepts_sparse]
OF_TABLES = "boosting"


def rows(*, is_table: bool) -> tuple[Any, NDArray[np.float64], NDArray[np.float64]]:
    """Rows, numbers to predict, and weights so unlike that no sum is the same in another order."""
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


def fitted(algorithm: Algorithm, n_threads: int, *, as_sparse: bool = False) -> tuple[Any, Any]:
    X, numbers, weights = rows(is_table=OF_TABLES in algorithm.id or bool(algorithm.requires))
    if as_sparse:
        X = sparse.csr_array(X.select_dtypes("number").fillna(0).to_numpy())
    summary = MatrixSummary(*X.shape, "frame" if isinstance(X, pd.DataFrame) else "dense", "float")
    summary = replace(summary, n_classes=3)
    how = recipe(algorithm, default_choice(algorithm), summary, balanced=False)
    arguments = {**how.arguments, **few(algorithm)}
    how = replace(how, arguments=arguments, weights="sample_weight")
    estimator = build(how, seed=0)
    is_of_numbers = is_regressor(estimator)
    y = numbers if is_of_numbers else np.digitize(numbers, [-0.5, 0.5])
    with one_thread():
        with several_threads(how.model_in(estimator), how.threads, n_threads):
            estimator.fit(X, y, **{how.weight_argument: weights})
        if hasattr(estimator, "predict_proba"):
            return estimator, estimator.predict_proba(X)
        return estimator, (estimator.predict if is_of_numbers else estimator.transform)(X)


def few(algorithm: Algorithm) -> dict[str, int]:
    """Few trees."""
    known = (*algorithm.hyperparameters, *algorithm.fixed)
    return {n: 8 for n in ("n_estimators", "max_iter", "iterations") if n in known}


def kept(estimator: Any) -> Any:
    """What is kept of a fitted estimator, without what CatBoost draws and when it ended."""
    library = getattr(estimator, "estimator_", None)
    if not hasattr(library, "get_metadata"):
        return pickle.dumps(estimator)
    described = library.get_metadata()
    unfitted = estimator.estimator.get_params()
    return unfitted, library.get_params(), described["params"]


@pytest.mark.slow
@pytest.mark.parametrize("name", DECLARED)
def test_a_fit_gives_the_same_bytes_whatever_its_number_of_threads(name) -> None:
    alone, *others = (fitted(DECLARED[name], n) for n in NUMBERS_OF_THREADS)
    for estimator, predictions in others:
        assert np.array_equal(predictions, alone[1])
        assert kept(estimator) == kept(alone[0])


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", OF_SPARSE, ids=[a.id for a in OF_SPARSE])
def test_sparse_matrices_are_fitted_alike_with_any_number_of_threads(algorithm) -> None:
    alone, *others = (fitted(algorithm, n, as_sparse=True) for n in NUMBERS_OF_THREADS)
    for estimator, predictions in others:
        assert np.array_equal(predictions, alone[1])
        assert kept(estimator) == kept(alone[0])


def test_small_fits_have_one_thread_and_large_ones_as_many_as_there_are() -> None:
    assert fit_threads(1_000 * 10, 8) == 1
    assert fit_threads(100_000_000, 8) == 8
    assert fit_threads(100_000_000, 1) == 1
    counts = [fit_threads(n, 64) for n in range(0, 50_000_000, 100_000)]
    assert counts == sorted(counts)
    assert len(set(counts)) > 10


def counts(kind: str) -> set[int]:
    return {found["num_threads"] for found in threadpool_info() if found["user_api"] == kind}


def test_linear_algebra_keeps_to_one_thread_while_a_fit_has_several() -> None:
    estimator = HistGradientBoostingClassifier()  # it loads OpenMP
    with one_thread():
        with several_threads(estimator, OPENMP, 3):
            assert (counts("openmp"), counts("blas")) == ({3}, {1})
        assert (counts("openmp"), counts("blas")) == ({1}, {1})


def test_threads_are_in_no_key_and_in_no_description_of_a_space() -> None:
    forest = RANDOM_FOREST
    alone = replace(forest, threads="")
    summary = MatrixSummary(N, P, "dense", "float64", n_classes=2)
    documents = [
        recipe(a, default_choice(a), summary, balanced=False).to_json(0) for a in (forest, alone)
    ]
    assert documents[0] == documents[1]
    spaces = [Space("s", (Step("fit", (replace(a, ignores=()),)),)) for a in (forest, alone)]
    assert spaces[0].digest == spaces[1].digest


CHECKED = """
from sklearn.tree import DecisionTreeClassifier
from prefect_tune import Algorithm, Space, Step
from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE


class Checked(DecisionTreeClassifier):
    def __init__(self, n_jobs=1, max_depth=3):
        super().__init__(max_depth=max_depth)
        self.n_jobs = n_jobs

    def fit(self, X, y):
        assert self.n_jobs == {n_threads}, self.n_jobs
        return super().fit(X, y)


space = Space("checked", (IMPUTE, ENCODE, Step("fit", (
    Algorithm(id="tree", estimator=Checked, fixed={{"n_jobs": 1}}, threads={threads!r}),
))))
"""


@pytest.mark.parametrize(
    ("most", "way", "n_threads"), [(1, "n_jobs", 1), (2, "n_jobs", 2), (2, "", 1)]
)
def test_a_trial_has_the_threads_that_its_worker_has_if_its_algorithm_declares_how(
    most, way, n_threads, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(threads, "_CELLS_PER_THREAD", 1)
    code = CHECKED.format(n_threads=n_threads, threads=way)
    context = replace(with_space(context_of(tmp_path), code), most_threads=most)
    space = context.problem.find_space()
    (path,) = space.paths()
    evaluate(context, Query(default_configuration(space, path)))


def forest_fold(most_threads: int) -> tuple[Any, FoldData]:
    forest = RANDOM_FOREST
    X, numbers, _ = rows(is_table=False)
    summary = MatrixSummary(300, P, "dense", "float32", n_classes=2)
    how = recipe(forest, default_choice(forest), summary, balanced=True)
    how = replace(how, arguments={**how.arguments, "n_estimators": 10})
    classes = np.array([0, 1])
    y = (numbers > 0).astype(int)
    return how, FoldData(X[:300], X[300:400], y[:300], classes, most_threads=most_threads)


@pytest.fixture
def given(monkeypatch) -> list[int]:
    """Numbers of threads that fits had."""
    monkeypatch.setattr(threads, "_CELLS_PER_THREAD", 1)
    found: list[int] = []

    @contextmanager
    def noted(estimator: Any, way: str, n_threads: int) -> Iterator[None]:
        with several_threads(estimator, way, n_threads):
            found.append(estimator.n_jobs)
            yield

    monkeypatch.setattr(fitting, "several_threads", noted)
    return found


def test_fits_at_once_and_in_epochs_have_several_threads_and_predictions_one(given) -> None:
    made, predictions = zip(*(fit_model(*fold_with(n)) for n in (1, 3)), strict=True)
    assert np.array_equal(predictions[0].score, predictions[1].score)
    models = [m.parts["estimator"] for m in made]
    assert models[1].n_jobs == 1
    assert pickle.dumps(models[0]) == pickle.dumps(models[1])
    trained = []
    for n in (1, 3):
        how, data = forest_fold(n)
        training = EpochTraining(how, training_of(how), 0, data, epochs=5, loss=None)
        training.advance(2)
        training.advance(5)
        trained.append(pickle.dumps(training.checkpoint().estimator))
    assert trained[0] == trained[1]
    assert given == [1, 3, 1, 1, 3, 3]


def fold_with(n_threads: int) -> tuple[Any, int, FoldData]:
    how, data = forest_fold(n_threads)
    return how, 0, data
