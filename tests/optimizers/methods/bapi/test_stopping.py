from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.optimizers.methods.bapi.planning import Verdict, enough_epochs, verdict

W7 = 1 - (0.95 - 0.60 / (1 + np.arange(1, 51) / 5))
"""Losses of the sheet's curve."""


@pytest.mark.parametrize(("epsilon", "epochs"), [(0.01, 42), (0.03, 31)])
def test_worked_epochs_that_are_enough(epsilon: float, epochs: int) -> None:
    """Sheet, W7."""
    assert 1 - W7[-1] == pytest.approx(0.8954545455)
    assert enough_epochs(W7, epsilon) == epochs


def falling(drops: list[float]) -> np.ndarray:
    return 100.0 - np.cumsum([0.0, *drops])


@given(
    st.lists(st.floats(0, 5), min_size=1, max_size=40),
    st.floats(0, 20),
    st.floats(0, 20),
    st.integers(0, 41),
)
def test_enough_is_no_less_with_a_smaller_epsilon_and_not_below_what_is_done(
    drops: list[float], first: float, second: float, done: int
) -> None:
    curve, (small, large) = falling(drops), sorted((first, second))
    done = min(done, len(curve))
    at_small, at_large = enough_epochs(curve, small, done), enough_epochs(curve, large, done)
    assert 1 <= at_large <= at_small <= len(curve)
    assert at_large >= done
    assert curve[at_large - 1] <= curve[-1] + large
    if at_large > max(done, 1):  # one epoch less is not enough
        assert curve[at_large - 2] > curve[-1] + large


def test_a_flat_curve_has_had_enough_after_its_first_epoch() -> None:
    assert enough_epochs(np.full(20, 3.0), 0.0) == 1
    assert enough_epochs(np.full(20, 3.0), 0.0, done=7) == 7


def said(
    done: int = 20, target: int = 40, mean: float = 0.893, best: float = 0.9, **given: float
) -> Verdict:
    deviations = {
        "deviation": 0.0134164,
        "deviation_now": 0.0072111,
        "tau": 2.0,
        "sure": inf,
    } | given
    return verdict(done=done, target=target, mean=mean, best=best, **deviations)


def test_worked_decision_both_ways() -> None:
    """Sheet, W10: with deviations of observations it is stopped, of the latent score it goes on."""
    noise, now, end = 0.006, 0.004, 0.012
    seen_now, seen_end = np.hypot(now, noise), np.hypot(end, noise)
    assert seen_end / seen_now == pytest.approx(1.8605210188)
    assert said(deviation=seen_end, deviation_now=seen_now) == "stopped"
    assert said(deviation=end, deviation_now=now) == "goes on"


def test_what_may_beat_the_best_goes_on_however_certain() -> None:
    assert said(mean=0.9001, deviation=0.0072111) == "goes on"
    assert said(mean=0.9, deviation=0.0072111) == "stopped"


def test_a_larger_tau_stops_sooner() -> None:
    assert said(tau=1.8) == "goes on"
    assert said(tau=1.9) == "stopped"


def test_what_is_sure_not_to_win_is_stopped_however_little_is_noise() -> None:
    almost_known = {"deviation_now": 1e-6}
    assert said(**almost_known) == "goes on"  # 0.52 deviations behind
    assert said(**almost_known, sure=0.5) == "stopped"
    assert said(**almost_known, sure=0.55) == "goes on"
    assert said(**almost_known, mean=0.95, sure=0.0) == "goes on"


def test_what_has_had_enough_is_finished_whatever_is_predicted() -> None:
    assert said(done=40) == "finished"
    assert said(done=41) == "finished"
    assert said(done=40, mean=2.0) == "finished"
