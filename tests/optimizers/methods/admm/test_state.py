"""The scales that ADMM works with, and its memo."""

import json

import numpy as np
import pytest
from worlds import mixed_space

from prefect_tune.optimizers import (
    Constraint,
    Evaluation,
    Failure,
    FailureKind,
    History,
    Objective,
    Query,
    Trial,
)
from prefect_tune.optimizers.methods.admm.splitting import constraint_penalty
from prefect_tune.optimizers.methods.admm.state import AdmmState, observations
from prefect_tune.optimizers.space.configuration import default_configuration


def history_of(*losses: float | None, sizes: tuple[float, ...] = ()) -> History:
    history = History()
    query = Query(default_configuration(mixed_space(), ("none", "tree")))
    for number, loss in enumerate(losses):
        started = Trial(number, query).started()
        if loss is None:
            history.record(started.failed(Failure(FailureKind.ERROR, "it failed")))
            continue
        measured = {"size": sizes[number]} if number < len(sizes) else {}
        outcome = Evaluation(loss, (loss,), constraints=measured)
        history.record(started.completed(outcome))
    return history


def test_losses_are_shares_of_the_metrics_range() -> None:
    objective = Objective("x", "", 20.0, 60.0)
    observed = observations(history_of(20.0, 30.0, None), objective, "bound", 0.7, 0.0)
    assert observed.losses == pytest.approx([0.0, 0.25, 1.0])
    assert observed.worst_reward_loss == 0.7


@pytest.mark.parametrize(("chance", "worst"), [(None, 0.7 * 8 / 4), (9.0, 8.0 / 4)])
def test_without_a_range_they_are_distances_from_the_best_in_quartile_ranges(
    chance: float | None, worst: float
) -> None:
    objective = Objective("x", "", -np.inf, np.inf, chance)
    observed = observations(history_of(1.0, 3.0, 5.0, 7.0, 9.0), objective, "worst", 0.7, 0.0)
    assert observed.losses == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0])
    assert observed.worst_reward_loss == pytest.approx(worst)


def limited(bound: float) -> Objective:
    return Objective("x", "", 0.0, 1.0, constraints=(Constraint("size", bound),))


def test_quantities_are_in_units_of_their_bounds_and_what_was_not_measured_is_twice_it() -> None:
    history = history_of(0.5, 0.5, 0.5, None, sizes=(10.0, 60.0))
    observed = observations(history, limited(20.0), "bound", 0.7, 0.1)
    assert observed.quantities[:, 0] == pytest.approx([0.5, 3.0, 2.0, 2.0])
    assert observed.bounds == pytest.approx([0.9])


def test_a_bound_of_zero_takes_a_typical_value_as_its_unit() -> None:
    observed = observations(
        history_of(0.5, 0.5, 0.5, sizes=(0.0, 4.0, 8.0)), limited(0.0), "bound", 0.7, 0.0
    )
    assert observed.quantities[:, 0] == pytest.approx([0.0, 4 / 6, 8 / 6])
    assert observed.bounds == pytest.approx([0.0])


def test_a_bound_that_nothing_exceeds_is_idle() -> None:
    history = history_of(0.5, 0.6, None, sizes=(10.0, 20.0))
    observed = observations(history, limited(20.0), "bound", 0.7, 0.1)
    assert not observed.quantities.any()
    assert observed.augmented(AdmmState(), 10.0) == pytest.approx(observed.losses)


def test_the_augmented_loss_adds_the_penalty_of_each_constraint() -> None:
    observed = observations(
        history_of(0.5, 0.6, sizes=(10.0, 60.0)), limited(20.0), "bound", 0.7, 0.0
    )
    state = AdmmState(mu={"size<=20.0": 2.0})
    penalties = constraint_penalty(np.array([0.5, 3.0]), 1.0, 2.0, 10.0)
    assert observed.augmented(state, 10.0) == pytest.approx(np.array([0.5, 0.6]) + penalties)
    assert observed.multipliers(AdmmState()) == pytest.approx([0.0])


def test_the_memo_is_json_and_a_copy() -> None:
    state = AdmmState(path=("a",), tuned=[("a",)], theta=[1.0], fitted=7)
    document = state.to_json()
    assert AdmmState.from_json(json.loads(json.dumps(document))) == state
    state.tuned.append(("b",))
    state.units["0"] = 0.5
    assert document["tuned"] == [["a"]]
    assert document["units"] == {}


def test_memos_of_studies_begun_before_are_read() -> None:
    document = AdmmState(theta=[1.0]).to_json()
    del document["fitted"]
    assert AdmmState.from_json(document).fitted == 0
