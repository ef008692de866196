"""Worlds that methods are measured in: replayed curves and the artificial objective."""

import json

import numpy as np
import pytest
from curve_replay import Replay, Run, objective_of, run
from curve_tables import Table, space_of
from full_trainings import FULL_TRAININGS
from loss_worlds import after_step
from methods_of_table import OF_TABLE, method_of_table

from prefect_tune.optimizers import Query
from prefect_tune.optimizers.space.vectors import CandidateSpace

EPOCHS = 10


@pytest.fixture
def table() -> Table:
    """Sixteen curves that fall, with the least loss before the last epoch, and test losses."""
    rng = np.random.default_rng(0)
    space = space_of("synth0")
    candidates = CandidateSpace(space).sample(16, rng)
    rows = []
    for i in range(16):
        configuration = CandidateSpace(space).decode(candidates, i)
        assert configuration is not None
        losses = 50 - 4 * np.arange(EPOCHS) + rng.uniform(0, 10)
        losses[-1] += 20
        rows.append(
            {
                "configuration": configuration.canonical,
                "losses": losses.tolist(),
                "tests": (losses + 1).tolist(),
                "seconds": (1.0 + rng.random(EPOCHS)).tolist(),
            }
        )
    return Table(space, json.loads(json.dumps(rows)))


def test_a_stretch_tells_the_whole_curve_and_charges_the_new_epochs(table: Table) -> None:
    replay, configuration = Replay(table), table.configurations[3]
    replay(Query(configuration, epochs=4))
    told = replay(Query(configuration))
    assert told.curve == tuple(table.losses[3])
    assert (told.best_epoch, told.loss) == (EPOCHS - 1, table.losses[3, -2])
    assert told.resumed_from == 4
    assert told.cost_seconds == pytest.approx(table.seconds[3, 4:].sum())


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_TABLE)
def test_a_method_begins_rows_of_the_table_alone(table: Table, name: str) -> None:
    optimizer = method_of_table(name, table, 0, objective_of("synth0", table), {})
    run(optimizer, table, 8.0, are_asks_free=True)
    assert optimizer.history.asked <= set(table.configurations)
    if name in FULL_TRAININGS:
        assert all(trial.query.is_full for trial in optimizer.history)


def test_what_was_seen_at_a_share_is_what_was_told_until_then(table: Table) -> None:
    chosen = [[5, 2], [5, 2], [7, 9], [7, 9]]
    ends, asks = [1.0, 5.0, 9.0, 9.5], [0.1, 0.2, 0.3, 0.1]
    seen = Run(10.0, [5, 7, 7, 7], [2, 3, 10, 3], ends, asks, chosen)
    half = seen.at(0.5)
    assert (half.rows, half.epochs, half.chosen) == ([5, 7], [2, 3], (5, 2))
    assert half.least_validated(table) == min(table.losses[5, 1], table.losses[7, 2])
    assert half.test_of_chosen(table) == table.tests[5, 1]
    assert half.ask_seconds == pytest.approx(0.3)
    assert seen.at(1.0).epochs == [2, 10]
    nothing = seen.at(0.05)
    assert (nothing.least_validated(table), nothing.chosen) == (table.losses.max(), None)


def test_worked_values() -> None:
    first = after_step(
        0.0, np.array([0.5, -1.0]), np.array([2.0, 3.0]), np.random.RandomState(7).normal(size=10)
    )
    assert first == pytest.approx(0.701890, abs=1e-6)
    xi = np.random.RandomState(11).normal(size=10)
    w, theta = np.array([1.0, 0.2, -0.3]), np.array([0.5, 1.0, 2.0])
    second = after_step(first, w, theta, xi)
    assert second == pytest.approx(0.751874, abs=1e-6)
    drawn = np.random.RandomState(11).normal(first, abs(w @ theta / theta.sum()), 10)
    assert second == pytest.approx(np.abs(drawn).max())
