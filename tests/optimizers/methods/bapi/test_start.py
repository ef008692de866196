"""The first trainings of BAPI, and when a training ends."""

from collections.abc import Mapping
from math import inf

import numpy as np
import pytest
from curve_worlds.nets import (
    CURVES,
    T_MAX,
    crashed,
    curves_from,
    knn,
    mixed_nets,
    net,
    nets,
    stretch,
)
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.optimizers import Configuration, History, Query, Trial
from prefect_tune.optimizers.methods.bapi.curves import curves_of
from prefect_tune.optimizers.methods.bapi.planning import Verdict, enough_epochs, verdict
from prefect_tune.optimizers.methods.bapi.turn import Design, Step, size_of_start
from prefect_tune.optimizers.methods.rungs import Begin, Done, GoOn, Wait


def loss_of(configuration: Configuration) -> float:
    return 10 + dict(configuration["model"].values)["level"]  # type: ignore[operator]


def told(history: History, configuration: Configuration, epochs: int) -> None:
    history.record(stretch(len(history), configuration, [loss_of(configuration)] * epochs))


def run(design: Design, levels: list[float]) -> list[tuple[float, int]]:
    """What the design asks for, one after the other: levels and epochs."""
    history, asked = History(), []
    free = list(levels)
    while not isinstance(step := next_step(design, history), Done):
        assert not isinstance(step, Wait)
        configuration = net(free.pop(0)) if isinstance(step, Begin) else step.configuration
        asked.append((loss_of(configuration) - 10, step.level))
        told(history, configuration, step.level)
    return asked


def next_step(design: Design, history: History, *, may_begin: bool = True) -> Step:
    curves = curves_of(history, nets(), CURVES, T_MAX)
    return design.next(curves, may_begin=may_begin)


@pytest.mark.parametrize(
    ("n", "t_max", "epochs", "counts"),
    [
        (27, 50, (2, 6, 18), (27, 9, 3)),
        (15, 50, (2, 6, 18), (15, 5, 1)),
        (5, 50, (2, 6), (5, 1)),
        (2, 50, (2,), (2,)),
        (27, 6, (2,), (27,)),
        (27, 5, (2,), (27,)),
    ],
)
def test_rungs_of_a_halving(
    n: int, t_max: int, epochs: tuple[int, ...], counts: tuple[int, ...]
) -> None:
    """Sheet, 7.6, for the first of them."""
    assert Design.halving(n, t_max) == Design(epochs, counts)


def test_random_ones_are_followed_by_the_best_in_full() -> None:
    design = Design.random(5, 50, 10)
    assert design == Design((10, 50), (5, 1))
    assert Design.random(5, 50, 50) == Design((50,), (5,))
    levels = [0.5, 0.2, 0.9, 0.3, 0.4]
    asked = run(Design((4, T_MAX), (5, 1)), levels)
    assert asked == [*((pytest.approx(level), 4) for level in levels), (pytest.approx(0.2), T_MAX)]


def test_the_best_third_goes_on_and_of_that_the_best_third() -> None:
    levels = [((7 * i) % 27) / 27 for i in range(27)]
    asked = run(Design((2, 6, 18), (27, 9, 3)), levels)
    assert [epochs for _, epochs in asked] == [2] * 27 + [6] * 9 + [18] * 3
    best = sorted(levels)
    assert sorted(level for level, e in asked if e == 6) == pytest.approx(best[:9])
    assert sorted(level for level, e in asked if e == 18) == pytest.approx(best[:3])


THREE = Design((2, 6), (3, 1))


def steps_after(*trials: Trial, may_begin: bool = True) -> Step:
    curves = curves_from(*trials, space=mixed_nets())
    return THREE.next(curves, may_begin=may_begin)


def of(number: int, level: float, *losses: float) -> Trial:
    return stretch(number, net(level, scale="none"), losses)


