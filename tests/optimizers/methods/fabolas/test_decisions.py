"""The gate, how configurations stand, and what is said of it."""

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from subset_worlds import belief_of, configuration, cube, history_of, position, seen_of
from worlds import evaluation

from prefect_tune.optimizers import Constraint, History, Query, Trial
from prefect_tune.optimizers.methods.fabolas.belief import pipeline_inputs
from prefect_tune.optimizers.methods.fabolas.decisions import AnswerStanding, Gate, Prediction
from prefect_tune.optimizers.methods.fabolas.recipe import LOG_LOSS, Acquisition, SearchRecipe

SURE = 0.1
OUTCOMES = (0.0, 1.5, -1.2, 0.8, -0.6, 1.1, -1.4, 0.3, 1.3, -0.9)
"""Of full evaluations in the order of asking, with a spread of 1."""


def judged(errors: Sequence[float], *, alone: Sequence[float] | None = None) -> Gate:
    """The verdict when full evaluations come out so far from what was predicted of them.

    The first full evaluation has no prediction; `alone` are the errors without subsets.
    """
    predictions = {
        i: Prediction(
            "verify",
            OUTCOMES[i] + error,
            SURE,
            *(() if alone is None else (OUTCOMES[i] + alone[i - 1], SURE)),
        )
        for i, error in enumerate(errors, start=1)
    }
    outcomes = dict(enumerate(OUTCOMES[: len(errors) + 1]))
    return Gate.of(predictions, outcomes, 1.0)


def test_the_gate_closes_on_several_misses_and_opens_again() -> None:
    for n in range(2, 8):
        gate = judged([0.05] * n)
        assert gate.is_open
        assert gate.is_proven
    gate = judged([0.9, -0.8, 1.0])
    assert not gate.is_open
    assert not gate.is_proven
    assert judged([9.0]).is_open
    assert judged([0.05, 0.05, 0.05, 9.0]).is_open
    misses, hits = [0.9, -0.8, 1.0], [0.05] * 5
    assert not judged([*misses, *hits[:1]]).is_open
    assert judged([*misses, *hits]).is_open


def test_the_first_full_evaluation_is_not_judged_as_there_is_nothing_to_guess_from() -> None:
    predictions = {i: Prediction("verify", 5.0, SURE) for i in range(3)}
    gate = Gate.of(predictions, dict(enumerate(OUTCOMES[:3])), 1.0)
    assert len(gate.skills) == 2


def test_full_evaluations_alone_must_be_outdone_once_there_are_a_few() -> None:
    errors = [0.15] * 9
    as_good = judged(errors, alone=[0.0] * 9)
    worse = judged(errors, alone=[3.0] * 9)
    assert sum(as_good.skills[-4:]) < 0 < sum(worse.skills[-4:])
    assert not as_good.is_open
    assert worse.is_open
    # With few of them a process of them alone is not trusted.
    assert as_good.skills[:2] == worse.skills[:2]


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6)), min_size=1, max_size=9))
def test_no_outcome_decides_alone(given_predictions: list[tuple[float, float]]) -> None:
    predictions = {i: Prediction("s", *p) for i, p in enumerate(given_predictions, start=1)}
    skills = Gate.of(predictions, dict(enumerate(OUTCOMES)), 1.0).skills
    assert len(skills) == len(given_predictions)
    assert np.isfinite(skills).all()
    # Two good ones outweigh any one.
    assert max(np.abs(skills)) <= 2.0


def test_verdicts_know_nothing_of_what_came_out_later() -> None:
    errors = [0.15, 0.3, 0.1, 0.4, 0.2, 0.1]
    for n in range(1, len(errors)):
        assert judged(errors[:n]).skills == judged(errors).skills[:n]
    gate = Gate.of({1: Prediction("verify", 3.8, 0.4)}, {0: 0.0, 1: 3.0}, 1.0)
    assert gate.skills[0] > 1.5  # below 0 if the guess knew


LINE = pipeline_inputs(cube())


def standing_of(history: History, kappa: float = 0.0) -> AnswerStanding:
    belief = belief_of(history, parameters={"lengthscale 0": -1.0})
    return AnswerStanding.of(belief, seen_of(history), LINE, history, kappa)


def places(standing: AnswerStanding) -> list[float]:
    return [position(t.query)[0] for t in standing.trials]


