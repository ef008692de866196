"""Plans: what trainings promise, what they cost, and what the budget pays for."""

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest
from curve_worlds import CURVES, T_MAX, curves_from, mixed_nets, net, nets, stretch
from subset_worlds import configuration, cube

from prefect_tune.optimizers import Budget, Configuration, History, Query, StepCost, Trial
from prefect_tune.optimizers.acquisitions.expected_improvement import (
    JointImprovement,
    sobol_normals,
)
from prefect_tune.optimizers.methods.bapi.costs import (
    CostKind,
    CostModel,
    Overheads,
    Rates,
    RemainingBudget,
    affordable,
)
from prefect_tune.optimizers.methods.bapi.curves import LearningCurve, curves_of
from prefect_tune.optimizers.methods.bapi.declaration import BapiOptions, Settings
from prefect_tune.optimizers.methods.bapi.learner import CurveLearner
from prefect_tune.optimizers.methods.bapi.planning import (
    MOST_PENDING,
    Horizon,
    PlannedTraining,
    Planning,
    Prospects,
    chosen_entry,
)
from prefect_tune.optimizers.space.candidate_space import CandidateSpace
from prefect_tune.optimizers.surrogates.pipeline_inputs import PipelineInputs

NORMALS = sobol_normals(256, 4 + MOST_PENDING, np.random.default_rng(0))
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
NEW = [net(x, r) for x in (0.2, 0.4, 0.6, 0.8) for r in (0.2, 0.8)]


def planning(targets=None, lost=(), overheads=None, new=NEW, **options) -> Planning:
    """Of five curves of 4 epochs, a second each, and eight configurations that are new.

    Args:
        targets: Of those under way.
        lost: New ones that cannot be had.
        overheads: Besides epochs.
        new: Those that were not begun.
        **options: Of the method.
    """
    trials = [
        stretch(i, net(x), [10 + 40 * x + 40 / e for e in range(1, 5)], cost_seconds=4.0)
        for i, x in enumerate(LEVELS)
    ]
    curves = list(curves_from(*trials).values())
    settings = Settings.of(BapiOptions(**options))
    learner = CurveLearner(nets(), CURVES, settings, T_MAX)
    belief, _ = learner.learn(curves, {}, np.random.default_rng(0))
    configurations = [*(c.configuration for c in curves), *new]
    m = len(configurations)
    under_way = np.zeros(m, dtype=np.intp)
    for j, target in (targets or {}).items():
        under_way[j] = target
    prospects = Prospects(
        inputs=learner.inputs.of(learner.inputs.encode(configurations)),
        done=np.array([4] * 5 + [0] * len(new)),
        targets=under_way,
        is_divisible=np.ones(m, dtype=np.bool_),
        configuration=lambda j: None if configurations[j] in lost else configurations[j],
    )
    return Planning(
        prospects=prospects,
        belief=belief,
        overheads=overheads or Overheads.of(curves),
        settings=settings,
        best=float(belief.scores.of_loss(min(c.loss for c in curves))),
        epsilon=1.0,
        longest=np.inf,
        quantum=2,
        normals=NORMALS,
    )


def test_a_plan_holds_so_many_different_ones_and_their_seconds() -> None:
    entries = planning().entries(1e6)
    assert len({e.number for e in entries}) == 4
    for entry in entries:
        done = 4 if entry.number < 5 else 0
        assert entry.seconds == pytest.approx(entry.epochs - done, rel=0.05)
        assert done + 2 <= entry.epochs <= T_MAX


def test_what_is_under_way_is_not_planned_again_and_its_seconds_are_foreseen() -> None:
    first = planning().entries(1e6)[0].number
    busy = planning(targets={first: 10})
    assert first not in {e.number for e in busy.entries(1e6)}
    assert busy.pending_seconds == pytest.approx(10 - (4 if first < 5 else 0), rel=0.05)
    assert planning().pending_seconds == 0.0


def test_what_is_under_way_counts_as_chosen() -> None:
    """Its twin promises as much, and adds next to nothing."""
    twins = net(0.2, 0.9), net(0.2, 0.901)
    others = [net(0.4, 0.9), net(0.6, 0.1), net(0.8, 0.1)]
    is_new = np.arange(5 + 5) >= 5
    alone = planning(new=[*twins, *others], horizon=1).entries(1e6, is_new)
    assert alone[0].number in (5, 6)
    busy = planning({alone[0].number: T_MAX}, new=[*twins, *others], horizon=1)
    assert busy.entries(1e6, is_new)[0].number not in (5, 6)


