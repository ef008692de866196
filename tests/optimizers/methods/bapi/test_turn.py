"""The first trainings of BAPI, when a training ends, and what comes next."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest
from curve_worlds import (
    CURVES,
    T_MAX,
    PowerLaws,
    at,
    bapi,
    crashed,
    curves_from,
    knn,
    mixed_nets,
    nets,
    stretch,
)

from prefect_tune.optimizers import Budget, Constraint, NotYet, Query, Trial
from prefect_tune.optimizers.methods.bapi import bapi as bapi_module
from prefect_tune.optimizers.methods.bapi.bapi import Bapi
from prefect_tune.optimizers.methods.bapi.belief import CurveBelief, Epochs
from prefect_tune.optimizers.methods.bapi.planning import (
    Design,
    PlannedTraining,
    Planning,
    Step,
    Verdict,
    enough_epochs,
    verdict,
)
from prefect_tune.optimizers.methods.declarations import BapiOptions
from prefect_tune.optimizers.methods.halving import Begin, Done, Promote, Wait


@pytest.mark.parametrize(
    ("n", "t_max", "epochs", "counts"),
    [
        (27, 50, (2, 6, 18), (27, 9, 3)),
        (15, 50, (2, 6, 18), (15, 5, 1)),
        (5, 50, (2, 6), (5, 1)),
        (2, 50, (2,), (2,)),
        (27, 6, (2,), (27,)),
    ],
)
def test_rungs_of_a_halving(n, t_max, epochs, counts) -> None:
    assert Design.halving(n, t_max) == Design(epochs, counts)
    assert Design.random(5, 50, 10) == Design((10, 50), (5, 1))


def trained(number: int, level: float, *losses: float) -> Trial:
    return stretch(number, at(level), losses)


THREE = Design((2, 6), (3, 1))
SECOND, BEST, LAST = trained(0, 0.1, 9, 8), trained(1, 0.2, 9, 7), trained(2, 0.3, 9, 9)


@pytest.mark.parametrize(
    ("trials", "step"),
    [
        ((SECOND, BEST, Trial(2, Query(at(0.3), epochs=2))), Wait()),
        ((SECOND, BEST, LAST), Promote(at(0.2), 6)),
        # A full fit has its final loss, which a few epochs of others are no match for.
        ((SECOND, BEST, stretch(2, knn(0.1), 1.0)), Promote(at(0.2), 6)),
        ((trained(0, 0.1, 9, 8, 1, 1), BEST, LAST), Promote(at(0.2), 6)),
        ((SECOND, BEST, LAST, trained(3, 0.4, 1, 1)), Promote(at(0.2), 6)),
        ((SECOND, crashed(1, at(0.2), 2), LAST), Promote(at(0.1), 6)),
        (tuple(crashed(i, at(0.1 * i), 2) for i in range(3)), Done()),
        ((trained(0, 0.1, 9),), Begin(2)),
        ((SECOND, BEST), Begin(2)),
    ],
)
def test_a_rung_ranks_those_that_train_once_all_are_told(trials, step: Step) -> None:
    assert THREE.next(curves_from(*trials, space=mixed_nets()), may_begin=True) == step


@pytest.mark.parametrize(
    ("trials", "step"),
    [
        ((trained(0, 0.1, 9),), Promote(at(0.1), 2)),
        # A third of two is less than one, but the best one goes on.
        ((SECOND, BEST), Promote(at(0.2), 6)),
    ],
)
def test_if_none_may_begin_the_start_resumes_begun_configurations(trials, step: Step) -> None:
    assert THREE.next(curves_from(*trials, space=mixed_nets()), may_begin=False) == step


def test_its_own_wait_until_the_start_is_over_and_others_are_none_of_its_business() -> None:
    own, extra = (SECOND, BEST, LAST), trained(3, 0.4, 9, 9)
    waiting = THREE.waiting(curves_from(*own, extra, space=mixed_nets()))
    assert waiting == {t.query.configuration for t in own}
    last = trained(4, 0.2, 9, 7, 6, 6, 6, 6)
    assert THREE.waiting(curves_from(*own, extra, last, space=mixed_nets())) == set()


@pytest.mark.parametrize(
    ("n_epochs", "n_configurations", "size"),
    [
        (378.0, inf, 27),  # three times 27 x 2 + 9 x 4 + 3 x 12 epochs
        (377.0, inf, 9),
        (125.0, inf, 3),
        (inf, 54, 27),
        (inf, 53, 9),
        (inf, 2, 2),
        (inf, 0, 1),
    ],
)
def test_the_smaller_a_budget_the_smaller_its_start(n_epochs, n_configurations, size) -> None:
    assert Design.affordable(n_epochs, n_configurations, 50) == Design.halving(size, 50)


@pytest.mark.parametrize(
    ("epsilon", "done", "epochs"), [(0.01, 0, 42), (0.03, 0, 31), (0.03, 40, 40), (1.0, 0, 1)]
)
def test_worked_epochs_that_are_enough(epsilon: float, done: int, epochs: int) -> None:
    """Sheet, W7."""
    losses = 1 - (0.95 - 0.60 / (1 + np.arange(1, 51) / 5))
    assert 1 - losses[-1] == pytest.approx(0.8954545455)
    assert enough_epochs(losses, epsilon, done) == epochs


FAR_BEHIND = {"deviation": 0.002, "deviation_now": 1e-6, "is_paper": False}


def said(done=20, target=40, mean=0.893, best=0.9, **given) -> Verdict:
    deviations = {"deviation": 0.0134164, "deviation_now": 0.0072111, "is_paper": True} | given
    return verdict(done=done, target=target, mean=mean, best=best, **deviations)


def test_worked_decision_both_ways() -> None:
    """With deviations of observations it is stopped, of the latent score it goes on."""
    noise, now, end = 0.006, 0.004, 0.012
    seen_now, seen_end = np.hypot(now, noise), np.hypot(end, noise)
    assert seen_end / seen_now == pytest.approx(1.8605210188)
    assert said(deviation=seen_end, deviation_now=seen_now) == "stopped"
    assert said(deviation=end, deviation_now=now) == "continues"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"mean": 0.9001, "deviation": 0.0072111}, "continues"),
        ({"mean": 0.9, "deviation": 0.0072111}, "stopped"),
        ({"deviation": 0.0145}, "continues"),
        (FAR_BEHIND, "stopped"),  # 3.5 deviations behind
        (FAR_BEHIND | {"is_paper": True}, "continues"),
        (FAR_BEHIND | {"mean": 0.895}, "continues"),
        ({"done": 40}, "finished"),
        ({"done": 40, "mean": 2.0}, "finished"),
    ],
)
def test_a_training_ends_when_it_will_surely_not_win_or_had_enough(given, expected) -> None:
    assert said(**given) == expected


N_FIRST = 7


class NotedPlanning(Planning):
    """A plan that is noted, with the power of costs when it was made."""

    noted: list["NotedPlanning"]
    power: float | None = None

    def __init__(self, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self.noted.append(self)

    def chosen(self, entries: Sequence[PlannedTraining], power: float) -> PlannedTraining:
        self.power = power
        return super().chosen(entries, power)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[NotedPlanning]:
    NotedPlanning.noted = []
    monkeypatch.setattr(bapi_module, "Planning", NotedPlanning)
    return NotedPlanning.noted


def tell(optimizer: Bapi, number: int, **changes: Any) -> None:
    query = optimizer.history[number].query
    outcome = replace(PowerLaws(optimizer)(query), **changes)
    optimizer.tell(Trial(number, query).started().completed(outcome))


def started(optimizer: Bapi, *, is_limited: bool = False) -> Bapi:
    """The method after its start and the first plan; if it is limited, the best levels violate."""
    while "planned" not in (optimizer.memo or {}):
        level = dict(optimizer.ask(Budget()).configuration["model"].values)["level"]
        quantities = {"quantity": 2.0 if 0.2 < float(level) < 0.45 else 0.5}
        if "planned" not in (optimizer.memo or {}):
            number = len(optimizer.history) - 1
            tell(optimizer, number, constraints=quantities if is_limited else {})
    return optimizer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("budget", "share"),
    [
        (Budget(seconds_spent=30.0, seconds_left=90.0), 0.25),
        (Budget(trials_spent=8, trials_left=8), 0.5),
    ],
)
def test_costs_are_cooled_by_the_share_of_the_budget_spent(plans, budget, share) -> None:
    optimizer = started(bapi(n_first=N_FIRST))
    plans.clear()
    while not plans or plans[-1].power is None:
        tell(optimizer, len(optimizer.history) - 1)
        optimizer.ask(budget)
    assert plans[-1].power == pytest.approx(1 - share)


def test_the_best_to_improve_on_meets_the_constraints(plans: list[NotedPlanning]) -> None:
    limited = replace(CURVES, constraints=(Constraint("quantity", 1.0),))
    optimizer = started(Bapi(nets(), 0, limited, n_first=N_FIRST), is_limited=True)
    told = [t for t in optimizer.history if t.loss is not None]
    losses = {
        ok: min(t.loss for t in told if t.loss and (optimizer.history.violation(t) <= 0) == ok)
        for ok in (True, False)
    }
    assert losses[False] < losses[True]  # else the world shows nothing
    assert optimizer.incumbent.loss == losses[True]
    assert plans[-1].best == plans[-1].belief.scores.scores(losses[True])


def test_the_tolerance_follows_the_spread_of_losses_that_have_no_range(plans) -> None:
    unbounded = replace(CURVES, metric="rmse", unit="", lower=0.0, upper=inf)
    optimizer = started(Bapi(nets(), 0, unbounded, n_first=N_FIRST))
    least = [c.loss for c in optimizer.curves.values() if c.epochs]
    assert plans[-1].epsilon == pytest.approx(0.003 * (max(least) - min(least)))
    started(bapi(n_first=N_FIRST))
    assert plans[-1].epsilon == pytest.approx(0.003 * 100)


def test_those_that_wait_in_the_start_are_not_planned() -> None:
    """Eight of nine are told; a worker that is free meanwhile does not go on with them."""
    optimizer = bapi(n_first=9)
    for number in range(9):
        optimizer.ask(Budget())
        if number < 8:
            tell(optimizer, number)
    own = {t.query.configuration for t in optimizer.history}
    for _ in range(3):
        try:
            query = optimizer.ask(Budget())
        except NotYet:
            break
        assert query.configuration not in own
        tell(optimizer, len(optimizer.history) - 1)
    assert len(optimizer.history.asked) > 9


@pytest.mark.slow
@pytest.mark.parametrize(("deviation", "are_stopped"), [(1e6, False), (1.0, True)])
def test_trainings_are_stopped_by_the_deviations_of_what_will_be_observed(
    monkeypatch: pytest.MonkeyPatch, deviation: float, are_stopped: bool
) -> None:
    """At the end, where what is observed now deviates by 1."""
    predict = CurveBelief.predict

    def outcome(self: CurveBelief, inputs: Any, epochs: Epochs) -> tuple[Any, Any]:
        return predict(self, inputs, epochs)[0], np.array([deviation, 1.0])

    monkeypatch.setattr(CurveBelief, "outcome", outcome)
    optimizer = bapi(n_first=N_FIRST)
    for _ in range(35):
        optimizer.ask(Budget())
        tell(optimizer, len(optimizer.history) - 1)
    assert bool(optimizer.decisions["ends"]["stopped"]) == are_stopped


def of(number: int, n: int, **evaluation: Any) -> Trial:
    return stretch(number, at(number / 10), [9.0] * n, **evaluation)


def test_ends_are_counted_from_curves_and_from_what_was_decided() -> None:
    optimizer = Bapi(mixed_nets(), 0, CURVES)
    for trial in (
        of(0, T_MAX),
        of(1, 3, epochs=6, trouble="no epoch 4"),
        crashed(2, at(0.2), 2),
        of(3, 2),
        of(4, 3),
        of(5, 3),
        Trial(6, Query(at(0.5), epochs=6)),
        stretch(7, knn(0.5), 9.0),
    ):
        optimizer.history.record(trial)
    said = {"3": "finished", "4": "stopped", "0": "finished", "5": "stopped"}
    optimizer.memo = {"verdicts": said, "thawed": 6, "note": "said once"}
    found = optimizer.decisions
    # Trial 0 went to the end, and what trial 5 ended is gone on with by trial 6.
    ends = {"full": 1, "finished": 1, "stopped": 1, "diverged": 1, "failed": 1, "left": 1}
    assert found["ends"] == ends
    assert found["spared"] == (T_MAX - 2) + (T_MAX - 3)
    assert (found["thawed"], found["notes"], found["at_once"]) == (6, ["said once"], 1)


def test_options_that_are_given_win_over_the_variant() -> None:
    found = BapiOptions(variant="paper", horizon=8, p=0.5, epsilon=0.0, n_first=2).resolved()
    assert (found.horizon, found.p, found.epsilon, found.n_first) == (8, 0.5, 0.0, 2)
