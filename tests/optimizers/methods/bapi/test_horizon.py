from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from prefect_tune.optimizers.acquisitions.joint_improvement import JointImprovement, sobol_normals
from prefect_tune.optimizers.methods.bapi.declaration import Choice
from prefect_tune.optimizers.methods.bapi.planning import Horizon, PlannedTraining, chosen_entry

NORMALS = sobol_normals(256, 4, np.random.default_rng(0))
W12 = np.array([0.90, 0.89, 0.88]), np.array([0.02, 0.03, 0.04])
CORRELATION = np.array([[1, 0.8, 0], [0.8, 1, 0], [0, 0, 1]])
COSTS = [4.0, 3.0, 6.0]


def improvement(
    means: np.ndarray = W12[0],
    deviations: np.ndarray = W12[1],
    correlation: np.ndarray = CORRELATION,
) -> JointImprovement:
    covariance = correlation * np.outer(deviations, deviations)
    return JointImprovement(means, deviations**2, lambda j: covariance[j], 0.89, NORMALS)


def horizon(
    rates: list[float],
    enough: list[int | None] | Callable[[int], int | None] | None = None,
    done: list[int] | None = None,
    overheads: list[float] | None = None,
    **changed: Any,
) -> Horizon:
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


def test_worked_choice_by_cost_and_regardless_of_it() -> None:
    """Sheet, W8: improvements .0139559 and .0076271, at 10 and 2 seconds; likewise W12."""
    two = [PlannedTraining(0, 10, 10.0), PlannedTraining(1, 10, 2.0)]
    means, deviations = np.array([0.90, 0.88]), np.array([0.02, 0.03])
    assert place(two, means, deviations, "per_cost") == 1
    assert place(two, means, deviations, "cool", 1.0) == 0
    first_and_third = [PlannedTraining(0, 10, 4.0), PlannedTraining(2, 10, 6.0)]
    assert place(first_and_third, W12[0][[0, 2]], W12[1][[0, 2]], "per_cost") == 0


def place(
    entries: list[PlannedTraining],
    means: np.ndarray,
    deviations: np.ndarray,
    choice: Choice,
    spent: float = 0.0,
) -> int:
    return chosen_entry(entries, means, deviations, 0.89, choice=choice, spent=spent)


def test_costs_cool_down_as_the_budget_is_spent() -> None:
    two = [PlannedTraining(0, 10, 10.0), PlannedTraining(1, 10, 2.0)]
    means, deviations = np.array([0.90, 0.88]), np.array([0.02, 0.03])
    at = [place(two, means, deviations, "cool", spent) for spent in (0.0, 0.5, 0.7, 1.0)]
    # They are equal where (.0139559 / .0076271) = 5^(1 - spent), which is at .62.
    assert at == [1, 1, 0, 0]


def test_what_is_out_of_reach_is_still_ranked() -> None:
    hopeless = [PlannedTraining(0, 10, 1.0), PlannedTraining(1, 10, 1.0)]
    means, deviations = np.array([-50.0, -40.0]), np.array([0.01, 0.01])
    assert place(hopeless, means, deviations, "per_cost") == 1


def test_the_horizon_shrinks_with_the_budget_and_has_a_most() -> None:
    six = horizon([1.0] * 6)
    lengths = [len(planned(six, budget)) for budget in (100.0, 40.0, 39.0, 20.0, 10.0)]
    assert lengths == [4, 4, 3, 2, 1]
    assert len(planned(horizon([1.0] * 6, most=2), 100.0)) == 2
    assert planned(six, 0.0) == []


def test_the_last_entry_is_clipped_to_what_is_left() -> None:
    entries = planned(horizon([1.0] * 3, done=[4, 0, 0]), 3.5)
    assert entries == [PlannedTraining(0, 7, 3.5)]
    assert planned(horizon([1.0] * 3), 0.9) == []


def test_what_cannot_be_afforded_by_an_epoch_gives_way_to_what_can() -> None:
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


def test_what_comes_besides_epochs_counts_before_they_are_clipped() -> None:
    assert planned(horizon([1.0] * 3, overheads=[2.0, 0.0, 0.0]), 5.5)[0].epochs == 3
    assert planned(horizon([1.0] * 3, overheads=[2.0, 0.0, 0.0]), 100.0)[0].seconds == 12.0


def test_no_training_takes_more_than_one_workers_part() -> None:
    entries = planned(horizon([1.0] * 6, longest=4.0), 100.0)
    assert len(entries) == 4
    assert {(e.epochs, e.seconds) for e in entries} == {(4, 4.0)}


def test_going_on_is_charged_for_new_epochs_alone_and_so_preferred_to_beginning() -> None:
    same = np.array([0.90, 0.90])
    entries = horizon([1.0, 1.0], done=[0, 7]).plan(
        improvement(same, np.array([0.02, 0.02]), np.eye(2)), np.ones(2), 100.0
    )
    assert {e.number: e.seconds for e in entries} == {0: 10.0, 1: 3.0}
    chosen = entries[place(entries, same, np.array([0.02, 0.02]), "per_cost")]
    assert (chosen.number, chosen.epochs) == (1, 10)


def test_what_has_had_enough_is_passed_over_and_so_is_what_cannot_be_had() -> None:
    finished = horizon([1.0] * 3, enough=[5, 10, 10], done=[5, 0, 0])
    assert numbers(planned(finished, 100.0)) == [1, 2]
    assert numbers(planned(horizon([1.0] * 3, enough=[None, 10, 10]), 100.0)) == [1, 2]
    # What was not begun has had nothing, however little is enough.
    assert planned(horizon([1.0] * 3, enough=[1, 10, 10]), 100.0)[0].epochs == 1


def test_at_least_a_quantum_is_trained_unless_fewer_epochs_are_left() -> None:
    which = horizon([1.0] * 3, enough=[4, 2, 10], done=[3, 0, 9], least_step=3)
    assert {e.number: e.epochs for e in planned(which, 100.0)} == {0: 6, 1: 3, 2: 10}


def test_what_does_not_train_in_epochs_is_planned_in_full() -> None:
    which = horizon([1.0] * 3, enough=[3, 10, 10], is_divisible=np.array([False, True, True]))
    assert planned(which, 100.0)[0] == PlannedTraining(0, 10, 10.0)


def test_only_what_is_allowed_is_planned() -> None:
    assert numbers(planned(horizon([1.0] * 3, allowed=np.array([False, True, False])), 99.0)) == [1]
    assert planned(horizon([1.0] * 3, allowed=np.zeros(3, dtype=bool)), 99.0) == []


def test_where_nothing_can_improve_the_most_uncertain_is_planned() -> None:
    hopeless = improvement(np.array([-99.0, -99.0, -99.0]), W12[1], np.eye(3))
    entries = horizon([1.0] * 3, most=1).plan(hopeless, np.array([1.0, 3.0, 2.0]), 100.0)
    assert numbers(entries) == [1]