def test_what_cannot_be_had_is_left_out_and_overheads_are_part_of_the_seconds() -> None:
    entries = planning(lost=tuple(NEW)).entries(1e6)
    assert {e.number for e in entries} <= set(range(5))
    slow = Overheads({}, frozenset(), thaw=7.0, lost=0.0, model_step="model")
    only_begun = planning(lost=tuple(NEW), overheads=slow)
    for entry in only_begun.entries(1e6):
        assert entry.seconds == pytest.approx(entry.epochs - 4 + 7.0, rel=0.05)


FOUR_NORMALS = sobol_normals(256, 4, np.random.default_rng(0))
W12 = np.array([0.90, 0.89, 0.88]), np.array([0.02, 0.03, 0.04])
CORRELATION = np.array([[1, 0.8, 0], [0.8, 1, 0], [0, 0, 1]])
COSTS = [4.0, 3.0, 6.0]


def improvement(means=W12[0], deviations=W12[1], correlation=CORRELATION) -> JointImprovement:
    covariance = correlation * np.outer(deviations, deviations)
    return JointImprovement(means, deviations**2, lambda j: covariance[j], 0.89, FOUR_NORMALS)


def horizon(rates, enough=None, done=None, overheads=None, **changed) -> Horizon:
    """Candidates of 10 epochs that take one second each, unless something else is said."""
    m = len(rates)
    besides = overheads or [0.0] * m
    of_each = enough if callable(enough) else (enough or [10] * m).__getitem__
    fields: dict[str, Any] = {
        "done": np.array(done or [0] * m),
        "allowed": np.ones(m, dtype=bool),
        "enough": of_each,
        "rates": np.array(rates),
        "overheads": lambda j: besides[j],
        "least_step": 1,
        "is_divisible": np.ones(m, dtype=bool),
        "t_max": 10,
        "most": 4,
    }
    return Horizon(**{**fields, **changed})


def planned(which: Horizon, budget: float) -> list[PlannedTraining]:
    m = len(which.rates)
    if m == 3:
        return which.plan(improvement(), np.ones(3), budget)
    means = np.linspace(0.95, 0.85, m)
    plain = improvement(means, np.full(m, 0.02), np.eye(m))
    return which.plan(plain, np.ones(m), budget)


def numbers(entries: list[PlannedTraining]) -> list[int]:
    return [entry.number for entry in entries]


def tenths(costs: list[float]) -> list[float]:
    return [cost / 10 for cost in costs]


@pytest.mark.parametrize(("budget", "plan"), [(8.0, [0]), (10.0, [0, 2])])
def test_worked_plans_of_two_budgets(budget: float, plan: list[int]) -> None:
    """Sheet, W12: second is what adds most to the first; if it is too dear, that is all."""
    entries = planned(horizon(tenths(COSTS)), budget)
    assert numbers(entries) == plan
    assert [e.seconds for e in entries] == pytest.approx([COSTS[j] for j in plan])


def test_worked_choice_by_cost_that_cools_down_as_the_budget_is_spent() -> None:
    """Sheet, W8: improvements .0139559 and .0076271, at 10 and 2 seconds; likewise W12."""
    two = [PlannedTraining(0, 10, 10.0), PlannedTraining(1, 10, 2.0)]
    means, deviations = np.array([0.90, 0.88]), np.array([0.02, 0.03])
    assert place(two, means, deviations, "per_cost") == 1
    assert place(two, means, deviations, "cool", 1.0) == 0
    first_and_third = [PlannedTraining(0, 10, 4.0), PlannedTraining(2, 10, 6.0)]
    assert place(first_and_third, W12[0][[0, 2]], W12[1][[0, 2]], "per_cost") == 0
    two = [PlannedTraining(0, 10, 10.0), PlannedTraining(1, 10, 2.0)]
    means, deviations = np.array([0.90, 0.88]), np.array([0.02, 0.03])
    at = [place(two, means, deviations, "cool", spent) for spent in (0.0, 0.5, 0.7, 1.0)]
    # They are equal where (.0139559 / .0076271) = 5^(1 - spent), which is at .62.
    assert at == [1, 1, 0, 0]


def place(entries, means, deviations, choice, spent=0.0) -> int:
    return chosen_entry(entries, means, deviations, 0.89, choice=choice, spent=spent)


