"""The base class of all methods, events, known configurations, and the registry."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from contracts.optimizer import OBJECTIVE, run
from flash_worlds import counted_space
from processes import run_python
from worlds import mixed_space, told

from prefect_tune.optimizers import (
    METHODS,
    Asked,
    Budget,
    Configuration,
    Constraint,
    Evaluation,
    Event,
    Method,
    NotYet,
    Objective,
    Optimizer,
    Query,
    RandomSearch,
    Reason,
    Retried,
    Told,
    Trial,
    UnknownName,
    make_optimizer,
    replay,
)
from prefect_tune.optimizers.events import event_document, event_of
from prefect_tune.optimizers.registry import DEFAULT_METHOD, loaded, register
from prefect_tune.optimizers.space.sampling import sample_configuration


class Draw(Optimizer):
    """Draws a configuration, and keeps in its memo how many trials it was told of."""

    method: ClassVar[Method] = Method(
        name="draw",
        purpose="a draw at random",
        implementation=f"{__name__}:Draw",
    )
    n_observed = 0

    def _propose(self, budget, rng) -> Query:  # noqa: ARG002
        self.memo = {"observed": self.n_observed}
        return Query(sample_configuration(self.space, rng))

    def _observe(self, trial) -> None:  # noqa: ARG002
        self.n_observed += 1

    def _restore(self, memo) -> None:
        super()._restore(memo)
        self.n_observed = memo["observed"]


def make(seed: int = 0) -> Draw:
    return Draw(counted_space((2, 2)), seed)


def test_trials_are_numbered_and_each_ask_draws_from_the_seed_and_its_number() -> None:
    optimizer = make()
    queries = [optimizer.ask(Budget()) for _ in range(3)]
    assert [(t.number, t.query) for t in optimizer.history] == list(enumerate(queries))
    assert len(optimizer.history.pending) == 3
    unbroken, told_of = make(), make()
    queries = [unbroken.ask(Budget()) for _ in range(4)]
    for number, query in enumerate(queries):
        assert told_of.ask(Budget(trials_spent=number)) == query
        told_of.tell(told(number, query, float(number)))
    assert len(set(queries)) == 4
    assert [make(1).ask(Budget()) for _ in range(2)] == [make(1).ask(Budget())] * 2
    assert make(1).ask(Budget()) != queries[0]


def test_what_is_restored_is_not_drawn_again() -> None:
    unbroken, resumed = make(), make()
    for number in range(3):
        query = unbroken.ask(Budget())
        resumed.restore(number, query, unbroken.memo)
        for optimizer in (unbroken, resumed):
            optimizer.tell(told(number, query, 1.0))
    assert resumed.n_observed == unbroken.n_observed == 3
    assert resumed.ask(Budget()) == unbroken.ask(Budget())
    with pytest.raises(ValueError, match="trial 7"):
        resumed.restore(7, query, None)


class First(Draw):
    """Asks for the first two folds and five epochs of the default configuration."""

    def _propose(self, budget, rng) -> Query:
        return replace(super()._propose(budget, rng), folds=2, epochs=5)


@pytest.mark.parametrize(
    ("objective", "folds", "epochs"),
    [(Objective(n_folds=3, epochs=9), 2, 5), (Objective(n_folds=2, epochs=5), None, None)],
)
def test_all_folds_and_epochs_are_none_in_what_is_asked_for(objective, folds, epochs) -> None:
    optimizer = First(counted_space((2, 2)), 0, objective)
    query = optimizer.ask(Budget())
    assert (query.folds, query.epochs) == (folds, epochs)
    assert optimizer.history[0].query == query


@pytest.mark.parametrize("objective", [Objective(n_folds=1), Objective(epochs=4)])
def test_more_folds_or_epochs_than_there_are_is_a_fault_of_the_method(objective) -> None:
    with pytest.raises(RuntimeError, match="'draw' asks"):
        First(counted_space((2, 2)), 0, objective).ask(Budget())


@pytest.mark.parametrize(
    ("ended", "message"),
    [
        (lambda query, _: told(5, query, 1.0), "trial 5"),
        (lambda query, _: told(0, query, float("nan")), "loss nan"),
        (lambda query, _: Trial(0, query).started(), "running"),
        (lambda _, other: told(0, other, 1.0), "another query"),
    ],
)
def test_what_cannot_have_happened_is_not_told(ended, message) -> None:
    optimizer = make()
    queries = [optimizer.ask(Budget()) for _ in range(2)]
    with pytest.raises(ValueError, match=message):
        optimizer.tell(ended(*queries))
    assert optimizer.n_observed == 0
    assert len(optimizer.history.pending) == 2


def test_a_trial_is_told_once_for_each_time_it_is_run() -> None:
    optimizer = make()
    query = optimizer.ask(Budget())
    with pytest.raises(ValueError, match="not failed"):
        optimizer.retry(0)
    optimizer.tell(told(0, query, None))
    with pytest.raises(ValueError, match="told before"):
        optimizer.tell(told(0, query, 1.0))
    optimizer.retry(0)
    optimizer.tell(told(0, query, 1.0))
    assert optimizer.history.incumbent == optimizer.history[0]
    with pytest.raises(ValueError, match="trial 1"):
        optimizer.retry(1)


class Waits(Draw):
    """Draws when nothing is pending, and waits otherwise; waits without end if told to."""

    may_wait_alone = False

    def _propose(self, budget, rng) -> Query:
        if self.history.pending or self.may_wait_alone:
            raise NotYet
        return super()._propose(budget, rng)


def test_a_method_waits_without_an_ask_and_never_with_nothing_pending() -> None:
    optimizer, patient = Waits(mixed_space(), 0), Waits(mixed_space(), 0)
    first = optimizer.ask(Budget())
    for _ in range(3):
        with pytest.raises(NotYet):
            optimizer.ask(Budget())
    optimizer.tell(told(0, first, 1.0))
    patient.tell(told(0, patient.ask(Budget()), 1.0))
    second = optimizer.ask(Budget())
    assert second == patient.ask(Budget())
    optimizer.tell(told(1, second, 1.0))
    optimizer.may_wait_alone = True
    with pytest.raises(RuntimeError, match="'draw' waits"):
        optimizer.ask(Budget())


def test_a_method_answers_with_the_best_full_trial_and_its_name_unless_it_knows_better() -> None:
    optimizer = make()
    assert (optimizer.incumbent, dict(optimizer.weights), optimizer.reason) == (None, {}, None)
    for number, loss in enumerate((2.0, 1.0, 3.0)):
        optimizer.tell(told(number, optimizer.ask(Budget()), loss))
    assert optimizer.incumbent == optimizer.history[1]
    assert dict(optimizer.weights) == {1: 1.0}
    assert optimizer.reason == Reason("draw")


SPACE = mixed_space()
QUERY = Query(sample_configuration(SPACE, np.random.default_rng(0)))
EVENTS: tuple[Event, ...] = (
    Asked(0, QUERY, Budget(0, 5, 1.5, 30.0, 0.25, 4, (0.125, 0.125))),
    Told(told(0, QUERY, None)),
    Retried(0),
    Told(Trial(0, QUERY).started().completed(Evaluation(3.0, constraints={"size": 2.0}))),
)


def test_replay_takes_each_kind_of_event_by_its_word_in_the_ledger() -> None:
    assert [event.kind for event in EVENTS] == ["ask", "tell", "retry", "tell"]
    optimizer = RandomSearch(SPACE, 0, Objective(constraints=(Constraint("size", 1.0),)))
    replay(optimizer, EVENTS[:2], {"theta": [1.0]})
    assert [t.number for t in optimizer.history.failed] == [0]
    replay(optimizer, EVENTS[2:3])
    assert [t.number for t in optimizer.history.pending] == [0]
    replay(optimizer, EVENTS[3:])
    assert optimizer.history.incumbent is None
    assert optimizer.history.nearest_infeasible == optimizer.history[0]
    assert optimizer.memo == {"theta": [1.0]}


def test_an_event_of_0_1_has_its_memo_and_less_of_a_budget() -> None:
    document = event_document(Asked(0, QUERY, Budget())) | {"memo": {"phase": 1}}
    for later in ("n_workers", "last_ask_seconds"):
        del document["budget"][later]
    event = event_of("ask", document, SPACE)
    assert event == Asked(0, QUERY, Budget(), {"phase": 1})
    optimizer = RandomSearch(SPACE, 0)
    replay(optimizer, [event])
    assert optimizer.memo == {"phase": 1}


BEGINNING = pytest.mark.parametrize("method", ["random", "flash"])


def known(n: int = 4) -> list[Configuration]:
    rng = np.random.default_rng(7)
    return [sample_configuration(SPACE, rng) for _ in range(n)]


def made(method: str) -> Optimizer:
    return make_optimizer(method, SPACE, 0, OBJECTIVE)


@BEGINNING
def test_known_configurations_are_proposed_first_and_the_method_continues_from_them(method) -> None:
    optimizer = made(method)
    optimizer.begin_with([*known(), known()[0]])
    events = run(optimizer, 12)
    asked = [event.query for event in events if isinstance(event, Asked)]
    assert asked[:4] == [Query(configuration) for configuration in known()]
    assert len({query.configuration for query in asked}) == 12


def test_known_configurations_come_before_any_ask_of_a_method_that_runs_them_whole() -> None:
    with pytest.raises(ValueError, match="'hyperband'"):
        made("hyperband").begin_with(known())
    optimizer = made("random")
    optimizer.begin_with(known(2))
    said = []
    for _ in range(3):
        optimizer.ask(Budget())
        said.append(optimizer.reason)
    assert [reason.phase for reason in said if reason] == [*["known configurations"] * 2, "random"]
    with pytest.raises(ValueError, match="already"):
        optimizer.begin_with(known())


def test_each_implementation_refers_to_the_declaration_it_is_found_by() -> None:
    for method in METHODS.values():
        assert loaded(method.implementation).method is method


def test_a_method_is_found_by_its_name_which_is_given_once() -> None:
    with pytest.raises(UnknownName, match="'flash'"):
        make_optimizer("flahs", SPACE, 0)
    register(METHODS[DEFAULT_METHOD])
    with pytest.raises(ValueError, match="'flash' already"):
        register(replace(METHODS["flash"], purpose="another"))


@pytest.mark.slow
def test_knowing_the_methods_imports_nothing_heavy() -> None:
    program = (
        "import sys; from prefect_tune.optimizers import METHODS\n"
        "for m in METHODS.values(): m.options(), m.render_decisions({})\n"
        "heavy = {'numpy', 'scipy', 'ConfigSpace', 'sklearn', 'optuna', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert run_python(program) == "[]\n"
