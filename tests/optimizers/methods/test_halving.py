"""Successive halving and Hyperband: rungs, fidelities, brackets and answers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contracts.optimizer import OBJECTIVE
from simulation import Outcome, Simulation, share_to_do
from worlds import evaluation, mixed_space, told

from prefect_tune.optimizers import (
    Budget,
    Constraint,
    Evaluation,
    Halving,
    History,
    Hyperband,
    Objective,
    Query,
    Trial,
    TrialState,
)
from prefect_tune.optimizers.methods.declarations import BracketOptions
from prefect_tune.optimizers.methods.halving import (
    Brackets,
    Rungs,
    choose_rungs,
    counted_levels,
    hyperband_plan,
    ranked,
)
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.sampling import new_configuration, sample_configuration


class OfThree(Halving):
    """Brackets of three configurations."""

    def plan(self, index: int) -> tuple[int, int]:  # noqa: ARG002
        return 3, 0


def begun(optimizer: Halving, n: int) -> list[Query]:
    return [optimizer.ask(Budget()) for _ in range(n)]


def test_a_free_worker_begins_the_next_bracket_and_a_decided_rung_comes_before_it() -> None:
    optimizer = OfThree(mixed_space(), 0, OBJECTIVE)
    queries = begun(optimizer, 5)
    assert len({q.configuration for q in queries}) == 5
    for number in range(3):
        optimizer.tell(told(number, queries[number], float(number)))
    assert optimizer.ask(Budget()).configuration == queries[0].configuration
    assert optimizer.ask(Budget()).configuration not in {q.configuration for q in queries}


def test_workers_wait_only_at_the_end_of_the_trials() -> None:
    optimizer = Halving(mixed_space(), 0, OBJECTIVE)

    def outcome(query: Query) -> Outcome:
        loss = float(len(query.configuration.canonical) % 13)
        return loss, share_to_do(query, optimizer)

    study = Simulation(optimizer, outcome, n_workers=4, trials=40)
    for _ in study.ends():
        assert study.n_waits == 0 or study.budget.trials_left == 0
    assert study.n_waits > 0
    assert optimizer.history.complete
    assert not optimizer.history.pending


def test_the_answer_is_the_best_of_the_highest_rung_until_one_is_full() -> None:
    optimizer = OfThree(mixed_space(), 0, OBJECTIVE)
    first = begun(optimizer, 3)
    assert optimizer.incumbent is None
    for number, query in enumerate(first):
        optimizer.tell(told(number, query, float(number)))
    assert optimizer.incumbent == optimizer.history[0]
    optimizer.tell(told(3, optimizer.ask(Budget()), 9.0))
    assert optimizer.incumbent == optimizer.history[3]
    assert optimizer.incumbent.state == TrialState.STOPPED
    optimizer.tell(told(4, optimizer.ask(Budget()), 20.0))
    assert optimizer.incumbent == optimizer.history[4]


def test_what_violates_a_constraint_is_no_answer_however_high_it_is() -> None:
    bounded = replace(OBJECTIVE, constraints=(Constraint("latency_us", 50.0),))
    optimizer = OfThree(mixed_space(), 0, bounded)
    for number, query in enumerate(begun(optimizer, 3)):
        seen = Evaluation(float(number), constraints={"latency_us": 40.0})
        optimizer.tell(Trial(number, query).started().completed(seen))
    for number in (3, 4):
        query = optimizer.ask(Budget())
        assert query.configuration == optimizer.history[0].query.configuration
        slow = Evaluation(0.0, constraints={"latency_us": 60.0})
        optimizer.tell(Trial(number, query).started().completed(slow))
        assert optimizer.incumbent == optimizer.history[0]


CONFIGURATION = sample_configuration(mixed_space(), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("total", "levels"),
    [(81, (1, 3, 9, 27, 81)), (50, (2, 6, 17, 50)), (3, (1, 3)), (2, (1, 2)), (10, (1, 3, 10))],
)
def test_levels_equal_the_table(total: int, levels: tuple[int, ...]) -> None:
    assert counted_levels(total, 3) == levels
    assert len(counted_levels(3**29, 3)) == 30


def test_the_last_rung_is_the_full_evaluation_and_the_others_are_not() -> None:
    epochs = Rungs("epochs", (2, 6, 50))
    assert [epochs.query(CONFIGURATION, k).epochs for k in range(3)] == [2, 6, None]
    subset = Rungs("subset", (1 / 9, 1 / 3, 1.0))
    assert [subset.query(CONFIGURATION, k).subset for k in range(3)] == [1 / 9, 1 / 3, 1.0]
    folds = Rungs("folds", (1, 3))
    assert [folds.query(CONFIGURATION, k).folds for k in range(2)] == [1, None]
    for rungs in (epochs, subset, folds):
        queries = [rungs.query(CONFIGURATION, k) for k in range(len(rungs))]
        assert [q.is_full for q in queries] == [False] * (len(rungs) - 1) + [True]
        assert [rungs.level(q) for q in queries] == list(rungs.levels)


@pytest.mark.parametrize(
    ("facts", "fidelity", "levels"),
    [
        ({}, "epochs", (1, 3, 9)),
        ({"epochs": None}, "subset", (1 / 27, 1 / 9, 1 / 3, 1.0)),
        ({"iterative": frozenset(), "n_rows": 899}, "folds", (1, 3)),
        ({"epochs": None, "n_folds": 1, "n_rows": 600, "n_rarest": 250}, "subset", (1 / 3, 1.0)),
        ({"epochs": None, "n_rarest": 18}, "subset", (1 / 9, 1 / 3, 1.0)),
        ({"epochs": None, "n_rarest": 17}, "folds", (1, 3)),
        ({"epochs": None, "n_classes": 0, "n_rarest": 1}, "subset", (1 / 27, 1 / 9, 1 / 3, 1.0)),
    ],
)
def test_the_default_is_the_best_that_the_study_can_have(facts, fidelity, levels) -> None:
    """Subsets have enough rows and two of each class; folds are better than two subsets."""
    rungs, _ = choose_rungs(mixed_space(), replace(OBJECTIVE, **facts), BracketOptions())
    assert (rungs.fidelity, rungs.levels) == (fidelity, levels)


@pytest.mark.parametrize(
    ("facts", "options", "message"),
    [
        ({"epochs": None}, {"fidelity": "epochs"}, "fidelity=folds"),
        ({"epochs": 1}, {"fidelity": "epochs"}, "it has 1"),
        ({"iterative": frozenset()}, {"fidelity": "epochs"}, "space 'mixed'"),
        ({"n_folds": 1}, {"fidelity": "folds"}, "fidelity=epochs"),
        ({"n_rows": 299}, {"fidelity": "subset"}, "299 training rows"),
        ({"n_rarest": 5}, {"fidelity": "subset"}, "has 5"),
        ({"n_classes": 300, "n_rows": 1_799}, {"fidelity": "subset"}, "takes 600 rows"),
        ({"epochs": None, "n_folds": 1, "n_rows": 80}, {}, "without fidelities"),
    ],
)
def test_a_fidelity_that_the_study_cannot_have_is_refused_with_those_it_can(
    facts: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        choose_rungs(mixed_space(), replace(OBJECTIVE, **facts), BracketOptions(**options))


def configurations(n: int) -> list[Configuration]:
    drawn: list[Configuration] = []
    for seed in range(n):
        drawn.append(new_configuration(mixed_space(), set(drawn), np.random.default_rng(seed)))
    return drawn


class Study:
    """Brackets of two rungs with eta 3, and a history in which things are asked for and told."""

    def __init__(self, *sizes: int) -> None:
        self.history = History()
        self.brackets = Brackets(3, 3, lambda i: (sizes[i], 0))

    def ask(self, configuration: Configuration, epochs: int | None = 1) -> int:
        number = len(self.history)
        self.history.record(Trial(number, Query(configuration, epochs=epochs)))
        self.brackets.catch_up(self.history)
        return number

    def tell(self, number: int, loss: float | None) -> None:
        self.history.record(told(number, self.history[number].query, loss))

    def begin(self, losses: Sequence[float | None], offset: int = 0) -> list[int]:
        numbers = [self.ask(c) for c in configurations(offset + len(losses))[offset:]]
        for number, loss in zip(numbers, losses, strict=True):
            self.tell(number, loss)
        return numbers

    def gone_on(self, epochs: int | None = 3) -> list[int]:
        """Ask for all that may go on; the numbers of the runs that they come from."""
        gone = []
        while (run := self.brackets.promotion(self.history)) is not None:
            gone.append(run.number)
            self.ask(run.query.configuration, epochs)
        return gone


def test_a_round_of_hyperband_is_the_table() -> None:
    levels = counted_levels(81, 3)
    brackets, epochs = [], []
    for index in range(len(levels)):
        n, first = hyperband_plan(index, len(levels), 3)
        runs = []
        for level in levels[first:]:
            runs.append((n, level))
            n = max(1, n // 3)
        brackets.append(runs)
        from_below = [0, *(level for _, level in runs)]
        epochs.append(sum(k * (e - e0) for (k, e), e0 in zip(runs, from_below, strict=False)))
    assert brackets == [
        [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)],
        [(34, 3), (11, 9), (3, 27), (1, 81)],
        [(15, 9), (5, 27), (1, 81)],
        [(8, 27), (2, 81)],
        [(5, 81)],
    ]
    assert epochs == [297, 276, 279, 324, 405]
    again = [hyperband_plan(len(levels) + i, len(levels), 3) for i in range(len(levels))]
    assert again == [hyperband_plan(i, len(levels), 3) for i in range(len(levels))]


@pytest.mark.parametrize(("n", "kept"), [(1, 1), (2, 1), (5, 1), (6, 2), (8, 2), (9, 3), (11, 3)])
def test_one_in_eta_is_promoted_rounded_down_and_at_least_one(n: int, kept: int) -> None:
    study = Study(n)
    study.begin([float(i) for i in range(n)])
    assert study.gone_on() == list(range(kept))


def test_a_rung_is_decided_when_all_its_runs_are_told() -> None:
    study = Study(3)
    numbers = [study.ask(c) for c in configurations(3)]
    study.tell(numbers[0], 1.0)
    study.tell(numbers[2], 2.0)
    assert study.gone_on() == []
    study.tell(numbers[1], 0.5)
    assert study.gone_on() == [1]


def test_a_bracket_that_is_not_full_is_decided_only_when_no_more_may_be_begun() -> None:
    study = Study(9, 9)
    study.begin([3.0, 1.0, 2.0])
    assert study.brackets.promotion(study.history) is None
    closing = study.brackets.promotion(study.history, closing=True)
    assert closing.number == 1
    study.ask(closing.query.configuration, 3)
    study.begin([1.0], offset=3)  # more may be begun after all: in the next bracket
    first, second = (
        study.brackets.places[t.query.configuration][0] for t in list(study.history)[::4]
    )
    assert first is not second


def test_a_run_that_is_tried_again_is_waited_for_and_counts() -> None:
    study = Study(3)
    study.begin([None, 2.0, 3.0])
    study.history.record(study.history[0].waiting())
    assert study.gone_on() == []
    study.tell(0, 1.0)
    assert study.gone_on() == [0]


def test_the_next_bracket_begins_at_its_planned_rung_and_the_oldest_runs_first() -> None:
    history = History()
    plans = [(2, 0), (1, 1), (1, 2)]
    brackets = Brackets(3, 3, lambda i: plans[i])
    rungs = []
    for number, configuration in enumerate(configurations(4)):
        rungs.append(brackets.next_of(configuration)[1])
        history.record(Trial(number, Query(configuration)))
        brackets.catch_up(history)
    assert rungs == [0, 0, 1, 2]
    study = Study(3, 3)
    numbers = [study.ask(c) for c in configurations(6)]
    for number in numbers[3:]:
        study.tell(number, 1.0)
    for number in numbers[:3]:
        study.tell(number, 2.0)
    assert study.gone_on() == [0, 3]


def test_what_violates_a_constraint_comes_after_all_that_does_not() -> None:
    history = History((Constraint("latency_us", 50.0),))
    measured = [(1.0, 200.0), (2.0, 60.0), (9.0, 40.0), (8.0, 50.0)]
    trials = []
    for number, (configuration, (loss, latency)) in enumerate(
        zip(configurations(4), measured, strict=True)
    ):
        query = Query(configuration, epochs=1)
        seen = Evaluation(loss, constraints={"latency_us": latency})
        trials.append(Trial(number, query).started().completed(seen))
    unmeasured = (
        Trial(4, Query(configurations(5)[4], epochs=1)).started().completed(evaluation(0.0))
    )
    assert [t.number for t in ranked([*trials, unmeasured], history)] == [3, 2, 1, 0, 4]


def test_a_round_costs_the_epochs_of_the_table_and_each_is_trained_once() -> None:
    objective = Objective(epochs=50, iterative=frozenset({"tree"}))
    optimizer = Hyperband(mixed_space(), 0, objective)
    epochs = 0.0

    def outcome(query: Query) -> Outcome:
        nonlocal epochs
        epochs += 50 * share_to_do(query, optimizer)
        return float(len(query.configuration.canonical) % 13), 1.0

    Simulation(optimizer, outcome, trials=27 + 12 + 6 + 4).run()
    assert round(epochs) == 673
    at = [t.query.epochs for t in optimizer.history]
    assert [at.count(e) for e in (2, 6, 17, None)] == [27, 9 + 12, 3 + 4 + 6, 1 + 1 + 2 + 4]