def test_the_horizon_shrinks_with_the_budget_and_its_last_entry_is_clipped() -> None:
    six = horizon([1.0] * 6)
    lengths = [len(planned(six, budget)) for budget in (100.0, 40.0, 39.0, 20.0, 10.0)]
    assert lengths == [4, 4, 3, 2, 1]
    assert len(planned(horizon([1.0] * 6, most=2), 100.0)) == 2
    assert planned(six, 0.0) == []
    entries = planned(horizon([1.0] * 3, done=[4, 0, 0]), 3.5)
    assert entries == [PlannedTraining(0, 7, 3.5)]
    assert planned(horizon([1.0] * 3), 0.9) == []
    assert planned(horizon([9.0, 9.0, 0.5]), 2.0) == [PlannedTraining(2, 4, 2.0)]
    is_divisible = np.array([False, True, True])
    assert numbers(planned(horizon([1.0] * 3, is_divisible=is_divisible), 5.0)) == [1]
    dear = horizon([1.0] * 3, is_divisible=is_divisible, overheads=[3.0, 0.0, 0.0], most=1)
    assert numbers(planned(dear, 11.0)) == [1]


def test_how_much_is_enough_is_not_sought_of_what_cannot_be_begun() -> None:
    def enough(j: int) -> int:
        sought.append(j)
        return 10

    sought = list[int]()
    planned(horizon([9.0, 9.0, 0.1], enough=enough, most=1), 5.0)
    assert sought == [2]
    # A plan that has begun ends at what is too dear.
    assert numbers(planned(horizon([1.0, 0.5, 99.0]), 12.0)) == [0]


def test_overheads_and_a_workers_part_count_when_epochs_are_clipped() -> None:
    assert planned(horizon([1.0] * 3, overheads=[2.0, 0.0, 0.0]), 5.5)[0].epochs == 3
    assert planned(horizon([1.0] * 3, overheads=[2.0, 0.0, 0.0]), 100.0)[0].seconds == 12.0
    entries = planned(horizon([1.0] * 6, longest=4.0), 100.0)
    assert len(entries) == 4
    assert {(e.epochs, e.seconds) for e in entries} == {(4, 4.0)}


def test_resuming_is_charged_for_new_epochs_alone_and_so_preferred_to_starting() -> None:
    same = np.array([0.90, 0.90])
    entries = horizon([1.0, 1.0], done=[0, 7]).plan(
        improvement(same, np.array([0.02, 0.02]), np.eye(2)), np.ones(2), 100.0
    )
    assert {e.number: e.seconds for e in entries} == {0: 10.0, 1: 3.0}
    chosen = entries[place(entries, same, np.array([0.02, 0.02]), "per_cost")]
    assert (chosen.number, chosen.epochs) == (1, 10)


def test_what_has_had_enough_cannot_be_had_or_is_not_allowed_is_passed_over() -> None:
    finished = horizon([1.0] * 3, enough=[5, 10, 10], done=[5, 0, 0])
    assert numbers(planned(finished, 100.0)) == [1, 2]
    assert numbers(planned(horizon([1.0] * 3, enough=[None, 10, 10]), 100.0)) == [1, 2]
    # What was not begun has had nothing, however little is enough.
    assert planned(horizon([1.0] * 3, enough=[1, 10, 10]), 100.0)[0].epochs == 1
    assert numbers(planned(horizon([1.0] * 3, allowed=np.array([False, True, False])), 99.0)) == [1]
    assert planned(horizon([1.0] * 3, allowed=np.zeros(3, dtype=bool)), 99.0) == []


def test_a_quantum_at_least_is_trained_and_what_has_no_epochs_in_full() -> None:
    which = horizon([1.0] * 3, enough=[4, 2, 10], done=[3, 0, 9], least_step=3)
    assert {e.number: e.epochs for e in planned(which, 100.0)} == {0: 6, 1: 3, 2: 10}
    which = horizon([1.0] * 3, enough=[3, 10, 10], is_divisible=np.array([False, True, True]))
    assert planned(which, 100.0)[0] == PlannedTraining(0, 10, 10.0)


def test_where_nothing_can_improve_the_most_uncertain_is_planned() -> None:
    hopeless = improvement(np.array([-99.0, -99.0, -99.0]), W12[1], np.eye(3))
    entries = horizon([1.0] * 3, most=1).plan(hopeless, np.array([1.0, 3.0, 2.0]), 100.0)
    assert numbers(entries) == [1]


KINDS: tuple[CostKind, ...] = ("log_rate", "linear")
LINE = PipelineInputs(CandidateSpace(cube()), "conditional")


