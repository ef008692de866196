"""Designs of paths and linear models of them."""

import numpy as np
import pytest
from flash_worlds import BENCHMARK, FIRST_THIRTY, TOY, one_hot_paths
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from prefect_tune.optimizers.paths.table import Criterion, design_order, design_rank
from prefect_tune.optimizers.surrogates.linear import PathLinear

PATHS = one_hot_paths(TOY)
SEEN = [5, 0, 1, 2]
LOSSES = np.array([30.0, 22.0, 18.0, 26.0])


def toy_model() -> PathLinear:
    return PathLinear.fit(PATHS[SEEN], LOSSES)


def test_the_worked_example_of_the_ridge_with_intercept() -> None:
    model = toy_model()
    assert model.coefficients * 11 == pytest.approx([-18, 18, -3, -25, 28])
    assert model.intercept == pytest.approx(266 / 11)
    assert model.residual_variance == pytest.approx(2.185950, abs=5e-7)
    assert model.leverage(PATHS) == pytest.approx(
        [0.596154, 0.596154, 0.538462, 1.134615, 1.134615, 0.615385], abs=5e-7
    )
    assert model.mean(PATHS) == pytest.approx(
        [22.272727, 20.272727, 25.090909, 25.545455, 23.545455, 28.363636], abs=5e-7
    )
    assert model.deviation(PATHS) == pytest.approx(
        [1.867917, 1.867917, 1.833849, 2.160130, 2.160130, 1.879136], abs=5e-7
    )


@pytest.mark.slow
@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 1455), st.floats(0, 100)), min_size=2, max_size=60),
    st.floats(0.01, 10),
)
def test_it_agrees_with_scikit_learn_and_a_direct_inverse(
    runs: list[tuple[int, float]], ridge: float
) -> None:
    table = one_hot_paths(BENCHMARK)
    paths, targets = table[[i for i, _ in runs]], np.array([m for _, m in runs])
    model = PathLinear.fit(paths, targets, ridge)
    oracle = Ridge(alpha=ridge, solver="svd").fit(paths, targets)
    assert model.mean(table) == pytest.approx(oracle.predict(table), abs=1e-8)
    inverse = np.linalg.inv(paths.T @ paths + ridge * np.eye(33))
    direct = [p @ inverse @ p for p in table[:50]]
    assert model.leverage(table[:50]) == pytest.approx(direct, abs=1e-9)


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(st.integers(0, 1455), min_size=1, max_size=30), st.integers(0, 1455))
def test_imagining_a_path_equals_a_refit_with_its_mean_as_outcome(
    seen: list[int], new: int
) -> None:
    table = one_hot_paths(BENCHMARK)
    targets = np.random.default_rng(len(seen)).random(len(seen)) * 50
    model = PathLinear.fit(table[seen], targets)
    imagined = model.imagining(table[new])
    refit = PathLinear.fit(table[[*seen, new]], np.append(targets, model.mean(table[[new]])))
    assert imagined.inverse == pytest.approx(refit.inverse, abs=1e-10)
    assert imagined.mean(table) == pytest.approx(refit.mean(table), abs=1e-9)
    assert (imagined.leverage(table) <= model.leverage(table) + 1e-12).all()


def test_equal_losses_leave_a_positive_deviation() -> None:
    model = PathLinear.fit(PATHS[SEEN], np.full(4, 7.0))
    assert (model.deviation(PATHS) > 0).all()


def log_pseudo_determinant(paths: np.ndarray) -> float:
    eigenvalues = np.linalg.eigvalsh(paths.T @ paths)
    return float(np.log(eigenvalues[eigenvalues > 1e-8]).sum())


def eigenvalue_picks(paths: np.ndarray, n: int, first: int) -> list[int]:
    """The paper's rule as written: the product of the largest l eigenvalues, lowest index first."""
    chosen = [first]
    while len(chosen) < n:
        largest = min(len(chosen) + 1, paths.shape[1])
        information = paths[chosen].T @ paths[chosen]
        candidates = information + np.einsum("bi,bj->bij", paths, paths)
        values = np.linalg.eigvalsh(candidates)[:, -largest:]
        scores = np.log(np.maximum(values, 1e-300)).sum(axis=1)
        chosen.append(int(np.flatnonzero(scores >= scores.max() - 1e-8)[0]))
    return chosen


def test_the_toy_graph_goes_on_by_the_pseudo_inverse() -> None:
    order = design_order(one_hot_paths(TOY), 8, "d_optimal", start=[5])
    assert order == [5, 0, 1, 2, 3, 4, 0, 1]


def test_the_benchmark_graph_gives_the_thirty_picks_and_the_six_after_them() -> None:
    order = design_order(one_hot_paths(BENCHMARK), 36, "d_optimal", start=[0])
    assert order == [*FIRST_THIRTY, 329, 55, 1420, 660, 261, 346]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "n", "first"), [(TOY, 4, 5), (BENCHMARK, 12, 0), ((3, 3), 5, 2)]
)
def test_the_picks_are_those_of_the_eigenvalues(
    counts: tuple[int, ...], n: int, first: int
) -> None:
    paths = one_hot_paths(counts)
    assert design_order(paths, n, "d_optimal", start=[first]) == eigenvalue_picks(paths, n, first)


@pytest.mark.parametrize("seed", range(4))
def test_any_start_and_any_ties_reach_the_full_rank_with_the_same_determinant(seed: int) -> None:
    paths = one_hot_paths(BENCHMARK)
    order = design_order(paths, design_rank(33, 4), "d_optimal", np.random.default_rng(seed))
    assert np.linalg.matrix_rank(paths[order]) == 30
    assert log_pseudo_determinant(paths[order]) == pytest.approx(18.069729, abs=5e-7)
    assert paths[order[:14]].any(axis=0).all()


@pytest.mark.parametrize("criterion", ["d_optimal", "random"])
@pytest.mark.parametrize("counts", [(1,), (3,), (1, 1), (2, 1, 2)])
def test_small_graphs_are_filled_without_a_warning(
    criterion: Criterion, counts: tuple[int, ...]
) -> None:
    paths = one_hot_paths(counts)
    order = design_order(paths, 7, criterion, np.random.default_rng(0))
    assert len(order) == 7
    assert set(order) == set(range(len(paths))) or len(paths) > 3


def test_the_random_design_runs_every_path_before_one_again() -> None:
    paths = one_hot_paths(TOY)
    order = design_order(paths, 15, "random", np.random.default_rng(0))
    assert sorted(order[:6]) == sorted(order[6:12]) == list(range(6))
    assert order[:6] != order[6:12]
    assert len(set(order[12:])) == 3
