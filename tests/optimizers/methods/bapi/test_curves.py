from math import inf

import pytest
from curve_worlds.nets import (
    CURVES,
    T_MAX,
    crashed,
    curve,
    curves_from,
    knn,
    mixed_nets,
    net,
    nets,
    stretch,
)

from prefect_tune.optimizers import Constraint, Evaluation, History, Query, StepCost, Trial
from prefect_tune.optimizers.methods.bapi.curves import curves_of, trains_in_epochs

A, B = net(0.1), net(0.2)


def model(seconds: float, load_seconds: float = 0.0, *, hit: bool = False) -> StepCost:
    return StepCost("model", 0, seconds, load_seconds, hit, "key")


def scaling(seconds: float, *, hit: bool = False) -> StepCost:
    return StepCost("scale", 0, seconds, 0.0, hit, "key")


def test_stretches_are_joined_by_configuration_in_the_order_of_beginning() -> None:
    curves = curves_from(
        stretch(0, B, [9.0, 8.0]), stretch(1, A, [7.0]), stretch(2, B, [9.0, 8.0, 6.0])
    )
    assert list(curves) == [B, A]
    assert curves[B].epochs == (1, 2, 3)
    assert curves[B].losses == (9.0, 8.0, 6.0)
    assert [t.number for t in curves[B].trials] == [0, 2]
    assert (curves[B].done, curves[A].done) == (3, 1)


def test_losses_are_the_least_so_far() -> None:
    one = curve(stretch(0, A, [5.0, 7.0, 4.0, 6.0]))
    assert one.losses == (5.0, 5.0, 4.0, 4.0)
    assert one.loss == 4.0
    assert [one.loss_at(e) for e in (1, 2, 3, 4, 9)] == [5.0, 5.0, 4.0, 4.0, 4.0]


def test_without_a_curve_the_loss_counts_at_the_epochs_asked_for() -> None:
    one = curve(stretch(0, A, 9.0, 2), stretch(1, A, 7.0, 6), stretch(2, A, 8.0))
    assert one.epochs == (2, 6, T_MAX)
    assert one.losses == (9.0, 7.0, 7.0)
    assert one.loss_at(1) == 9.0  # nothing is known before
    assert one.is_closed


def test_a_stretch_under_way_is_pending_and_has_its_target() -> None:
    one = curve(stretch(0, A, [9.0, 8.0]), Trial(1, Query(A, epochs=6)))
    assert one.is_pending
    assert (one.done, one.target) == (2, 6)
    assert not one.is_closed
    new = curve(Trial(0, Query(A)))
    assert (new.done, new.loss, new.target) == (0, inf, T_MAX)
    assert new.loss_at(3) == inf


def test_a_full_training_is_closed() -> None:
    assert not curve(stretch(0, A, [9.0] * (T_MAX - 1))).is_closed
    assert curve(stretch(0, A, [9.0] * T_MAX)).is_closed


def test_a_full_fit_counts_as_all_epochs() -> None:
    one = curve(stretch(0, knn(0.3), 5.0, cost_seconds=8.0), space=mixed_nets())
    assert not one.is_iterative
    assert (one.epochs, one.losses, one.is_closed) == ((T_MAX,), (5.0,), True)
    assert one.rate == 8.0 / T_MAX
    assert trains_in_epochs(net(0.1, scale="none"), mixed_nets(), CURVES)
    assert not trains_in_epochs(knn(0.1), mixed_nets(), CURVES)


def test_what_diverged_is_closed_and_keeps_its_epochs() -> None:
    one = curve(stretch(0, A, [9.0, 8.0, 7.0], 6, trouble="no epoch 4 in fold 0: not finite"))
    assert one.is_closed
    assert one.trouble == "no epoch 4 in fold 0: not finite"
    assert (one.done, one.loss) == (3, 7.0)
    assert not one.has_failed


def test_a_stretch_that_failed_leaves_the_epochs_told_before() -> None:
    one = curve(stretch(0, A, [9.0, 8.0]), crashed(1, A, 6))
    assert one.is_closed
    assert one.has_failed
    assert (one.done, one.loss) == (2, 8.0)


