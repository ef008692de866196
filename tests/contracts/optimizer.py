"""Contract tests of every optimizer, as a brief and a complete suite."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from unittest.mock import patch

import pytest
from simulation import Outcome, Simulation, blurred, share_of, share_to_do
from worlds import finite_space, ignoring_space, mixed_space, sparse_space, told

from prefect_tune.optimizers import (
    METHODS,
    Asked,
    Budget,
    Event,
    NotYet,
    Objective,
    Optimizer,
    Query,
    Space,
    SpaceExhausted,
    Told,
    Trial,
    make_optimizer,
    replay,
)
from prefect_tune.optimizers.events import event_document, event_of

OBJECTIVE = Objective(
    chance=50.0,
    n_rows=9_000,
    n_held_out=4_500,
    n_classes=2,
    n_rarest=3_000,
    n_folds=3,
    epochs=9,
    iterative=frozenset({"svm", "tree"}),
)
_FITS = (
    "models.gaussian_process.GaussianProcess.fit",
    "models.forest.RandomForestRegressor",
    "methods.fabolas.belief.EnsembleSampler",
)


@dataclass(frozen=True)
class Case:
    """A method with options that make tests quick; slow methods are marked with a tier."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    objective: Objective = OBJECTIVE
    tier: Literal["", "slow", "full"] = ""

    def make(self, space: Space, seed: int = 0) -> Optimizer:
        return make_optimizer(self.method, space, seed, self.objective, self.options)


def each(cases: Mapping[str, Case]) -> pytest.MarkDecorator:
    """Return a decorator that runs the tests of a class for each of these cases."""
    marks = {"": (), "slow": pytest.mark.slow, "full": pytest.mark.full}
    values = [pytest.param(case, id=name, marks=marks[case.tier]) for name, case in cases.items()]
    return pytest.mark.parametrize("case", values)


def loss_of(query: Query) -> float | None:
    """Return a fixed loss that depends on path and values; one path in ten fails."""
    text = query.configuration.canonical
    digits = sum(ord(c) * (i + 1) for i, c in enumerate(text))
    return None if digits % 10 == 0 else (digits % 997) / 10


def run(optimizer: Optimizer, n: int, *, first: int = 0, leaves: int = 0) -> list[Event]:
    """Ask and tell n times, mostly with two queries pending, and leave some queries pending."""
    events: list[Event] = []
    pending = list(optimizer.history.pending)
    for number in range(first, first + n):
        query = optimizer.ask(Budget(trials_spent=number))
        events.append(Asked(number, query, Budget(trials_spent=number)))
        pending.append(Trial(number, query))
        if len(pending) > 2:
            events.append(_tell(optimizer, pending.pop(0)))
    events += [_tell(optimizer, trial) for trial in pending[: len(pending) - leaves]]
    return events


def _tell(optimizer: Optimizer, trial: Trial) -> Told:
    ended = told(trial.number, trial.query, loss_of(trial.query))
    optimizer.tell(ended)
    return Told(ended)


def through_json(event: Event, space: Space) -> Event:
    """Return the event as read back from the ledger."""
    return event_of(event.kind, json.loads(json.dumps(event_document(event))), space)


@contextmanager
def nothing_is_fitted() -> Iterator[None]:
    """Make every expensive fit fail."""
    with ExitStack() as stack:
        for name in _FITS:
            refused = AssertionError("a replay fits nothing")
            stack.enter_context(patch(f"prefect_tune.optimizers.{name}", side_effect=refused))
        yield


class BriefContract:
    """Tests of every method in the default tier."""

    def test_queries_lie_in_the_space_and_use_only_declared_fidelities(self, case: Case) -> None:
        declared = METHODS[case.method].fidelities
        for event in run(case.make(mixed_space()), 12):
            if isinstance(event, Asked):
                query = event.query
                assert (
                    Query.from_json(json.loads(json.dumps(query.to_json())), mixed_space()) == query
                )
                assert "subset" in declared or query.subset == 1
                assert "epochs" in declared or query.epochs is None
                assert "folds" in declared or query.folds is None

    def test_equal_seeds_give_equal_queries_and_different_seeds_give_different_queries(
        self, case: Case
    ) -> None:
        asked = [run(case.make(mixed_space(), seed), 12) for seed in (1, 1, 2)]
        assert asked[0] == asked[1] != asked[2]

    def test_replay_equals_an_uninterrupted_run(self, case: Case) -> None:
        """Two queries are pending; only the memo of the last ask is used, without refits."""
        unbroken, space = case.make(mixed_space()), mixed_space()
        events = [through_json(event, space) for event in run(unbroken, 9, leaves=2)]
        memo = json.dumps(unbroken.memo)
        assert len(memo) < 50_000
        resumed = case.make(space)
        with nothing_is_fitted():
            replay(resumed, events, json.loads(memo))
            assert resumed.decisions == unbroken.decisions
        assert len(resumed.history.pending) == 2
        assert run(resumed, 6, first=9) == run(unbroken, 6, first=9)

    def test_pending_queries_are_distinct(self, case: Case) -> None:
        optimizer = case.make(mixed_space())
        run(optimizer, 6)
        asked = [optimizer.ask(Budget()).configuration for _ in range(6)]
        assert len(set(asked)) == 6

    @pytest.mark.parametrize("loss", [None, 7.0])
    def test_search_continues_after_only_failures_or_only_equal_losses(
        self, case: Case, loss: float | None
    ) -> None:
        optimizer = case.make(mixed_space())
        for number in range(20):
            query = optimizer.ask(Budget(number, 20 - number))
            assert optimizer.reason is not None
            assert optimizer.reason.text
            optimizer.tell(told(number, query, loss))
        assert (optimizer.incumbent is None) == (loss is None)


