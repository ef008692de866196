"""Acquisitions, and the search for the best candidates."""

from typing import Any

import numpy as np
import pytest
from ConfigSpace import Categorical, Float, Integer
from ConfigSpace.hyperparameters import Hyperparameter
from subset_worlds import configuration, cube
from worlds import counted_space, mixed_space, one_algorithm

from prefect_tune.optimizers import Configuration
from prefect_tune.optimizers.methods.fabolas.belief import pipeline_inputs
from prefect_tune.optimizers.models.inputs import PipelineInputs
from prefect_tune.optimizers.search.maximize import (
    GaussianSearch,
    drawn_evenly,
    maximize,
    moved,
    pool_around,
)
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.space.vectors import Candidates


def test_known_configurations_are_skipped_and_the_order_is_kept() -> None:
    search, rng = GaussianSearch(counted_space((2, 2), 1)), np.random.default_rng(0)
    drawn = [sample_configuration(search.space, rng) for _ in range(6)]
    asked = {drawn[0], drawn[3]}
    ranked = search.inputs.encode(drawn)
    assert list(search.candidates.new_configurations(ranked, asked)) == [
        drawn[i] for i in (1, 2, 4, 5)
    ]


class Peak:
    """An acquisition with its maximum at one point of the inputs."""

    def __init__(self, at: np.ndarray) -> None:
        self.at = at

    def score(self, inputs: np.ndarray, penalties: np.ndarray) -> np.ndarray:
        return -((inputs - self.at) ** 2).sum(axis=1) - penalties

    def score_with_gradient(self, inputs, penalties) -> tuple[np.ndarray, np.ndarray]:
        return self.score(inputs, penalties), -2 * (inputs - self.at)


def search_of(*hyperparameters: Hyperparameter[Any, Any]) -> GaussianSearch:
    return GaussianSearch(one_algorithm(*hyperparameters))


def best_for(search: GaussianSearch, at: list[float], *seen: dict[str, object]) -> Candidates:
    configurations = [Configuration.of(search.space, ("a",), [values]) for values in seen]
    observed = search.inputs.encode(configurations)
    peak = Peak(np.array(at))
    ranked = maximize(peak, search.inputs, observed, np.random.default_rng(0))  # type: ignore[arg-type]
    return ranked[:1]


def test_numbers_are_polished_to_the_peak_and_neighboring_integers_tried() -> None:
    search = search_of(*(Float(f"x{i}", (0.0, 1.0)) for i in range(6)))
    at = [0.11, 0.93, 0.57, 0.71, 0.33, 0.05]
    best = best_for(search, at, {f"x{i}": 0.5 for i in range(6)})
    assert best.units[0] == pytest.approx(at, abs=1e-4)
    others = [Float(f"x{i}", (0.0, 1.0)) for i in range(4)]
    search = search_of(Integer("a_k", (1, 5000)), *others)
    at = [(700 - 1) / 4999, 0.5, 0.5, 0.5, 0.5]
    seen = {f"x{i}": 0.5 for i in range(4)}
    for beside in (699, 701):
        best = best_for(search, at, {"a_k": beside, **seen})
        found = search.candidates.decode(best, 0)
        assert dict(found["s"].values)["a_k"] == 700


def test_other_categories_are_tried_with_the_numbers_of_the_best_candidate() -> None:
    kind = 611
    numbers = [Float(f"x{i}", (0.0, 1.0)) for i in range(4)]
    search = search_of(Categorical("a_kind", [f"c{i}" for i in range(1200)]), *numbers)
    at = [*np.eye(1200)[kind] / np.sqrt(2), 0.2, 0.4, 0.6, 0.8]
    best = best_for(search, at, {"a_kind": "c7", **{f"x{i}": 0.2 + 0.2 * i for i in range(4)}})
    found = search.candidates.decode(best, 0)
    assert dict(found["s"].values)["a_kind"] == f"c{kind}"
    assert best.units[0][1:] == pytest.approx([0.2, 0.4, 0.6, 0.8], abs=1e-3)


