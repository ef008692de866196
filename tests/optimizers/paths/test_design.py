import numpy as np
import pytest
from flash_worlds import BENCHMARK, FIRST_THIRTY, TOY, one_hot_paths

from prefect_tune.optimizers.paths.table import Criterion, design_order, design_rank


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


def test_the_cumulative_determinants_are_the_worked_ones() -> None:
    paths = one_hot_paths(BENCHMARK)
    expected = {
        2: 2.772589,
        4: 5.4161,
        8: 10.109526,
        14: 15.950773,
        20: 20.449449,
        25: 21.994592,
        29: 19.965931,
        30: 18.069729,
    }
    for n, value in expected.items():
        assert log_pseudo_determinant(paths[FIRST_THIRTY[:n]]) == pytest.approx(value, abs=5e-7)


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
