"""The base class of all methods, events, known configurations, and the registry."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from contracts.optimizer import OBJECTIVE
from processes import run_python
from worlds import counted_space, mixed_space, told

from prefect_tune.optimizers import (
    METHODS,
    Asked,
    Budget,
    Constraint,
    Evaluation,
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
from prefect_tune.optimizers.registry import DEFAULT_METHOD, loaded, register
from prefect_tune.optimizers.space.sampling import sample_configuration


class Draw(Optimizer):
    """Draws a configuration, and counts the trials reported to it."""

    method: ClassVar[Method] = Method(
        name="draw",
        purpose="a draw at random",
        implementation=f"{__name__}:Draw",
    )
    n_observed = 0

    def _propose(self, budget, rng) -> Query:  # noqa: ARG002
        return Query(sample_configuration(self.space, rng))

    def _observe(self, trial) -> None:  # noqa: ARG002
        self.n_observed += 1


def make(seed: int = 0) -> Draw:
    return Draw(counted_space((2, 2)), seed)


def test_trials_are_numbered_and_each_proposal_depends_on_seed_and_number() -> None:
    unbroken, told_of = make(), make()
    assert (told_of.incumbent, dict(told_of.weights), told_of.reason) == (None, {}, None)
    queries = [unbroken.ask(Budget()) for _ in range(4)]
    assert [(t.number, t.query) for t in unbroken.history.pending] == list(enumerate(queries))
    for number, query in enumerate(queries):
        assert told_of.ask(Budget(trials_spent=number)) == query
        told_of.tell(told(number, query, 4.0 - number))
    assert len(set(queries)) == 4
    assert make(1).ask(Budget()) == make(1).ask(Budget()) != queries[0]
    assert told_of.incumbent == told_of.history[3]
    assert dict(told_of.weights) == {3: 1.0}
    assert told_of.reason == Reason("draw")


class First(Draw):
    """Proposes the first two folds and five epochs of the default configuration."""

    def _propose(self, budget, rng) -> Query:
        return replace(super()._propose(budget, rng), folds=2, epochs=5)


@pytest.mark.parametrize(
    ("objective", "folds", "epochs"),
    [(Objective(n_folds=3, epochs=9), 2, 5), (Objective(n_folds=2, epochs=5), None, None)],
)
def test_all_folds_and_epochs_are_written_as_none_in_queries(objective, folds, epochs) -> None:
    optimizer = First(counted_space((2, 2)), 0, objective)
    query = optimizer.ask(Budget())
    assert (query.folds, query.epochs) == (folds, epochs)
    assert optimizer.history[0].query == query
    for less in (Objective(n_folds=1), Objective(epochs=4)):
        with pytest.raises(RuntimeError, match="'draw' requests"):  # a fault of the method
            First(counted_space((2, 2)), 0, less).ask(Budget())


@pytest.mark.parametrize(
    ("ended", "message"),
    [
        (lambda query, _: told(5, query, 1.0), "trial 5"),
        (lambda query, _: told(0, query, float("nan")), "loss nan"),
        (lambda query, _: Trial(0, query).started(), "running"),
        (lambda _, other: told(0, other, 1.0), "another query"),
    ],
)
def test_impossible_results_are_refused(ended, message) -> None:
    optimizer = make()
    queries = [optimizer.ask(Budget()) for _ in range(2)]
    with pytest.raises(ValueError, match=message):
        optimizer.tell(ended(*queries))
    assert optimizer.n_observed == 0
    assert len(optimizer.history.pending) == 2


def test_trial_can_be_told_only_once_per_run() -> None:
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
    with pytest.raises(ValueError, match="trial 7"):
        optimizer.restore(7, query, None)


class Waits(Draw):
    """Never proposes anything."""

    def _propose(self, budget, rng) -> Query:  # noqa: ARG002
        raise NotYet


def test_method_without_pending_trials_may_not_wait() -> None:
    with pytest.raises(RuntimeError, match="'draw' waits"):
        Waits(mixed_space(), 0).ask(Budget())


SPACE = mixed_space()
QUERY = Query(sample_configuration(SPACE, np.random.default_rng(0)))


def test_replay_applies_each_kind_of_event() -> None:
    outcome = Evaluation(3.0, constraints={"size": 2.0})
    complete = Trial(0, QUERY).started().completed(outcome)
    events = [Asked(0, QUERY, Budget()), Told(told(0, QUERY, None)), Retried(0), Told(complete)]
    assert [event.kind for event in events] == ["ask", "tell", "retry", "tell"]
    optimizer = RandomSearch(SPACE, 0, Objective(constraints=(Constraint("size", 1.0),)))
    replay(optimizer, events[:2], {"theta": [1.0]})
    assert [t.number for t in optimizer.history.failed] == [0]
    replay(optimizer, events[2:])
    assert optimizer.history.incumbent is None
    assert optimizer.history.nearest_infeasible == optimizer.history[0]
    assert optimizer.memo == {"theta": [1.0]}


@pytest.mark.parametrize("method", ["random", "flash"])
def test_known_configurations_are_proposed_first_and_never_repeated(method) -> None:
    rng, optimizer = np.random.default_rng(7), make_optimizer(method, SPACE, 0, OBJECTIVE)
    known = [sample_configuration(SPACE, rng) for _ in range(4)]
    optimizer.begin_with([*known, known[0]])
    asked, said = [], []
    for number in range(12):
        asked.append(optimizer.ask(Budget(trials_left=12 - number)))
        said.append(optimizer.reason.phase)
        optimizer.tell(told(number, asked[-1], float(number)))
    assert asked[:4] == [Query(configuration) for configuration in known]
    assert len({query.configuration for query in asked}) == 12
    assert [phase == "known configurations" for phase in said] == [True] * 4 + [False] * 8
    for late in (optimizer, make_optimizer("hyperband", SPACE, 0, OBJECTIVE)):
        with pytest.raises(ValueError, match=r"already|'hyperband'"):
            late.begin_with(known)


def test_method_is_found_by_a_unique_name() -> None:
    for method in METHODS.values():
        assert loaded(method.implementation).method is method
    with pytest.raises(UnknownName, match="'flash'"):
        make_optimizer("flahs", SPACE, 0)
    register(METHODS[DEFAULT_METHOD])
    with pytest.raises(ValueError, match="'flash' exists already"):
        register(replace(METHODS["flash"], purpose="another"))


@pytest.mark.slow
def test_listing_the_methods_imports_nothing_heavy() -> None:
    program = (
        "import sys; from prefect_tune.optimizers import METHODS\n"
        "for m in METHODS.values(): m.options(), m.render_decisions({}, str)\n"
        "heavy = {'numpy', 'scipy', 'ConfigSpace', 'sklearn', 'optuna', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert run_python(program) == "[]\n"
