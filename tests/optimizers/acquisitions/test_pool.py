import numpy as np
from flash_worlds import counted_space
from subset_worlds.problems import configuration, cube
from worlds import mixed_space

from prefect_tune.optimizers import Space
from prefect_tune.optimizers.acquisitions.pool import drawn_evenly, moved, pool_around
from prefect_tune.optimizers.methods.fabolas.belief import pipeline_inputs
from prefect_tune.optimizers.space.candidate_space import Candidates
from prefect_tune.optimizers.surrogates.pipeline_inputs import PipelineInputs

LINE = pipeline_inputs(cube())


def moves_from(inputs: PipelineInputs, origin: Candidates, n: int, width: float) -> Candidates:
    origins = origin[np.zeros(n, dtype=np.intp)]
    return moved(inputs, origins, np.full((n, 1), width), np.random.default_rng(0))


def drawn(space: Space, n: int) -> Candidates:
    return drawn_evenly(pipeline_inputs(space), n, np.random.default_rng(0))


def test_a_pool_has_the_best_first_then_half_anywhere_and_half_near_them() -> None:
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


def test_each_model_is_drawn_as_often_as_any_other() -> None:
    # Half of the paths of svm cannot run, so that fewer are drawn from the prior.
    models = drawn(mixed_space(), 60).algorithms[:, -1]
    assert np.bincount(models, minlength=3).tolist() == [20, 20, 20]


def test_moves_stay_in_range_and_do_not_pile_up_at_its_ends() -> None:
    x = moves_from(LINE, LINE.encode([configuration(0.99)]), 400, 0.1).units[:, 0]
    assert 0 <= x.min() <= x.max() <= 1
    assert np.sum(x == 1) == 0
    assert 0.05 < np.std(x) < 0.07  # 0.06 when the steps beyond 1 come back


def test_a_quarter_of_the_moves_take_another_algorithm_with_values_of_its_own() -> None:
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


def test_moves_lead_to_pipelines_that_can_run() -> None:
    space = mixed_space()
    inputs = pipeline_inputs(space)
    origin = drawn_evenly(inputs, 200, np.random.default_rng(1))
    near = moved(inputs, origin, np.full((len(origin), 1), 0.2), np.random.default_rng(2))
    assert 0 < len(near) < len(origin)  # what cannot run was dropped
    configurations = [inputs.candidates.decode(near, row) for row in range(len(near))]
    paths = {c.path for c in configurations if c is not None}
    assert all(space.is_feasible(path) for path in paths)


def test_categories_change_now_and_then() -> None:
    space = mixed_space()
    inputs = pipeline_inputs(space)
    kernel = int(np.flatnonzero(inputs.candidates.columns.sizes > 0)[0])
    svms = drawn(space, 99)
    svm = next(
        c
        for row in range(99)
        if (c := inputs.candidates.decode(svms, row)) is not None and c.path[-1] == "svm"
    )
    origin = inputs.encode([svm])
    near = moves_from(inputs, origin, 400, 0.01)
    kept = near.algorithms[:, 1] == origin.algorithms[0, 1]
    changed = near.units[kept, kernel] != inputs.snapped(origin).units[0, kernel]
    # A quarter is drawn anew, half of which comes out as before.
    assert 0.06 < changed.mean() < 0.25
