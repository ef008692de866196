"""Learning curves, the points used for fitting, and the fitted models."""

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest
from curve_worlds import (
    CURVES,
    T_MAX,
    at,
    crashed,
    curve,
    curves_from,
    knn,
    mixed_nets,
    net,
    nets,
    stretch,
)
from worlds import recorded

from prefect_tune.optimizers import Configuration, Constraint, Objective, Query, StepCost, Trial
from prefect_tune.optimizers.methods.bapi.belief import CurveBelief, CurveLearner, Scores
from prefect_tune.optimizers.methods.bapi.curves import LearningCurve, chosen_epochs, curves_of
from prefect_tune.optimizers.methods.declarations import BapiOptions
from prefect_tune.optimizers.models.curve_kernel import Decay

A, B = net(0.1), net(0.2)
FAST = {"latency_us": 40.0}


def model(seconds: float, *, hit: bool = False) -> StepCost:
    return StepCost("model", 0, seconds, 0.0, hit, "key")


def test_partial_training_runs_are_joined_with_the_least_loss_so_far() -> None:
    curves = curves_from(
        stretch(0, B, [9.0, 8.0]),
        stretch(1, A, [5.0, 7.0, 4.0, 6.0]),
        stretch(2, B, [9.0, 8.0, 6.0]),
    )
    assert list(curves) == [B, A]
    assert (curves[B].epochs, curves[B].losses) == ((1, 2, 3), (9.0, 8.0, 6.0))
    assert curves[A].losses == (5.0, 5.0, 4.0, 4.0)
    assert [curves[A].loss_at(e) for e in (1, 3, 9)] == [5.0, 4.0, 4.0]
    one = curve(stretch(0, A, 9.0, 2), stretch(1, A, 7.0, 6), stretch(2, A, 8.0))
    assert (one.epochs, one.losses) == ((2, 6, T_MAX), (9.0, 7.0, 7.0))
    assert one.loss_at(1) == 9.0  # nothing is known before
    infinite = curve(stretch(0, A, [9.0, 8.0, float("nan"), 1.0]))
    assert (infinite.epochs, infinite.losses) == ((1, 2), (9.0, 8.0))


def test_running_trial_is_pending_and_a_full_fit_counts_as_all_epochs() -> None:
    one = curve(stretch(0, A, [9.0, 8.0]), Trial(1, Query(A, epochs=6)))
    assert (one.is_pending, one.done, one.target, one.is_closed) == (True, 2, 6, False)
    new = curve(Trial(0, Query(A)))
    assert (new.done, new.loss, new.target) == (0, inf, T_MAX)
    one = curve(stretch(0, knn(0.3), 5.0, cost_seconds=8.0))
    assert not one.is_iterative
    assert (one.epochs, one.losses, one.is_closed) == ((T_MAX,), (5.0,), True)
    assert one.rate == 8.0 / T_MAX


@pytest.mark.parametrize(
    ("trials", "is_closed", "has_failed"),
    [
        ((stretch(0, A, [9.0, 8.0], 6, trouble="no epoch 3", constraints=FAST),), True, False),
        ((stretch(0, A, [9.0, 8.0], constraints=FAST), crashed(1, A, 6)), True, True),
        ((stretch(0, A, [9.0, 8.0], constraints=FAST), crashed(1, A, 6).waiting()), False, False),
        ((stretch(0, A, [9.0, 8.0], constraints={"latency_us": 60.0}),), True, False),
        ((stretch(0, A, [9.0, 8.0], constraints=FAST),), False, False),
    ],
)
def test_diverged_infeasible_or_failed_curves_are_closed_and_keep_trained_epochs(
    trials: tuple[Trial, ...], is_closed: bool, has_failed: bool
) -> None:
    history = recorded(*trials, constraints=[Constraint("latency_us", 50.0)])
    (one,) = curves_of(history, nets(), CURVES, T_MAX).values()
    assert (one.is_closed, one.has_failed) == (is_closed, has_failed)
    assert (one.done, one.loss) == (2, 8.0)


SCALING = StepCost("scale", 0, 100.0, 0.0, hit=False, key="key")
TWO = stretch(0, A, [9.0] * 2, steps=(model(2.0),))


@pytest.mark.parametrize(
    ("trials", "rate"),
    [
        ((stretch(0, A, [9.0] * 3, steps=(SCALING, model(6.0)), cost_seconds=106.0),), 2.0),
        ((TWO, stretch(1, A, [9.0] * 6, steps=(model(8.0),), resumed_from=2)), 10.0 / 6),
        ((TWO, stretch(1, A, [9.0] * 6, steps=(model(6.0),), resumed_from=0)), 1.0),
        # Without curves the seconds of trials count.
        (
            (stretch(0, A, 9.0, 2, cost_seconds=2.0), stretch(1, A, 9.0, 6, cost_seconds=8.0)),
            10 / 6,
        ),
        ((stretch(0, A, [9.0] * 6, steps=(model(12.0, hit=True),), resumed_from=6),), 2.0),
        ((crashed(0, A, 6),), None),
        ((TWO, crashed(1, A, 6)), 1.0),
    ],
)
def test_seconds_per_epoch_count_only_the_model_and_new_epochs(
    trials: tuple[Trial, ...], rate: float | None
) -> None:
    assert curve(*trials).rate == (None if rate is None else pytest.approx(rate))


OF_TIME = Decay()
OF_TIME_THETA = np.log([0.5, 1.0, 1.0, 0.3])
NOISE = 0.001


