from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.optimizers import Objective
from prefect_tune.optimizers.methods.bapi.learner import ScoreKind, Scores

KINDS: tuple[ScoreKind, ...] = ("log", "raw")
PERCENT = Objective(n_held_out=500)
UNBOUNDED = Objective(metric="rmse", unit="", lower=0.0, upper=inf)
LOSSES = st.lists(st.floats(0, 100), min_size=1, max_size=20)


def both(kind: ScoreKind) -> Scores:
    return Scores.of(PERCENT, kind)


@given(st.sampled_from(KINDS), LOSSES)
def test_the_lower_a_loss_the_higher_its_score(kind: ScoreKind, losses: list[float]) -> None:
    scores = both(kind).of_losses(np.array(losses))
    assert np.all(np.isfinite(scores))
    in_order = np.argsort(losses, kind="stable")
    assert np.all(np.diff(scores[in_order]) <= 0)
    apart = np.diff(np.array(losses)[in_order]) > 1e-6
    assert np.all(np.diff(scores[in_order])[apart] < 0)


@given(st.sampled_from(KINDS), LOSSES)
def test_losses_come_back(kind: ScoreKind, losses: list[float]) -> None:
    scores = both(kind)
    there = scores.of_losses(np.array(losses))
    assert scores.losses(there) == pytest.approx(np.array(losses), abs=1e-9)


@given(st.floats(-20, 20))
def test_no_score_stands_for_a_loss_below_the_least(score: float) -> None:
    assert both("log").losses(np.array([score]))[0] >= 0.0
    shifted = Scores.of(Objective(lower=-1.0, upper=1.0), "log")
    assert shifted.losses(np.array([score]))[0] >= -1.0


def test_raw_scores_are_minus_the_losses() -> None:
    assert both("raw").of_losses(np.array([3.0, -2.0])).tolist() == [-3.0, 2.0]


@pytest.mark.parametrize("kind", KINDS)
def test_losses_without_a_range_are_scored_as_they_are(kind: ScoreKind) -> None:
    assert Scores.of(UNBOUNDED, kind) == Scores()


def test_logarithms_are_of_the_distance_from_the_least_loss_and_half_a_row() -> None:
    assert both("log").of_losses(np.array([0.0])) == pytest.approx(-np.log(0.5 * 100 / 500))
    # The same share of errors is as far apart on any scale.
    unit = Scores.of(Objective(lower=-1.0, upper=0.0, n_held_out=500), "log")
    percent = both("log").of_losses(np.array([10.0, 5.0]))
    assert np.diff(unit.of_losses(np.array([-0.9, -0.95]))) == pytest.approx(np.diff(percent))


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_gain_is_about_so_much_less_loss(kind: ScoreKind) -> None:
    scores, gain = both(kind), np.array([1e-5])
    best = scores.of_losses(np.array([8.0]))
    less = 8.0 - scores.losses(best + gain)
    assert scores.loss_of_gain(gain, float(best[0])) == pytest.approx(less, rel=1e-3)
