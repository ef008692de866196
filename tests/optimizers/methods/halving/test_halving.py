import json
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from contracts.optimizer import OptimizerContract
from simulation import Outcome, Simulation, share_to_do
from worlds import mixed_space, told

from prefect_tune.optimizers import (
    Budget,
    Constraint,
    Evaluation,
    Halving,
    Objective,
    Query,
    Trial,
    TrialState,
)
from prefect_tune.optimizers.methods.declarations import bracket_lines

OBJECTIVE = OptimizerContract.objective


class TestHalving(OptimizerContract):
    method = "halving"


class TestHalvingByFolds(OptimizerContract):
    method = "halving"
    options: ClassVar[dict[str, Any]] = {"fidelity": "folds"}


def make(**options: Any) -> Halving:
    return Halving(mixed_space(), 0, OBJECTIVE, **options)


def begun(optimizer: Halving, n: int) -> list[Query]:
    return [optimizer.ask(Budget()) for _ in range(n)]


def test_a_bracket_begins_so_many_that_one_is_left_on_the_last_rung() -> None:
    optimizer = make()
    assert [q.epochs for q in begun(optimizer, 9)] == [1] * 9
    for number in range(9):
        optimizer.tell(told(number, optimizer.history[number].query, float(number)))
    assert [q.epochs for q in begun(optimizer, 4)] == [3, 3, 3, 1]


def test_survivors_are_the_same_configurations_further_on() -> None:
    optimizer = make(n=3)
    first = begun(optimizer, 3)
    for number, query in enumerate(first):
        optimizer.tell(told(number, query, 3.0 - number))
    assert optimizer.ask(Budget()) == Query(first[2].configuration, epochs=3)
    optimizer.tell(told(3, optimizer.history[3].query, 0.5))
    assert optimizer.ask(Budget()) == Query(first[2].configuration)


def test_a_free_worker_begins_the_next_bracket_and_a_decided_rung_comes_before_it() -> None:
    optimizer = make(n=3)
    queries = begun(optimizer, 5)
    assert len({q.configuration for q in queries}) == 5
    for number in range(3):
        optimizer.tell(told(number, queries[number], float(number)))
    assert optimizer.ask(Budget()).configuration == queries[0].configuration
    assert optimizer.ask(Budget()).configuration not in {q.configuration for q in queries}


def test_workers_wait_only_at_the_end_of_the_trials() -> None:
    optimizer = make()

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
    optimizer = make(n=3)
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
    optimizer = Halving(mixed_space(), 0, bounded, n=3)
    for number, query in enumerate(begun(optimizer, 3)):
        seen = Evaluation(float(number), constraints={"latency_us": 40.0})
        optimizer.tell(Trial(number, query).started().ended(seen))
    for number in (3, 4):
        query = optimizer.ask(Budget())
        assert query.configuration == optimizer.history[0].query.configuration
        slow = Evaluation(0.0, constraints={"latency_us": 60.0})
        optimizer.tell(Trial(number, query).started().ended(slow))
        assert optimizer.incumbent == optimizer.history[0]


def test_decisions_say_what_was_halved_and_when_nothing_came_to_its_end() -> None:
    optimizer = make(n=3)
    first = begun(optimizer, 3)
    optimizer.tell(told(0, first[0], 1.0))
    optimizer.tell(told(1, first[1], None))
    decisions = json.loads(json.dumps(optimizer.decisions))
    assert decisions["fidelity"] == "epochs"
    assert [(r["level"], r["runs"], r["failed"]) for r in decisions["rungs"]] == [
        (1, 2, 1),
        (3, 0, 0),
        (9, 0, 0),
    ]
    (note,) = decisions["notes"]
    assert note.endswith("the budget is smaller than a bracket, which begins 3 configurations")
    assert bracket_lines(decisions)[:2] == [
        "one in 3 goes on, from 1 to 3 to all 9 epochs (models train in epochs)",
        "  1 epoch: 2 evaluated, 1 failed",
    ]


def test_where_all_runs_failed_the_budget_is_not_to_blame() -> None:
    optimizer = make()
    for number, query in enumerate(begun(optimizer, 9)):
        optimizer.tell(told(number, query, None))
    assert optimizer.least_begun == 9
    assert "notes" not in optimizer.decisions


def test_shares_of_rows_are_shown_short() -> None:
    optimizer = make(fidelity="subset")
    lines = bracket_lines(optimizer.decisions)
    assert lines[0] == "one in 3 goes on, from 1/27 to 1/9 to 1/3 to all of the rows (as asked for)"
    assert lines[1] == "  1/27 of the rows: 0 evaluated"


def test_what_cannot_be_halved_is_refused_when_it_is_made() -> None:
    with pytest.raises(ValueError, match="fidelity=folds is not possible"):
        Halving(mixed_space(), 0, Objective(n_folds=1), fidelity="folds")
    with pytest.raises(ValueError, match="n must be >= 1"):
        make(n=0)
