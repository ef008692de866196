"""Plans of BAPI: the initial design, gains and costs of training runs, and stopping."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Literal

import numpy as np
import pytest
from curve_worlds import (
    CURVES,
    T_MAX,
    at,
    bapi,
    crashed,
    curves_from,
    knn,
    mixed_nets,
    net,
    nets,
    power_law,
    stretch,
)
from subset_worlds import configuration, cube

from prefect_tune.optimizers import Budget, Configuration, Constraint, Query, Trial
from prefect_tune.optimizers.methods.bapi import bapi as bapi_module
from prefect_tune.optimizers.methods.bapi.bapi import Bapi
from prefect_tune.optimizers.methods.bapi.belief import CurveBelief, CurveLearner, Epochs
from prefect_tune.optimizers.methods.bapi.planning import (
    Begin,
    Design,
    Done,
    PlannedTraining,
    Planning,
    Promote,
    Prospects,
    Remaining,
    Step,
    Verdict,
    Wait,
    chosen_entry,
    enough_epochs,
    verdict,
)
from prefect_tune.optimizers.methods.declarations import BapiOptions
from prefect_tune.optimizers.search.improvement import JointImprovement, sobol_normals

LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)


def planning(*pending: Trial, new: Sequence[Configuration]) -> Planning:
    """Return a plan for new configurations and five curves of 4 epochs, a second per epoch."""
    losses = ([10 + 40 * x + 40 / e for e in range(1, 5)] for x in LEVELS)
    trials = (stretch(i, net(LEVELS[i]), y, cost_seconds=4.0) for i, y in enumerate(losses))
    curves = list(curves_from(*trials, *pending).values())
    learner = CurveLearner(nets(), CURVES, BapiOptions(), T_MAX)
    belief, _ = learner.learn(curves, {}, np.random.default_rng(0))
    best = float(belief.scores.scores(min(c.loss for c in curves)))
    return Planning(curves, learner.inputs.encode(new), learner, belief, best=best, epsilon=1.0)


def test_running_configuration_reduces_the_gain_of_similar_configurations() -> None:
    """Two similar configurations have equal gains; while one runs, the other has almost no gain."""
    first, twin = net(0.2, 0.9), net(0.2, 0.901)
    alone = planning(new=[first, twin]).improvement(4, 0)[0].gains()
    assert alone[5] == pytest.approx(alone[6], rel=0.01)
    busy = planning(Trial(5, Query(first)), new=[twin])
    assert busy.prospects.targets.tolist() == [0] * 5 + [T_MAX, 0]
    assert busy.improvement(4, 0)[0].gains()[6] < 0.01 * alone[6]


FOUR_NORMALS = sobol_normals(256, 4, np.random.default_rng(0))
W12 = np.array([0.90, 0.89, 0.88]), np.array([0.02, 0.03, 0.04])
CORRELATION = np.array([[1, 0.8, 0], [0.8, 1, 0], [0, 0, 1]])


def improvement(means=W12[0], deviations=W12[1], correlation=CORRELATION) -> JointImprovement:
    covariance = correlation * np.outer(deviations, deviations)
    return JointImprovement(means, deviations**2, lambda j: covariance[j], 0.89, FOUR_NORMALS)


def planned(
    rates: Sequence[float],
    budget: float,
    *,
    enough: Sequence[int | None] | Mapping[int, int] = (10,) * 6,
    most: int = 4,
    quantum: int = 1,
    is_paper: bool = False,
    **changed: Any,
) -> dict[int, tuple[int, float]]:
    """Return planned epochs and seconds of candidates with 10 epochs, in order."""
    m = len(rates)
    known = {
        "done": np.zeros(m, int),
        "targets": np.zeros(m, int),
        "is_divisible": np.ones(m, bool),
    }
    prospects = Prospects(
        enough=enough.__getitem__,
        rates=np.array(rates),
        t_max=10,
        **known | {name: np.array(values) for name, values in changed.items()},
    )
    means = np.linspace(0.95, 0.85, m)
    gains = improvement() if m == 3 else improvement(means, np.full(m, 0.02), np.eye(m))
    remaining = Remaining(budget, budget, None)
    known = {"horizon": most, "quantum": quantum, "is_paper": is_paper}
    entries = prospects.plan(gains, np.ones(m), remaining, **known)
    return {e.number: (e.epochs, e.seconds) for e in entries}


@pytest.mark.parametrize(("budget", "plan"), [(8.0, {0: 4.0}), (10.0, {0: 4.0, 2: 6.0})])
def test_plans_match_the_worked_example(budget: float, plan: dict[int, float]) -> None:
    """The second entry adds most to the first, unless the budget cannot pay for the second."""
    entries = planned([0.4, 0.3, 0.6], budget)
    assert {number: seconds for number, (_, seconds) in entries.items()} == pytest.approx(plan)


def test_choice_has_the_largest_improvement_per_second() -> None:
    """Expected improvements are .0139559 and .0076271."""
    means, deviations = np.array([0.90, 0.88]), np.array([0.02, 0.03])
    for seconds, place in ((10.0, 1), (3.7, 1), (3.6, 0)):
        two = [PlannedTraining(0, 10, seconds), PlannedTraining(1, 10, 2.0)]
        assert chosen_entry(two, means, deviations, 0.89) == two[place]
    first_and_third = [PlannedTraining(0, 10, 4.0), PlannedTraining(2, 10, 6.0)]
    means, deviations = W12[0][[0, 2]], W12[1][[0, 2]]
    assert chosen_entry(first_and_third, means, deviations, 0.89) == first_and_third[0]


SIX, TRIO = [1.0] * 6, [1.0] * 3


def test_horizon_shrinks_with_the_budget_and_the_last_entry_is_clipped() -> None:
    lengths = [len(planned(SIX, budget)) for budget in (100.0, 40.0, 39.0, 20.0, 10.0, 0.0)]
    assert lengths == [4, 4, 3, 2, 1, 0]
    assert len(planned(SIX, 100.0, most=2)) == 2
    assert planned(TRIO, 3.5, done=[4, 0, 0]) == {0: (7, 3.0)}
    assert planned(TRIO, 0.9) == {}
    assert planned([9.0, 9.0, 0.5], 2.0) == {2: (4, 2.0)}
    assert list(planned(TRIO, 5.0, is_divisible=[False, True, True])) == [1]
    # How much is enough is not sought of what cannot be begun.
    assert planned([9.0, 9.0, 0.1], 5.0, enough={2: 10}, most=1) == {2: (10, pytest.approx(1.0))}


@pytest.mark.parametrize(
    ("known", "plan"),
    [
        # New epochs alone are charged.
        ({"done": [0, 7, 0]}, {0: (10, 10.0), 1: (10, 3.0), 2: (10, 10.0)}),
        # What has had enough is skipped, and what cannot be begun.
        ({"enough": [5, 10, 10], "done": [5, 0, 0]}, {1: (10, 10.0), 2: (10, 10.0)}),
        ({"enough": [None, 10, 10]}, {1: (10, 10.0), 2: (10, 10.0)}),
        # What was not begun has had nothing, however little is enough.
        ({"enough": [1, None, None]}, {0: (1, 1.0)}),
        # What is under way is not planned.
        ({"targets": [5, 0, 10]}, {1: (10, 10.0)}),
        ({"targets": [1, 1, 1]}, {}),
        (
            {"enough": [4, 2, 10], "done": [3, 0, 9], "quantum": 3},
            {0: (6, 3), 1: (3, 3), 2: (10, 1)},
        ),
        (
            {"enough": [4, 2, 10], "done": [3, 0, 9], "quantum": 3, "is_paper": True},
            {0: (4, 1), 1: (3, 3), 2: (10, 1)},
        ),
    ],
)
def test_plan_contains_only_training_runs_of_at_least_one_quantum(known, plan) -> None:
    assert planned(TRIO, 100.0, **known) == plan


def test_most_uncertain_configuration_is_planned_if_no_improvement_is_possible() -> None:
    hopeless = improvement(np.array([-99.0, -99.0, -99.0]), W12[1], np.eye(3))
    zeros = np.zeros(3, dtype=int)
    which = Prospects(zeros, zeros, np.ones(3, dtype=bool), np.ones(3), lambda _: 10, 10)
    ample, uncertain = Remaining(100.0, 100.0, None), np.array([1.0, 3.0, 2.0])
    (entry,) = which.plan(hopeless, uncertain, ample, horizon=1, quantum=1, is_paper=True)
    assert entry.number == 1


def recalled(
    variant: Literal["default", "paper"], theta: list[float], rates: dict[float, float]
) -> CurveBelief:
    """Return the cost model given seconds per epoch, by position on a line."""
    trials = (
        stretch(i, configuration(x), [9.0] * 10, cost_seconds=10 * rate)
        for i, (x, rate) in enumerate(rates.items())
    )
    curves = list(curves_from(*trials, space=cube()).values())
    learner = CurveLearner(cube(), CURVES, BapiOptions(variant=variant), T_MAX)
    return learner.recall(curves, {"costs": np.log(theta).tolist()})


def test_log_rate_matches_the_worked_example_and_unknown_costs_stay_moderate() -> None:
    """Variance 1, lengthscale .5 and noise .01; an epoch takes .1 s at 0, and .4 s at 1."""
    belief = recalled("default", [1.0, 0.5, 0.01], {0.0: 0.1, 1.0: 0.4})
    at = np.array([[0.5], [3.0], [9.0]])
    assert belief.seconds(at) == pytest.approx([0.2, 0.2007438, 0.2], rel=1e-6)
    assert belief.costs is not None
    _, deviation = belief.costs.predict(at[:2])
    assert (deviation / 0.6931472) ** 2 == pytest.approx([0.5219303, 0.9999771])


def test_rate_with_the_kernel_of_the_paper_matches_the_worked_example() -> None:
    """If 10 epochs take 5 s, 30 epochs take 15 s at the same place, and 2 s at a distance of .6."""
    belief = recalled("paper", [1.0, 0.3, 1e-4], {0.0: 0.5})
    assert belief.costs is not None
    mean, deviation = belief.costs.predict(np.array([[0.0], [0.6]]))
    # The noise of the worked example is 0, this one 1e-4, which is that much off.
    assert 30 * mean == pytest.approx([15.0, 2.0300292485], rel=2e-4)
    assert deviation[0] == pytest.approx(0.0, abs=0.01)
    # Which is below the least rate, so it is not believed.
    assert belief.seconds(np.array([[0.0], [0.6], [5.0]])) == pytest.approx([0.5] * 3, rel=2e-4)


KNOWN = at(0.2)
BEGUN = Trial(2, Query(at(0.3), epochs=2))  # 2 seconds an epoch, as the others
RESUMED = Trial(3, Query(KNOWN, epochs=4))  # 3 seconds an epoch


@pytest.mark.parametrize(
    ("which", "target", "pending", "n_workers", "epochs"),
    [
        (KNOWN, 6, (), 1, {None: 6, 12.0: 6, 11.9: 5, 3.0: 3, 2.9: 0}),
        (None, 2, (), 1, {None: 2, 4.0: 2, 3.9: 1, 1.9: 0, 0.0: 0, -1.0: 0}),
        (None, 2, (BEGUN,), 1, {8.0: 2, 7.9: 1}),
        (None, 2, (BEGUN, RESUMED), 1, {14.0: 2, 13.9: 1}),
        (None, 2, (), 4, {None: 2, 12.0: 1}),
        (None, 2, (), 3, {12.0: 2}),
    ],
)
def test_affordable_epochs_exclude_pending_trials_and_other_workers(
    which: Configuration | None,
    target: int,
    pending: tuple[Trial, ...],
    n_workers: int,
    epochs: dict[float | None, int],
) -> None:
    """Two curves with 2 epochs each are known, at 1 and 3 seconds per epoch."""
    first = stretch(0, at(0.1), [9.0, 8.0], cost_seconds=2.0)
    second = stretch(1, KNOWN, [9.0, 7.0], cost_seconds=6.0)
    curves = curves_from(first, second, *pending)
    known = None if which is None else curves[which]
    for left, affordable in epochs.items():
        budget = Budget(seconds_left=left, n_workers=n_workers)
        assert Remaining.of(budget, curves.values()).epochs(known, target) == affordable


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
def test_halving_design_has_the_expected_rungs(n, t_max, epochs, counts) -> None:
    assert Design.halving(n, t_max) == Design(epochs, counts)
    assert Design.random(5, 50, 10) == Design((10, 50), (5, 1))


def trained(number: int, level: float, *losses: float) -> Trial:
    return stretch(number, at(level), losses)


THREE = Design((2, 6), (3, 1))
SECOND, BEST, LAST = trained(0, 0.1, 9, 8), trained(1, 0.2, 9, 7), trained(2, 0.3, 9, 9)


@pytest.mark.parametrize(
    ("trials", "may_begin", "step"),
    [
        ((SECOND, BEST, Trial(2, Query(at(0.3), epochs=2))), True, Wait()),
        ((SECOND, BEST, LAST), True, Promote(at(0.2), 6)),
        # A full fit has its final loss, which a few epochs of others are no match for.
        ((SECOND, BEST, stretch(2, knn(0.1), 1.0)), True, Promote(at(0.2), 6)),
        ((trained(0, 0.1, 9, 8, 1, 1), BEST, LAST), True, Promote(at(0.2), 6)),
        ((SECOND, BEST, LAST, trained(3, 0.4, 1, 1)), True, Promote(at(0.2), 6)),
        ((SECOND, crashed(1, at(0.2), 2), LAST), True, Promote(at(0.1), 6)),
        (tuple(crashed(i, at(0.1 * i), 2) for i in range(3)), True, Done()),
        ((trained(0, 0.1, 9),), True, Begin(2)),
        ((SECOND, BEST), True, Begin(2)),
        ((trained(0, 0.1, 9),), False, Promote(at(0.1), 2)),
        # A third of two is less than one, but the best one goes on.
        ((SECOND, BEST), False, Promote(at(0.2), 6)),
    ],
)
def test_rung_ranks_configurations_once_all_results_are_in(trials, may_begin, step: Step) -> None:
    assert THREE.next(curves_from(*trials), may_begin=may_begin) == step


def test_configurations_of_the_design_wait_until_the_initial_phase_is_over() -> None:
    own, extra = (SECOND, BEST, LAST), trained(3, 0.4, 9, 9)
    waiting = THREE.waiting(curves_from(*own, extra))
    assert waiting == {t.query.configuration for t in own}
    last = trained(4, 0.2, 9, 7, 6, 6, 6, 6)
    assert THREE.waiting(curves_from(*own, extra, last)) == set()


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
def test_smaller_budget_gives_a_smaller_initial_design(n_epochs, n_configurations, size) -> None:
    assert Design.affordable(n_epochs, n_configurations, 50) == Design.halving(size, 50)


@pytest.mark.parametrize(
    ("epsilon", "done", "epochs"), [(0.01, 0, 42), (0.03, 0, 31), (0.03, 40, 40), (1.0, 0, 1)]
)
def test_number_of_sufficient_epochs_matches_the_worked_example(
    epsilon: float, done: int, epochs: int
) -> None:
    """The accuracy after t epochs is 0.95 - 0.6 / (1 + t / 5)."""
    losses = 1 - (0.95 - 0.60 / (1 + np.arange(1, 51) / 5))
    assert 1 - losses[-1] == pytest.approx(0.8954545455)
    assert enough_epochs(losses, epsilon, done) == epochs


FAR_BEHIND = {"deviation": 0.002, "deviation_now": 1e-6, "is_paper": False}


def said(done=20, target=40, mean=0.893, best=0.9, **given) -> Verdict:
    deviations = {"deviation": 0.0134164, "deviation_now": 0.0072111, "is_paper": True} | given
    return verdict(done=done, target=target, mean=mean, best=best, **deviations)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # The worked decision: by deviations of observations, with noise .006, and of the score.
        ({}, "stopped"),
        ({"deviation": 0.012, "deviation_now": 0.004}, "continues"),
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
def test_training_is_stopped_after_enough_epochs_or_if_unable_to_win(given, expected) -> None:
    assert said(**given) == expected


N_FIRST = 7


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Planning]:
    """Record every plan."""
    made = list[Planning]()

    def noted(*parts: Any, **more: Any) -> Planning:
        made.append(plan := Planning(*parts, **more))
        return plan

    monkeypatch.setattr(bapi_module, "Planning", noted)
    return made


def tell(optimizer: Bapi, number: int, **changes: Any) -> None:
    query = optimizer.history[number].query
    outcome = replace(power_law(optimizer, query), **changes)
    optimizer.tell(Trial(number, query).started().completed(outcome))


def started(optimizer: Bapi, least: float = 0.0) -> Bapi:
    """Return the method after its first plan; a level below `least` violates the constraint."""
    while True:
        level = float(dict(optimizer.ask(Budget()).configuration["model"].values)["level"])
        if "planned" in (optimizer.memo or {}):
            return optimizer
        quantities = {"quantity": 2.0 if level < least else 0.5}
        tell(optimizer, len(optimizer.history) - 1, constraints=quantities)


def test_improvement_is_measured_from_the_best_feasible_loss(plans: list[Planning]) -> None:
    limited = replace(CURVES, constraints=(Constraint("quantity", 1.0),))
    optimizer = started(Bapi(nets(), 0, limited, n_first=N_FIRST), least=0.45)
    assert optimizer.incumbent.loss > min(t.loss for t in optimizer.history if t.loss is not None)
    assert plans[-1].best == plans[-1].belief.scores.scores(optimizer.incumbent.loss)


def test_tolerance_follows_the_spread_of_losses_if_the_metric_has_no_range(plans) -> None:
    unbounded = replace(CURVES, metric="rmse", unit="", lower=0.0, upper=inf)
    optimizer = started(Bapi(nets(), 0, unbounded, n_first=N_FIRST))
    least = [c.loss for c in optimizer.curves.values() if c.epochs]
    assert plans[-1].epsilon == pytest.approx(0.003 * (max(least) - min(least)))
    started(bapi(n_first=N_FIRST))
    assert plans[-1].epsilon == pytest.approx(0.003 * 100)


def test_tolerance_of_the_paper_is_a_hundredth_or_the_least_degradation(plans) -> None:
    started(bapi(variant="paper"))
    assert plans[-1].epsilon == pytest.approx(0.01 * 100)
    unbounded = replace(CURVES, metric="rmse", unit="", lower=0.0, upper=inf)
    optimizer = started(Bapi(nets(), 0, unbounded, variant="paper"))
    (full,) = (c for c in optimizer.curves.values() if c.done == T_MAX)
    assert plans[-1].epsilon == full.loss_at(T_MAX - 1) - full.loss > 0


def test_waiting_configurations_are_not_planned(plans: list[Planning]) -> None:
    """Eight of nine results are in; the idle worker must not resume a waiting configuration."""
    optimizer = bapi(n_first=9)
    for number in range(9):
        optimizer.ask(Budget())
        if number < 8:
            tell(optimizer, number)
    optimizer.ask(Budget())
    assert not plans[-1].prospects.done.any()
    assert len(optimizer.history.asked) > 9


@pytest.mark.slow
@pytest.mark.parametrize(("deviation", "are_stopped"), [(1e6, False), (1.0, True)])
def test_deviation_of_the_predicted_outcome_decides_whether_training_stops(
    monkeypatch: pytest.MonkeyPatch, deviation: float, are_stopped: bool
) -> None:
    """The present prediction at the last epoch has a deviation of 1."""
    predict = CurveBelief.predict

    def outcome(self: CurveBelief, inputs: Any, epochs: Epochs) -> tuple[Any, Any]:
        return predict(self, inputs, epochs)[0], np.array([deviation, 1.0])

    monkeypatch.setattr(CurveBelief, "outcome", outcome)
    optimizer = bapi(n_first=N_FIRST)
    for _ in range(35):
        optimizer.ask(Budget())
        tell(optimizer, len(optimizer.history) - 1)
    assert bool(optimizer.decisions["ends"]["stopped"]) == are_stopped


@pytest.mark.parametrize("variant", ["default", "paper"])
def test_deviations_of_the_paper_exclude_noise(monkeypatch, variant: str) -> None:
    with_noise = list[Epochs]()

    def outcome(self: CurveBelief, inputs: Any, epochs: Epochs) -> tuple[Any, Any]:
        with_noise.append(epochs)
        return self.predict(inputs, epochs)

    monkeypatch.setattr(CurveBelief, "outcome", outcome)
    optimizer = started(bapi(n_first=N_FIRST, variant=variant))
    tell(optimizer, len(optimizer.history) - 1)
    optimizer.ask(Budget())
    assert bool(with_noise) == (variant == "default")


def of(number: int, n: int, **evaluation: Any) -> Trial:
    return stretch(number, at(number / 10), [9.0] * n, **evaluation)


def test_stop_reasons_are_counted_from_curves_and_recorded_verdicts() -> None:
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


def test_given_options_override_the_variant() -> None:
    assert [BapiOptions(variant=v).resolved().horizon for v in ("default", "paper")] == [1, 4]
    found = BapiOptions(variant="paper", horizon=8, p=0.5, epsilon=0.0, n_first=2).resolved()
    assert (found.horizon, found.p, found.epsilon, found.n_first) == (8, 0.5, 0.0, 2)