class OptimizerContract(BriefContract):
    """Further tests of every method."""

    @pytest.mark.parametrize("space", [sparse_space(), ignoring_space()], ids=lambda s: s.name)
    def test_proposed_paths_are_canonical_in_spaces_with_dependent_steps(
        self, case: Case, space: Space
    ) -> None:
        for event in run(case.make(space), 3 if space.name == "sparse" else 15):
            if isinstance(event, Asked):
                path = event.query.configuration.path
                assert space.canonical_path(path, settle=False) == path

    def test_search_repeats_no_configuration_and_reports_an_exhausted_space(
        self, case: Case
    ) -> None:
        optimizer = case.make(finite_space())
        queries = []
        while len(queries) < 50:
            try:
                queries.append(optimizer.ask(Budget()))
            except NotYet:
                waiting = optimizer.history.pending[0]
                optimizer.tell(told(waiting.number, waiting.query, 5.0))
            except SpaceExhausted:
                break
        assert len({q.configuration for q in queries}) == 5
        assert len(set(queries)) == len(queries) < 50

    def test_decisions_are_rendered_as_lines_at_every_stage(self, case: Case) -> None:
        optimizer = case.make(mixed_space())
        for number in range(18):
            render = optimizer.method.render_decisions
            lines = list(render(optimizer.decisions, str))
            query = optimizer.ask(Budget(number, 18 - number))
            lines += render(json.loads(json.dumps(optimizer.decisions)), str)
            lines += optimizer.notes
            assert all(line.strip() and "\n" not in line for line in lines)
            optimizer.tell(told(number, query, loss_of(query)))

    def test_configurations_climb_rungs_and_the_incumbent_has_a_loss(self, case: Case) -> None:
        """The number of trials stays within the limit, and some trials are evaluated in full."""
        optimizer = case.make(mixed_space())
        simulation(case, optimizer, trials=12).run()
        history, answer = optimizer.history, optimizer.incumbent
        assert len(history.asked) == 12
        assert not history.pending
        for configuration in history.asked:
            stretches = history.trials_of(configuration)
            shares = [share_of(t.query, case.objective) for t in stretches]
            assert shares == sorted(set(shares))
            # What failed on few rows alone is not known to fail on more.
            assert all(t.loss is not None or t.query.subset < 1 for t in stretches[:-1])
        assert history.complete
        assert answer is not None
        assert answer.loss is not None
        assert optimizer.weights == {answer.number: 1.0}

    def test_method_without_trials_left_promotes_or_waits_and_waiting_changes_no_state(
        self, case: Case
    ) -> None:
        asked, twin = case.make(mixed_space()), case.make(mixed_space())
        if not asked.resumes_configurations:
            asked.ask(Budget(trials_left=1))
            with pytest.raises(RuntimeError, match="beyond the budget"):
                asked.ask(Budget(trials_left=0))
            return
        queries = [asked.ask(Budget(trials_left=4 - n)) for n in range(4)]
        assert queries == [twin.ask(Budget(trials_left=4 - n)) for n in range(4)]
        for _ in range(3):
            with pytest.raises(NotYet):
                asked.ask(Budget(trials_left=0))
        for optimizer in (asked, twin):
            for number, query in enumerate(queries):
                optimizer.tell(told(number, query, 4.0 - number))
        if all(query.is_full for query in queries):
            with pytest.raises(SpaceExhausted):
                asked.ask(Budget(trials_left=0))
            return
        resumed = asked.ask(Budget(trials_left=0))
        assert resumed == twin.ask(Budget(trials_left=0))
        assert resumed.configuration in {q.configuration for q in queries}
        assert asked.history[4].query == resumed


def simulation(case: Case, optimizer: Optimizer, *, trials: int) -> Simulation:
    """Return a simulation with three workers of different speeds, and noisy partial losses."""

    def outcome(query: Query) -> Outcome:
        seconds = share_to_do(query, optimizer) * (1 + len(query.configuration.canonical) % 7)
        return blurred(loss_of(query), query, share_of(query, case.objective)), seconds

    return Simulation(optimizer, outcome, 3, trials)