def test_selected_points_of_a_curve_match_the_worked_example() -> None:
    """With 20 of 50 epochs trained, the last, first and seventh points are taken."""
    t = np.arange(1, 21) / 50
    covariance = OF_TIME.covariance(OF_TIME_THETA, t, t)
    left = np.diag(covariance) - covariance[-1] ** 2 / (covariance[-1, -1] + NOISE)
    assert left[[0, 4]] == pytest.approx([0.2963401, 0.1104717], abs=1e-6)
    for n_points, points in ((3, [1, 7, 20]), (2, [1, 20]), (1, [20])):
        epochs = list(range(1, 21))
        known = {"of_time": OF_TIME, "theta": OF_TIME_THETA, "noise": NOISE}
        assert chosen_epochs(epochs, n_points, 50, **known) == points


def learner(objective: Objective = CURVES, **options: Any) -> CurveLearner:
    return CurveLearner(mixed_nets(), objective, BapiOptions(**options), T_MAX)


def rows_of(*configurations: Configuration) -> np.ndarray:
    inputs = learner().inputs
    return inputs.of(inputs.encode(configurations))


def curves(*trials: Trial) -> list[LearningCurve]:
    return list(curves_from(*trials).values())


def seen(*trials: Trial, objective: Objective = CURVES) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Return epochs, losses and inputs of the points that the model is conditioned on."""
    belief = learner(objective).recall(curves(*trials), {})
    process = belief.process.process
    scores = process.offset + process.scale * process.standardized
    epochs = [round(t * T_MAX) for t in process.inputs[:, -1]]
    return epochs, belief.scores.losses(scores[:, 0]), process.inputs[:, :-1]


def learned(which: list[LearningCurve], **options: Any) -> CurveBelief:
    belief, _ = learner(**options).learn(which, {}, np.random.default_rng(0))
    return belief


FALLING = [50.0 - epoch for epoch in range(10)]


def test_failure_counts_as_the_worst_first_loss_at_the_last_epoch() -> None:
    bad, failed = stretch(1, at(0.9), [80.0, 60.0]), at(0.4, "unit")
    epochs, losses, rows = seen(stretch(0, at(0.2), FALLING), bad, crashed(2, failed, 2))
    assert epochs[-1] == T_MAX
    assert losses[-1] == pytest.approx(80.0)
    assert rows[-1] == pytest.approx(rows_of(failed)[0])


def test_diverged_losses_are_capped_at_a_few_times_the_median() -> None:
    usual = [stretch(i, at(i / 10), FALLING) for i in range(6)]
    exploded = [stretch(6 + i, at(0.9 + i / 100), [1e9, 1e8]) for i in range(5)]
    unbounded = replace(CURVES, upper=inf)
    _, losses, _ = seen(*usual, *exploded, objective=unbounded)
    alone = seen(*usual, objective=unbounded)[1]
    assert 50.0 <= losses.max() <= 200.0
    assert losses[: len(alone)] == pytest.approx(alone)


@pytest.mark.parametrize(("n", "each"), [(50, 3), (51, 2), (76, 1)])
def test_more_curves_mean_fewer_points_per_curve(n: int, each: int) -> None:
    trials = [stretch(i, at(i / 100), [60.0, 50.0, 40.0 + i]) for i in range(n)]
    assert len(seen(*trials)[1]) == each * n


def falling(number: int, level: float, n: int = 4) -> Trial:
    losses = [20 + 30 * level + 40 / epoch for epoch in range(1, n + 1)]
    return stretch(number, at(level), losses, cost_seconds=float(n))


SEVEN = [falling(i, i / 7) for i in range(7)]


def test_bounded_metrics_use_logarithmic_scores_by_default() -> None:
    assert Scores.of(Objective(metric="rmse", unit="", lower=0.0, upper=inf)) == Scores()
    assert learner(variant="paper").recall(curves(*SEVEN), {}).scores == Scores()
    percent = Scores.of(Objective(n_held_out=500))
    assert percent.scores([0.0]) == pytest.approx(-np.log(0.5 / 500))
    assert replace(percent, offset=1 / 6000) == Scores.of(Objective(n_held_out=1000, n_folds=3))
    # The same share of errors is as far apart on any scale.
    unit = Scores.of(Objective(lower=-1.0, upper=0.0, n_held_out=500))
    apart = np.diff(percent.scores([10.0, 5.0]))
    assert np.diff(unit.scores([-0.9, -0.95])) == pytest.approx(apart)


def test_slopes_are_constrained_by_the_paper_only_on_resumable_curves() -> None:
    assert not len(learned(curves(*SEVEN)).process.sites)
    diverged = stretch(8, at(0.9, "unit"), [60.0, 59.0], 4, trouble="no epoch 3")
    others = stretch(9, knn(0.5), 30.0), crashed(10, at(0.99, "unit"), 2)
    which = curves(*SEVEN, falling(7, 0.95, T_MAX), diverged, *others)
    sites = np.unique(learned(which, variant="paper").process.sites[:, :-1].round(9), axis=0)
    expected = rows_of(*(t.query.configuration for t in SEVEN))
    assert sites == pytest.approx(np.unique(expected.round(9), axis=0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "expected"), [("default", [20, 20, 22, 22, 25]), ("paper", [20, 21, 22, 24, 25])]
)
def test_parameters_are_refitted_after_a_tenth_more_trials_or_in_the_paper_always(
    variant: str, expected: list[int]
) -> None:
    many = [falling(i, i / 30) for i in range(30)]
    memo: dict[str, Any] = {}
    fitted = []
    for n in (20, 21, 22, 24, 25):
        which = learner(variant=variant)
        _, memo = which.learn(curves(*many[:n]), memo, np.random.default_rng(0))
        fitted.append(memo["n_fitted"])
    assert fitted == expected