def rated(*rates: tuple[float, float]) -> list[LearningCurve]:
    """Curves on a line, by position and seconds of an epoch."""
    history = History()
    for x, rate in rates:
        losses = [9.0] * 10
        trial = stretch(len(history), configuration(x), losses, cost_seconds=10 * rate)
        history.record(trial)
    return list(curves_of(history, cube(), CURVES, T_MAX).values())


def recalled(kind: CostKind, theta: list[float], *rates: tuple[float, float]) -> Rates:
    found = CostModel(LINE, kind).rates(rated(*rates), np.log(theta))
    assert found is not None
    return found


def test_worked_rate_as_a_logarithm_and_what_is_unknown_is_not_priced_out() -> None:
    """Sheet, W14: variance 1, lengthscale .5, noise .01; rates .1 at 0 and .4 at 1."""
    rates = recalled("log_rate", [1.0, 0.5, 0.01], (0.0, 0.1), (1.0, 0.4))
    assert float(rates.process.scale[0]) == pytest.approx(0.6931472, abs=2e-6)
    at = np.array([[0.5], [3.0]])
    mean, deviation = rates.process.predict(at)
    assert np.exp(mean) == pytest.approx([0.2, 0.2007438], rel=1e-6)
    assert (deviation / rates.process.scale[0]) ** 2 == pytest.approx([0.5219303, 0.9999771])
    assert rates.seconds(at) == pytest.approx([0.2267162, 0.2552517], rel=2e-6)
    # The variance of ln seconds counts up to a deviation of those seen.
    rates = recalled("log_rate", [16.0, 0.5, 0.01], (0.0, 0.1), (1.0, 0.4))
    far = rates.seconds(np.array([[9.0]]))[0]
    assert far == pytest.approx(0.2 * np.exp(0.5 * 0.6931472**2), rel=1e-3)