def test_configurations_are_ranked_once_by_what_is_predicted_and_how_surely() -> None:
    # On the small subset 0.9 has the least loss, as all losses are higher there.
    history = history_of((0.1, 1.0, 1.0, 9.0), (0.9, 1 / 256, 1.3, 1.0), (0.5, 1.0, 3.0, 9.0))
    standing = standing_of(history)
    assert len(standing) == 3
    assert standing.mean.tolist() == sorted(standing.mean)
    assert places(standing).index(0.1) < places(standing).index(0.5)
    assert standing.candidates.units[:, 0].tolist() == pytest.approx(places(standing))
    history = history_of((0.1, 1.0, 1.02, 9.0), (0.9, 1 / 256, 1.0, 1.0), (0.5, 1 / 256, 3.0, 1.0))
    sure, unsure = standing_of(history, kappa=3.0), standing_of(history, kappa=-3.0)
    assert places(sure)[0] == 0.1
    assert places(unsure)[0] != 0.1
    bounds = sure.mean + 3 * sure.deviation
    assert bounds.tolist() == sorted(bounds)
    history = history_of(
        (0.3, 1 / 64, 2.0, 1.0), (0.7, 1 / 64, 4.0, 1.0), (0.3, 0.5, 1.5, 5.0), (0.3, 0.5, 1.0, 5.0)
    )
    standing = standing_of(history)
    assert sorted(places(standing)) == [0.3, 0.7]
    assert {t.number for t in standing.trials} == {1, 2}  # of equals the one asked for first


def test_what_failed_on_all_rows_does_not_stand_and_on_a_subset_by_more_rows() -> None:
    history = history_of(
        (0.3, 1 / 64, 0.0, 1.0), (0.7, 1 / 64, 4.0, 1.0), (0.3, 1.0, None, 9.0), (0.9, 1, 5.0, 9.0)
    )
    assert sorted(places(standing_of(history))) == [0.7, 0.9]
    history = history_of((0.3, 1 / 64, None, 1.0), (0.3, 0.5, 0.1, 5.0), (0.7, 0.5, 4.0, 5.0))
    standing = standing_of(history)
    assert [t.number for t in standing.trials] == [1, 2]


def test_what_exceeds_a_limit_does_not_stand() -> None:
    history = History((Constraint("seconds", 1.0),))
    for number, (x, seconds) in enumerate([(0.2, 5.0), (0.8, 0.5), (0.5, 0.5)]):
        ended = Trial(number, Query(configuration(x))).started().ended(evaluation(0.1 + x))
        history.record(ended.measured({"seconds": seconds}))
    assert sorted(places(standing_of(history))) == [0.5, 0.8]


def test_a_prediction_is_of_all_rows_and_of_the_function_without_its_noise() -> None:
    history = history_of((0.1, 1.0, 1.0, 9.0), (0.9, 1 / 256, 1.3, 1.0), (0.5, 0.5, 3.0, 9.0))
    standing = standing_of(history)
    at_one = LINE.at(standing.candidates, 1.0)
    belief = belief_of(history, parameters={"lengthscale 0": -1.0})
    mean, deviation = belief.predict(at_one)
    np.testing.assert_allclose(standing.mean, mean)
    np.testing.assert_allclose(standing.deviation, deviation)


@pytest.mark.parametrize(
    ("acquisition", "has_costs"),
    [
        ("gain_per_cost", True),
        ("divergence_per_cost", True),
        ("gain", False),
        ("improvement", False),
    ],
)
def test_seconds_are_learned_where_they_divide(acquisition: Acquisition, has_costs: bool) -> None:
    recipe = SearchRecipe(log_basis=LOG_LOSS, raw_basis=LOG_LOSS, acquisition=acquisition)
    assert recipe.has_costs is has_costs


def test_predictions_come_back_from_a_memo_rounded_but_never_to_nothing() -> None:
    first = Prediction("verify", -1.25, 0.5)
    second = Prediction("confirm", 2.0, 0.25, 1.5, 0.125)
    memo = json.loads(json.dumps({"full": {"7": first.to_json(), "12": second.to_json()}}))
    assert Prediction.all_of(memo) == {7: first, 12: second}
    assert Prediction.all_of({}) == {}
    kept = Prediction("search", 1 / 3, 2e-11 / 3, 1e9 / 7, 100 / 3).to_json()
    assert kept == ["search", 0.333333333, 6.66666667e-12, 142857143.0, 33.3333333]
