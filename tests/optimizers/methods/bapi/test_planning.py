"""Plans: what trainings promise, what they cost, and what the budget pays for."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pytest
from curve_worlds import CURVES, T_MAX, at, curves_from, mixed_nets, net, nets, stretch
from subset_worlds import configuration, cube

from prefect_tune.optimizers import Budget, Configuration, Query, Trial
from prefect_tune.optimizers.methods.bapi.belief import CurveBelief, CurveLearner
from prefect_tune.optimizers.methods.bapi.planning import (
    PlannedTraining,
    Planning,
    Prospects,
    Remaining,
    chosen_entry,
)
from prefect_tune.optimizers.methods.declarations import BapiOptions
from prefect_tune.optimizers.search.improvement import (
    JointImprovement,
    sobol_normals,
)

LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)


def planning(*pending: Trial, new: Sequence[Configuration]) -> Planning:
    """Of five curves of 4 epochs, a second each, and of new configurations."""
    losses = ([10 + 40 * x + 40 / e for e in range(1, 5)] for x in LEVELS)
    trials = (stretch(i, net(LEVELS[i]), y, cost_seconds=4.0) for i, y in enumerate(losses))
    curves = list(curves_from(*trials, *pending).values())
    learner = CurveLearner(nets(), CURVES, BapiOptions(), T_MAX)
    belief, _ = learner.learn(curves, {}, np.random.default_rng(0))
    best = float(belief.scores.scores(min(c.loss for c in curves)))
    return Planning(curves, learner.inputs.encode(new), learner, belief, best=best, epsilon=1.0)


def test_what_is_under_way_counts_as_chosen() -> None:
    """Its twin promises as much, and adds next to nothing."""
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
    enough: Sequence[int | None] = (10,) * 6,
    most: int = 4,
    quantum: int = 1,
    **changed: Any,
) -> dict[int, tuple[int, float]]:
    """Epochs and seconds of what is planned of candidates of 10 epochs, in order."""
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
    entries = prospects.plan(gains, np.ones(m), remaining, horizon=most, quantum=quantum)
    return {e.number: (e.epochs, e.seconds) for e in entries}


@pytest.mark.parametrize(("budget", "plan"), [(8.0, {0: 4.0}), (10.0, {0: 4.0, 2: 6.0})])
def test_worked_plans_of_two_budgets(budget: float, plan: dict[int, float]) -> None:
    """Sheet, W12: second is what adds most to the first; if it is too dear, that is all."""
    entries = planned([0.4, 0.3, 0.6], budget)
    assert {number: seconds for number, (_, seconds) in entries.items()} == pytest.approx(plan)


def test_worked_choice_by_cost_that_cools_down_as_the_budget_is_spent() -> None:
    """Sheet, W8: improvements .0139559 and .0076271, at 10 and 2 seconds; likewise W12."""
    two = [PlannedTraining(0, 10, 10.0), PlannedTraining(1, 10, 2.0)]
    means, deviations = np.array([0.90, 0.88]), np.array([0.02, 0.03])
    # They are equal where (.0139559 / .0076271) = 5^power, which is at .38.
    for power, place in ((1.0, 1), (0.5, 1), (0.3, 0), (0.0, 0)):
        assert chosen_entry(two, means, deviations, 0.89, power) == two[place]
    first_and_third = [PlannedTraining(0, 10, 4.0), PlannedTraining(2, 10, 6.0)]
    means, deviations = W12[0][[0, 2]], W12[1][[0, 2]]
    assert chosen_entry(first_and_third, means, deviations, 0.89, 1.0) == first_and_third[0]


SIX, THREE = [1.0] * 6, [1.0] * 3


def test_the_horizon_shrinks_with_the_budget_and_its_last_entry_is_clipped() -> None:
    lengths = [len(planned(SIX, budget)) for budget in (100.0, 40.0, 39.0, 20.0, 10.0, 0.0)]
    assert lengths == [4, 4, 3, 2, 1, 0]
    assert len(planned(SIX, 100.0, most=2)) == 2
    assert planned(THREE, 3.5, done=[4, 0, 0]) == {0: (7, 3.0)}
    assert planned(THREE, 0.9) == {}
    assert planned([9.0, 9.0, 0.5], 2.0) == {2: (4, 2.0)}
    assert list(planned(THREE, 5.0, is_divisible=[False, True, True])) == [1]


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
    ],
)
def test_a_plan_has_what_may_be_trained_for_a_quantum_at_least(known, plan) -> None:
    assert planned(THREE, 100.0, **known) == plan


def test_where_nothing_can_improve_the_most_uncertain_is_planned() -> None:
    hopeless = improvement(np.array([-99.0, -99.0, -99.0]), W12[1], np.eye(3))
    zeros = np.zeros(3, dtype=int)
    which = Prospects(zeros, zeros, np.ones(3, dtype=bool), np.ones(3), lambda _: 10, 10)
    ample, uncertain = Remaining(100.0, 100.0, None), np.array([1.0, 3.0, 2.0])
    assert which.plan(hopeless, uncertain, ample, horizon=1, quantum=1)[0].number == 1


def recalled(
    variant: Literal["default", "paper"], theta: list[float], rates: dict[float, float]
) -> CurveBelief:
    """What follows from seconds of an epoch, by position on a line."""
    trials = (
        stretch(i, configuration(x), [9.0] * 10, cost_seconds=10 * rate)
        for i, (x, rate) in enumerate(rates.items())
    )
    curves = list(curves_from(*trials, space=cube()).values())
    learner = CurveLearner(cube(), CURVES, BapiOptions(variant=variant), T_MAX)
    return learner.recall(curves, {"costs": np.log(theta).tolist()})


def test_worked_rate_as_a_logarithm_and_what_is_unknown_is_not_priced_out() -> None:
    """Sheet, W14: variance 1, lengthscale .5, noise .01; rates .1 at 0 and .4 at 1."""
    belief = recalled("default", [1.0, 0.5, 0.01], {0.0: 0.1, 1.0: 0.4})
    at = np.array([[0.5], [3.0], [9.0]])
    assert belief.seconds(at) == pytest.approx([0.2, 0.2007438, 0.2], rel=1e-6)
    assert belief.costs is not None
    _, deviation = belief.costs.predict(at[:2])
    assert (deviation / 0.6931472) ** 2 == pytest.approx([0.5219303, 0.9999771])


def test_worked_rate_with_the_papers_kernel() -> None:
    """Sheet, W9: 10 epochs took 5 s; without noise 30 take 15, and .6 away they seem to take 2."""
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
def test_epochs_are_affordable_after_pending_ones_and_within_a_workers_part(
    which: Configuration | None,
    target: int,
    pending: tuple[Trial, ...],
    n_workers: int,
    epochs: dict[float | None, int],
) -> None:
    """After two curves of 2 epochs, of 1 and of 3 seconds each."""
    first = stretch(0, at(0.1), [9.0, 8.0], cost_seconds=2.0)
    second = stretch(1, KNOWN, [9.0, 7.0], cost_seconds=6.0)
    curves = curves_from(first, second, *pending, space=mixed_nets())
    known = None if which is None else curves[which]
    for left, affordable in epochs.items():
        budget = Budget(seconds_left=left, n_workers=n_workers)
        assert Remaining.of(budget, curves.values()).epochs(known, target) == affordable
