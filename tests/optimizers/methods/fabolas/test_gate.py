from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.optimizers.methods.fabolas.gate import Gate, Prediction

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


def test_it_is_open_before_anything_was_predicted() -> None:
    gate = Gate.of({}, {0: 1.0, 3: 2.0}, 1.0)
    assert gate.is_open
    assert not gate.is_proven


def test_what_came_out_as_predicted_keeps_it_open_and_proves_subsets() -> None:
    for n in range(2, 8):
        gate = judged([0.05] * n)
        assert gate.is_open
        assert gate.is_proven


def test_sure_predictions_that_missed_close_it() -> None:
    gate = judged([0.9, -0.8, 1.0])
    assert not gate.is_open
    assert not gate.is_proven


def test_one_miss_does_not_close_it() -> None:
    assert judged([9.0]).is_open
    assert judged([0.05, 0.05, 0.05, 9.0]).is_open


def test_it_opens_again_when_predictions_get_better_but_not_at_once() -> None:
    misses, hits = [0.9, -0.8, 1.0], [0.05] * 5
    assert not judged([*misses, *hits[:1]]).is_open
    assert judged([*misses, *hits]).is_open


def test_the_first_full_evaluation_is_not_judged_as_there_is_nothing_to_guess_from() -> None:
    predictions = {i: Prediction("verify", 5.0, SURE) for i in range(3)}
    gate = Gate.of(predictions, dict(enumerate(OUTCOMES[:3])), 1.0)
    assert len(gate.skills) == 2


def test_only_full_evaluations_with_a_prediction_and_an_outcome_are_judged() -> None:
    predictions = {i: Prediction("verify", 0.0, SURE) for i in (1, 2, 3)}
    assert len(Gate.of(predictions, {0: 0.1, 1: 0.2, 3: 0.4, 4: 0.5}, 1.0).skills) == 2


def test_full_evaluations_alone_must_be_outdone_once_there_are_a_few() -> None:
    errors = [0.15] * 9
    as_good = judged(errors, alone=[0.0] * 9)
    worse = judged(errors, alone=[3.0] * 9)
    assert sum(as_good.skills[-4:]) < 0 < sum(worse.skills[-4:])
    assert not as_good.is_open
    assert worse.is_open
    # With few of them a process of them alone is not trusted.
    assert as_good.skills[:2] == worse.skills[:2]


@given(st.floats(1e-9, 1e9), st.floats(-1e3, 1e3))
def test_the_unit_of_the_losses_does_not_matter(unit: float, shift: float) -> None:
    errors = [0.4, 0.1, 0.3, 0.2, 0.6]

    def skills(unit: float, shift: float) -> tuple[float, ...]:
        means = [shift + y + e for y, e in zip(OUTCOMES[1:], errors, strict=False)]
        predictions = {
            i: Prediction("verify", unit * m, unit * 0.3, unit * (m + 0.2), unit * 0.4)
            for i, m in enumerate(means, start=1)
        }
        outcomes = {i: unit * (y + shift) for i, y in enumerate(OUTCOMES[:6])}
        return Gate.of(predictions, outcomes, unit).skills

    assert skills(unit, shift) == pytest.approx(skills(1.0, 0.0), abs=1e-4)


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6)), min_size=1, max_size=9))
def test_no_outcome_decides_alone(given_predictions: list[tuple[float, float]]) -> None:
    predictions = {i: Prediction("s", *p) for i, p in enumerate(given_predictions, start=1)}
    skills = Gate.of(predictions, dict(enumerate(OUTCOMES)), 1.0).skills
    assert len(skills) == len(given_predictions)
    assert np.isfinite(skills).all()
    # Two good ones outweigh any one.
    assert max(np.abs(skills)) <= 2.0


def test_what_came_out_later_does_not_change_earlier_verdicts() -> None:
    errors = [0.15, 0.3, 0.1, 0.4, 0.2, 0.1]
    for n in range(1, len(errors)):
        assert judged(errors[:n]).skills == judged(errors).skills[:n]


def test_a_guess_does_not_know_what_it_is_to_guess() -> None:
    # Three deviations off from all before: nearly foreseen by subsets alone.
    gate = Gate.of({1: Prediction("verify", 3.8, 0.4)}, {0: 0.0, 1: 3.0}, 1.0)
    assert gate.skills[0] > 1.5  # below 0 if the guess knew