def test_a_rung_waits_for_all_that_are_under_way() -> None:
    pending = Trial(2, Query(net(0.3, scale="none"), epochs=2))
    assert steps_after(of(0, 0.1, 9.0, 8.0), of(1, 0.2, 9.0, 7.0), pending) == Wait()
    ended = of(2, 0.3, 9.0, 9.0)
    assert steps_after(of(0, 0.1, 9.0, 8.0), of(1, 0.2, 9.0, 7.0), ended) == GoOn(
        net(0.2, scale="none"), 6
    )


def test_full_fits_take_no_place_of_those_that_go_on() -> None:
    """They have their final loss, which a few epochs of others are no match for."""
    fitted = stretch(2, knn(0.1), 1.0)
    step = steps_after(of(0, 0.1, 9.0, 8.0), of(1, 0.2, 9.0, 7.0), fitted)
    assert step == GoOn(net(0.2, scale="none"), 6)


def test_what_failed_does_not_go_on_and_nothing_waits_for_it() -> None:
    failed = crashed(1, net(0.2, scale="none"), 2)
    step = steps_after(of(0, 0.1, 9.0, 8.0), failed, of(2, 0.3, 9.0, 9.0))
    assert step == GoOn(net(0.1, scale="none"), 6)
    done = [crashed(i, net(0.1 * i, scale="none"), 2) for i in range(3)]
    assert steps_after(*done) == Done()


def test_ranks_are_those_at_the_epochs_of_the_rung() -> None:
    ahead = of(0, 0.1, 9.0, 8.0, 1.0, 1.0)
    assert steps_after(ahead, of(1, 0.2, 9.0, 7.0), of(2, 0.3, 9.0, 9.0)) == GoOn(
        net(0.2, scale="none"), 6
    )


def test_what_stops_short_of_a_rung_is_gone_on_with() -> None:
    assert steps_after(of(0, 0.1, 9.0)) == Begin(2)
    assert steps_after(of(0, 0.1, 9.0), may_begin=False) == GoOn(net(0.1, scale="none"), 2)


def test_where_none_may_begin_the_start_has_those_that_were_begun() -> None:
    begun = of(0, 0.1, 9.0, 8.0), of(1, 0.2, 9.0, 7.0)
    assert steps_after(*begun) == Begin(2)
    # A third of two is less than one, but the best one goes on.
    assert steps_after(*begun, may_begin=False) == GoOn(net(0.2, scale="none"), 6)


def waiting(*trials: Trial) -> set[Configuration]:
    curves: Mapping[Configuration, object] = curves_from(*trials, space=mixed_nets())
    return THREE.waiting(curves)  # type: ignore[arg-type]


def test_its_own_wait_until_the_start_is_over_and_nobody_after_it() -> None:
    own = of(0, 0.1, 9.0, 8.0), of(1, 0.2, 9.0, 7.0), of(2, 0.3, 9.0, 9.0)
    extra = of(3, 0.4, 9.0, 9.0)
    assert waiting(*own, extra) == {t.query.configuration for t in own}
    last = of(4, 0.2, 9.0, 7.0, 6.0, 6.0, 6.0, 6.0)
    assert waiting(*own, extra, last) == set()


def test_what_was_begun_after_it_is_none_of_its_business() -> None:
    own = of(0, 0.1, 9.0, 8.0), of(1, 0.2, 9.0, 7.0), of(2, 0.3, 9.0, 9.0)
    better = of(3, 0.4, 1.0, 1.0)
    assert steps_after(*own, better) == GoOn(net(0.2, scale="none"), 6)


@pytest.mark.parametrize(
    ("n_epochs", "n_configurations", "size"),
    [
        (None, None, 27),
        (1e6, None, 27),
        (378.0, None, 27),  # three times 27 x 2 + 9 x 4 + 3 x 12 epochs
        (185.0, None, 9),
        (125.0, None, 6),
        (59.0, None, 3),
        (None, 54, 27),
        (None, 53, 15),
        (None, 12, 9),
        (None, 4, 3),
        (None, 0, 1),
        (1e6, 20, 9),
    ],
)
def test_the_smaller_a_budget_the_smaller_its_start(
    n_epochs: float | None, n_configurations: int | None, size: int
) -> None:
    assert size_of_start(n_epochs, n_configurations, 50) == size


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