def test_penalties_apply_in_every_round_of_the_search() -> None:
    search = search_of(Integer("a_k", (1, 100)), Float("x", (0.0, 1.0)))
    middle = Configuration.of(search.space, ("a",), [{"a_k": 50, "x": 0.5}])
    observed = search.inputs.encode([middle])

    def penalty(candidates: Candidates) -> np.ndarray:
        return 100.0 * (np.abs(candidates.units[:, 0] - 0.3) > 0.006)

    peak = Peak(np.array([0.9, 0.5]))
    rng = np.random.default_rng(0)
    ranked = maximize(peak, search.inputs, observed, rng, penalty=penalty)  # type: ignore[arg-type]
    assert ranked.units[0][0] == pytest.approx(0.3, abs=0.006)


LINE = pipeline_inputs(cube())


def moves_from(inputs: PipelineInputs, origin: Candidates, n: int, width: float) -> Candidates:
    origins = origin[np.zeros(n, dtype=np.intp)]
    return moved(inputs, origins, np.full((n, 1), width), np.random.default_rng(0))


def test_pool_has_the_best_then_uniform_points_then_points_near_the_best() -> None:
    best = LINE.encode([configuration(0.2), configuration(0.8)])
    pool = pool_around(LINE, best, 200, np.random.default_rng(0))
    x = pool.units[:, 0]
    assert len(pool) == 202
    assert x[:2].tolist() == [0.2, 0.8]
    anywhere, near = x[2:102], x[102:]
    assert np.histogram(anywhere, 4, (0, 1))[0].min() >= 12  # 25 each, less 3 deviations
    from_best = np.minimum(np.abs(near - 0.2), np.abs(near - 0.8))
    # Deviations are 0.01 to 0.2, with as many of each magnitude.
    assert np.median(from_best) < 0.06
    assert from_best.max() > 0.1


def test_models_are_drawn_equally_often_and_moves_stay_in_range() -> None:
    # Half of the paths of svm cannot run, so that fewer are drawn from the prior.
    drawn = drawn_evenly(pipeline_inputs(mixed_space()), 60, np.random.default_rng(0))
    models = drawn.algorithms[:, -1]
    assert np.bincount(models, minlength=3).tolist() == [20, 20, 20]
    x = moves_from(LINE, LINE.encode([configuration(0.99)]), 400, 0.1).units[:, 0]
    assert 0 <= x.min() <= x.max() <= 1
    assert np.sum(x == 1) == 0
    assert 0.05 < np.std(x) < 0.07  # 0.06 when the steps beyond 1 come back


def test_quarter_of_the_moves_changes_an_algorithm_with_all_hyperparameters() -> None:
    space = counted_space((3,))
    inputs = pipeline_inputs(space)
    origin = Candidates(np.array([[1]]), np.full((1, 3), 0.5))
    near = moves_from(inputs, origin, 400, 0.01)
    switched = near.algorithms[:, 0] != 1
    assert 0.18 < switched.mean() < 0.32
    assert set(near.algorithms[switched, 0]) == {0, 2}
    assert np.abs(near.units[~switched, 1] - 0.5).max() < 0.05
    rows = np.flatnonzero(switched)
    assert np.std(near.units[rows, near.algorithms[rows, 0]]) > 0.2


def test_moves_lead_only_to_feasible_pipelines() -> None:
    space = mixed_space()
    inputs = pipeline_inputs(space)
    origin = drawn_evenly(inputs, 200, np.random.default_rng(1))
    near = moved(inputs, origin, np.full((len(origin), 1), 0.2), np.random.default_rng(2))
    assert 0 < len(near) < len(origin)  # what cannot run was dropped
    configurations = [inputs.candidates.decode(near, row) for row in range(len(near))]
    paths = {c.path for c in configurations if c is not None}
    assert all(space.is_feasible(path) for path in paths)