def test_worked_rate_with_the_papers_kernel() -> None:
    """Sheet, W9: 10 epochs took 5 s; without noise 30 take 15, and .6 away they seem to take 2."""
    rates = recalled("linear", [1.0, 0.3, 1e-4], (0.0, 0.5))
    mean, deviation = rates.process.predict(np.array([[0.0], [0.6]]))
    # The noise of the worked example is 0, this one 1e-4, which is that much off.
    assert 30 * mean == pytest.approx([15.0, 2.0300292485], rel=2e-4)
    assert deviation[0] == pytest.approx(0.0, abs=0.01)
    # Which is below a third of the least rate, so it is not believed.
    assert rates.seconds(np.array([[0.0], [0.6], [5.0]])) == pytest.approx(
        [0.5, 0.5 / 3, 0.5 / 3], rel=2e-4
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_slower_is_predicted_to_be_slower(kind: CostKind) -> None:
    curves = rated(*((x, 0.1 * 10**x) for x in np.linspace(0, 1, 9)))
    rates = CostModel(LINE, kind).rates(curves, None, np.random.default_rng(0))
    assert rates.seconds(np.array([[0.15], [0.85]])) == pytest.approx([0.141, 0.708], rel=0.15)


UNIT, PLAIN = net(0.1, scale="unit"), net(0.1, scale="none")


def steps(scaling, training, load=0.0, *, hit=False) -> dict[str, object]:
    made = StepCost("scale", 0, scaling, 0.0, hit, "scaled")
    return {"steps": (made, StepCost("model", 0, training, load, hit=False, key="model"))}


def overheads(*trials: Trial) -> Overheads:
    return Overheads.of(list(curves_from(*trials, space=mixed_nets()).values()))


def seconds(of: Overheads, which: Configuration, done: int = 0, rate: float = 2.0) -> float:
    return of.seconds(which, done, rate)


def test_what_comes_before_a_model_costs_its_median_once() -> None:
    known = overheads(
        *(
            stretch(i, net(0.1 * i, scale="unit"), [9.0], **steps(took, 1.0))  # type: ignore[arg-type]
            for i, took in enumerate((3.0, 5.0, 40.0))
        )
    )
    assert known.prefixes == {("unit",): 5.0}
    # The scaler has no values, so it is made.
    assert seconds(known, net(0.9, scale="unit")) == 0.0
    unmade = Overheads({("unit",): 5.0}, frozenset(), 0.0, 0.0, "model")
    assert seconds(unmade, net(0.9, scale="unit")) == 5.0
    assert seconds(unmade, PLAIN) == 0.0  # nothing is known of it


def test_checkpoints_cost_loading_and_lost_ones_their_epochs_again() -> None:
    first = stretch(0, UNIT, [9.0] * 2, **steps(3.0, 2.0))  # type: ignore[arg-type]
    second = stretch(1, UNIT, [9.0] * 4, **steps(3.0, 2.0, 0.25), resumed_from=2)  # type: ignore[arg-type]
    known = overheads(first, second)
    assert (known.thaw, known.lost) == (0.25, 0.0)
    assert seconds(known, UNIT, done=4) == 0.25
    assert seconds(overheads(first), UNIT, done=2) == 0.0  # before any is known
    first = stretch(0, UNIT, [9.0] * 2, **steps(3.0, 2.0))  # type: ignore[arg-type]
    second = stretch(1, UNIT, [9.0] * 4, **steps(3.0, 4.0))  # type: ignore[arg-type]
    lost = overheads(first, second)
    assert lost.lost == 1.0
    assert seconds(lost, UNIT, done=4) == 4 * 2.0
    third = stretch(2, UNIT, [9.0] * 6, **steps(3.0, 2.0, 0.5), resumed_from=4)  # type: ignore[arg-type]
    assert seconds(overheads(first, second, third), UNIT, done=6) == 0.5 + 0.5 * 6 * 2.0


KNOWN = net(0.2, scale="none")


def remaining(left: float | None, *more: Trial, n_workers: int = 1) -> RemainingBudget:
    """After two curves of 2 epochs, of 1 and of 3 seconds each."""
    first = stretch(0, net(0.1, scale="none"), [9.0, 8.0])
    assert first.evaluation is not None
    first = replace(first, evaluation=replace(first.evaluation, cost_seconds=2.0))
    second = stretch(1, KNOWN, [9.0, 7.0], cost_seconds=6.0)
    curves = curves_from(first, second, *more, space=mixed_nets())
    return RemainingBudget(Budget(seconds_left=left, n_workers=n_workers), curves.values())


def test_a_training_is_cut_to_its_seconds_and_is_none_without_one_new_epoch() -> None:
    assert affordable(inf, 2.0, done=3, target=9) == 9
    assert affordable(100.0, 2.0, done=3, target=9) == 9
    assert affordable(5.9, 2.0, done=3, target=9) == 5
    assert affordable(1.9, 2.0, done=3, target=9) == 0
    assert affordable(-1.0, 2.0, done=3, target=9) == 0


@pytest.mark.parametrize(
    ("configuration", "target", "epochs"),
    [
        (KNOWN, 6, {None: 6, 12.0: 6, 11.9: 5, 3.0: 3, 2.9: 0}),
        (None, 2, {None: 2, 4.0: 2, 3.9: 1, 1.9: 0, 0.0: 0}),
    ],
)
def test_an_epoch_takes_what_it_took_of_its_configuration_or_of_others(
    configuration: Configuration | None, target: int, epochs: dict[float | None, int]
) -> None:
    found = {x: remaining(x).epochs_by_measured_rates(configuration, target) for x in epochs}
    assert found == epochs


def test_what_is_under_way_is_paid_first_by_told_rates_and_by_learned_costs() -> None:
    begun = Trial(2, Query(net(0.3, scale="none"), epochs=2))  # 2 seconds an epoch, as the others
    gone_on = Trial(3, Query(KNOWN, epochs=4))  # 3 seconds an epoch
    assert remaining(8.0, begun).epochs_by_measured_rates(None, 2) == 2
    assert remaining(7.9, begun).epochs_by_measured_rates(None, 2) == 1
    assert remaining(14.0, begun, gone_on).epochs_by_measured_rates(None, 2) == 2
    assert remaining(13.9, begun, gone_on).epochs_by_measured_rates(None, 2) == 1
    costs = {"rate": 1.0, "pending_seconds": 4.0}
    assert remaining(10.0).epochs(2, 20, **costs) == 8
    assert remaining(4.9).epochs(2, 20, **costs) == 0
    assert remaining(None).epochs(2, 20, **costs) == 20


def test_a_training_takes_no_more_than_the_part_of_one_worker() -> None:
    shared = remaining(12.0, n_workers=4)
    assert shared.longest == 3.0
    assert shared.epochs(2, 20, rate=1.0, pending_seconds=0.0) == 5
    assert shared.epochs_by_measured_rates(None, 2) == 1
    assert remaining(None, n_workers=4).longest == inf