def test_a_stretch_that_is_run_again_is_not_failed_any_more() -> None:
    again = crashed(1, A, 6).waiting()
    assert not curve(stretch(0, A, [9.0, 8.0]), again).is_closed
    ended = curve(stretch(0, A, [9.0, 8.0]), stretch(1, A, [9.0, 8.0, 7.0, 7.0, 7.0, 7.0]))
    assert (ended.done, ended.is_closed, ended.has_failed) == (6, False, False)


def test_seconds_of_an_epoch_are_those_of_the_model_alone() -> None:
    steps = scaling(100.0), model(6.0)
    assert curve(stretch(0, A, [9.0] * 3, steps=steps, cost_seconds=106.0)).rate == 2.0


def test_folds_are_summed() -> None:
    steps = model(6.0), StepCost("model", 1, 3.0, 0.0, hit=False, key="other")
    assert curve(stretch(0, A, [9.0] * 3, steps=steps)).rate == 3.0


def test_without_steps_all_seconds_are_the_models() -> None:
    assert curve(stretch(0, A, [9.0] * 4, cost_seconds=2.0)).rate == 0.5


def test_a_stretch_that_went_on_took_its_seconds_for_new_epochs() -> None:
    first = stretch(0, A, [9.0] * 2, steps=(model(2.0),))
    second = stretch(1, A, [9.0] * 6, steps=(model(8.0),), resumed_from=2)
    assert curve(first, second).rate == pytest.approx(10.0 / 6)
    without_curves = (
        stretch(0, A, 9.0, 2, cost_seconds=2.0),
        stretch(1, A, 9.0, 6, cost_seconds=8.0),
    )
    assert curve(*without_curves).rate == pytest.approx(10.0 / 6)


def test_a_stretch_whose_checkpoint_was_lost_took_its_seconds_for_all_epochs() -> None:
    first = stretch(0, A, [9.0] * 2, steps=(model(2.0),))
    second = stretch(1, A, [9.0] * 6, steps=(model(6.0),), resumed_from=0)
    assert curve(first, second).rate == 1.0


def test_what_was_served_counts_with_the_seconds_that_all_its_epochs_once_took() -> None:
    served = stretch(0, A, [9.0] * 6, steps=(model(12.0, hit=True),), resumed_from=6)
    assert curve(served).rate == 2.0


def test_failures_tell_no_seconds_of_epochs() -> None:
    assert curve(crashed(0, A, 6, at=100.0)).rate is None
    first = stretch(0, A, [9.0] * 2, steps=(model(2.0),))
    assert curve(first, crashed(1, A, 6, at=100.0)).rate == 1.0


def test_a_rate_is_never_zero() -> None:
    rate = curve(stretch(0, A, [9.0] * 2, cost_seconds=0.0)).rate
    assert rate is not None
    assert rate > 0


def test_seconds_before_the_model_are_those_without_a_cache() -> None:
    steps = scaling(3.0), scaling(4.0, hit=True), model(6.0)
    one = curve(stretch(0, A, [9.0], steps=steps))
    assert one.prefix_seconds == 7.0
    assert curve(stretch(0, A, [9.0], steps=(model(6.0),))).prefix_seconds is None
    assert curve(crashed(0, A, 2)).prefix_seconds is None


def test_loads_and_lost_checkpoints_are_of_stretches_that_went_on() -> None:
    first = stretch(0, A, [9.0] * 2, steps=(model(2.0),))
    second = stretch(1, A, [9.0] * 4, steps=(model(2.0, 0.5),), resumed_from=2)
    third = stretch(2, A, [9.0] * 6, steps=(model(6.0),), resumed_from=0)
    one = curve(first, second, third)
    assert one.load_seconds == (0.5,)
    assert one.resumptions == (True, False)


def test_evaluations_of_any_kind_have_a_loss_at_their_end() -> None:
    """As simulations tell them, without curve, steps and folds."""
    trial = Trial(0, Query(A, epochs=4)).started().ended(Evaluation(3.0))
    one = curve(trial)
    assert (one.epochs, one.losses) == ((4,), (3.0,))
    assert one.rate is not None


def test_what_violates_a_constraint_is_closed() -> None:
    history = History([Constraint("latency_us", 50.0)])
    for number, (configuration, latency) in enumerate(((A, 60.0), (B, 40.0))):
        measured = {"latency_us": latency}
        history.record(stretch(number, configuration, [9.0, 8.0], constraints=measured))
    closed = curves_of(history, nets(), CURVES, T_MAX)
    assert [closed[configuration].is_closed for configuration in (A, B)] == [True, False]
