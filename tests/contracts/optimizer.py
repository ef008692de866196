"""What every optimizer promises: all of it a method, and what options can break each variant."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
import pytest
from flash_worlds import counted_space, planted_loss
from simulation import Outcome, Simulation, blurred, share_of, share_to_do
from worlds import (
    evaluation,
    finite_space,
    ignoring_space,
    mixed_space,
    ordered_space,
    sparse_space,
    told,
)

from prefect_tune.optimizers import (
    METHODS,
    Asked,
    Budget,
    Event,
    NotYet,
    Objective,
    Optimizer,
    Prior,
    PriorTrial,
    Query,
    Racing,
    RandomSearch,
    Space,
    SpaceExhausted,
    Told,
    Trial,
    best_and_diverse,
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
_SPACES = [mixed_space(), sparse_space(), ordered_space(), ignoring_space()]
_N_ASKS = {"sparse": 3, "ignoring": 15}
_UNRENDERED = {"admm"}
"""Methods whose decisions are for programs alone."""
_FITS = (
    "models.gaussian_process.GaussianProcess.fit",
    "models.forest.RandomForestRegressor",
    "methods.fabolas.belief.EnsembleSampler",
)


@dataclass(frozen=True)
class Planted:
    """What is promised in worlds of 12 paths, whose losses are percent, 10 at best.

    Attributes:
        worlds: How many there are.
        work: Full evaluations, or as much work in parts of them, in each.
        margin: Percent points by which the mean best loss must be below that of random search.
        share: Share of the worlds in which it must be below.
    """

    worlds: int = 6
    work: float = 40.0
    margin: float = 0.2
    share: float = 0.6


@dataclass(frozen=True)
class Case:
    """A method with options.

    Attributes:
        method: Its name.
        options: Those given.
        objective: What it is told of the study.
        planted: Its promise in planted worlds, None for none.
        is_raced: Whether its configurations race.
        has_prior: Whether it begins after an earlier run.
        tier: The mark of its tests, where they take more than a second.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    objective: Objective = OBJECTIVE
    planted: Planted | None = Planted()
    is_raced: bool = False
    has_prior: bool = False
    tier: Literal["", "slow", "full"] = ""

    def make(self, space: Space, seed: int = 0) -> Optimizer:
        made = make_optimizer(self.method, space, seed, self.objective, self.options)
        optimizer = Racing(made) if self.is_raced else made
        if self.has_prior:
            optimizer.begin_after(earlier_run(space))
        return optimizer


def earlier_run(space: Space, n_start: int = 4) -> Prior:
    """The prior of a random search of this space, by `loss_of`."""
    drawn = RandomSearch(space, 99)
    configurations = [drawn.ask(Budget()).configuration for _ in range(30)]
    losses = [loss_of(Query(configuration)) for configuration in configurations]
    trials = [PriorTrial(c, y) for c, y in zip(configurations, losses, strict=True) if y]
    return Prior(tuple(trials), best_and_diverse(trials, n_start), "last night")


def each(cases: Mapping[str, Case]) -> pytest.MarkDecorator:
    """The tests of a class for each of some cases."""
    marks = {"": (), "slow": pytest.mark.slow, "full": pytest.mark.full}
    values = [pytest.param(case, id=name, marks=marks[case.tier]) for name, case in cases.items()]
    return pytest.mark.parametrize("case", values)


def heedless_of_cost(cases: Mapping[str, Case]) -> dict[str, Case]:
    """Those whose methods declare that what trials take changes no ask."""
    return {n: case for n, case in cases.items() if not METHODS[case.method].draws_on_cost}


def loss_of(query: Query) -> float | None:
    """A fixed loss that depends on path and values; one path in ten fails."""
    text = query.configuration.canonical
    digits = sum(ord(c) * (i + 1) for i, c in enumerate(text))
    return None if digits % 10 == 0 else (digits % 997) / 10


def run(optimizer: Optimizer, n: int, *, first: int = 0, leaves: int = 0) -> list[Event]:
    """Ask and tell n times, with two queries pending most of the time, and some at the end."""
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
    """The event as it comes back from the ledger."""
    return event_of(event.kind, json.loads(json.dumps(event_document(event))), space)


@contextmanager
def nothing_is_fitted() -> Iterator[None]:
    """Let all that is expensive to learn fail."""
    with ExitStack() as stack:
        for name in _FITS:
            stack.enter_context(patch(f"prefect_tune.optimizers.{name}", _refuse))
        yield


def _refuse(*_: Any, **__: Any) -> Any:
    raise AssertionError("a replay fits nothing")


class BriefContract:
    """What takes a method a second."""

    def test_replay_equals_never_having_stopped(self, case: Case) -> None:
        """With two queries pending, the memo of the last ask alone, and nothing fitted anew."""
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

    def test_it_says_why_it_asks_and_what_it_decided_at_every_stage(self, case: Case) -> None:
        optimizer = case.make(mixed_space())
        assert optimizer.reason is None
        for number in range(18):
            self._render(optimizer)
            query = optimizer.ask(Budget(number, 18 - number))
            reason = optimizer.reason
            assert reason is not None
            assert reason.phase
            assert reason.text
            assert "\n" not in reason.phase + reason.text
            self._render(optimizer)
            optimizer.tell(told(number, query, loss_of(query)))
        of_method = optimizer.decisions.keys() - {"race", "prior"}
        has_lines = bool(of_method) and case.method not in _UNRENDERED
        assert bool(self._render(optimizer)) == has_lines

    def _render(self, optimizer: Optimizer) -> list[str]:
        """The lines about decisions, once they and all notes are found to be lines."""
        decisions = json.loads(json.dumps(optimizer.decisions))
        assert decisions == optimizer.decisions
        lines = list(optimizer.method.render_decisions(decisions))
        assert all(line.strip() and "\n" not in line for line in [*lines, *optimizer.notes])
        return lines

    def test_a_space_of_failures_raises_nothing(self, case: Case) -> None:
        optimizer = case.make(mixed_space())
        for number in range(20):
            optimizer.tell(told(number, optimizer.ask(Budget()), None))
        assert optimizer.incumbent is None


class VariantContract(BriefContract):
    """What a variant or an option of a method can break."""

    @pytest.mark.parametrize("space", _SPACES, ids=lambda s: s.name)
    def test_queries_lie_in_the_space(self, case: Case, space: Space) -> None:
        for event in run(case.make(space), _N_ASKS.get(space.name, 12)):
            if isinstance(event, Asked):
                path = event.query.configuration.path
                assert space.canonical_path(path, settle=False) == path
                document = json.loads(json.dumps(event.query.to_json()))
                assert Query.from_json(document, space) == event.query

    def test_same_seed_and_same_told_losses_give_the_same_queries(self, case: Case) -> None:
        assert run(case.make(mixed_space()), 15) == run(case.make(mixed_space()), 15)

    def test_an_exhausted_space_says_so_and_was_searched_without_repeats(self, case: Case) -> None:
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
        with pytest.raises(SpaceExhausted, match="finite"):
            optimizer.ask(Budget())


class OptimizerContract(VariantContract):
    """What a method promises besides."""

    def test_another_seed_gives_other_queries(self, case: Case) -> None:
        assert run(case.make(mixed_space(), 1), 12) != run(case.make(mixed_space(), 2), 12)

    def test_a_retried_trial_is_pending_again_and_can_be_told(self, case: Case) -> None:
        optimizer = case.make(mixed_space())
        query = optimizer.ask(Budget())
        optimizer.tell(told(0, query, None))
        optimizer.retry(0)
        assert [t.number for t in optimizer.history.pending] == [0]
        optimizer.tell(told(0, query, 3.0))
        assert not optimizer.history.pending
        assert optimizer.history[0].loss == 3.0
        optimizer.ask(Budget())

    def test_it_asks_for_less_than_everything_only_in_its_fidelities(self, case: Case) -> None:
        declared = METHODS[case.method].fidelities
        for event in run(case.make(mixed_space()), 12):
            if isinstance(event, Asked):
                assert "subset" in declared or event.query.subset == 1
                assert "epochs" in declared or event.query.epochs is None
                assert "folds" in declared or event.query.folds is None

    def test_pending_queries_differ_from_one_another(self, case: Case) -> None:
        optimizer = case.make(mixed_space())
        run(optimizer, 6)
        asked = [optimizer.ask(Budget()).configuration for _ in range(6)]
        assert len(set(asked)) == 6

    def test_equal_losses_raise_nothing(self, case: Case) -> None:
        optimizer = case.make(mixed_space())
        for number in range(20):
            optimizer.tell(told(number, optimizer.ask(Budget()), 7.0))
        assert optimizer.incumbent is not None
        assert optimizer.incumbent.loss == 7.0
        if "subset" not in METHODS[case.method].fidelities:
            first = optimizer.history[0].query.configuration
            assert optimizer.incumbent.query.configuration == first

    def test_each_configuration_climbs_rungs_and_the_answer_has_a_loss(self, case: Case) -> None:
        """With no more than the trials begun, and some evaluated in full."""
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

    def test_replay_equals_never_having_stopped_at_any_event(self, case: Case) -> None:
        whole = simulation(case, case.make(mixed_space()), trials=8).run()
        for n in range(0, len(whole.events), 3):
            resumed = self._with_last_memo_alone(case, whole.events[:n])
            rest = [e for e in whole.events[n:] if isinstance(e, Asked | Told)]
            for event in rest[:4]:
                if isinstance(event, Told):
                    resumed.tell(event.trial)
                else:
                    assert resumed.ask(event.budget) == event.query

    def _with_last_memo_alone(self, case: Case, events: list[Event]) -> Optimizer:
        optimizer = case.make(mixed_space())
        last = max((e.number for e in events if isinstance(e, Asked)), default=-1)
        is_bare = lambda e: isinstance(e, Asked) and e.number != last  # noqa: E731
        replay(optimizer, [replace(e, memo=None) if is_bare(e) else e for e in events])  # type: ignore[type-var]
        return optimizer

    def test_when_none_may_begin_it_promotes_or_waits_and_waiting_changes_nothing(
        self, case: Case
    ) -> None:
        asked, twin = case.make(mixed_space()), case.make(mixed_space())
        if not asked.resumes_configurations:
            asked.ask(Budget(trials_left=1))
            with pytest.raises(RuntimeError, match="none is left"):
                asked.ask(Budget(trials_left=0))
            return
        queries = [asked.ask(Budget(trials_left=4 - n)) for n in range(4)]
        assert queries == [twin.ask(Budget(trials_left=4 - n)) for n in range(4)]
        for _ in range(3):
            with pytest.raises(NotYet):
                asked.ask(Budget(trials_left=0))
        assert asked.reason == twin.reason
        for optimizer in (asked, twin):
            for number, query in enumerate(queries):
                optimizer.tell(told(number, query, 4.0 - number))
        if all(query.is_full for query in queries):
            with pytest.raises(SpaceExhausted):
                asked.ask(Budget(trials_left=0))
            return
        gone_on = asked.ask(Budget(trials_left=0))
        assert gone_on == twin.ask(Budget(trials_left=0))
        assert gone_on.configuration in {q.configuration for q in queries}
        assert asked.history[4].query == gone_on


class HeedlessContract:
    """What a method promises that does not draw on cost."""

    def test_it_asks_the_same_whatever_trials_take(self, case: Case) -> None:
        asked = []
        for seconds in (1.0, 50.0):
            optimizer = case.make(mixed_space())
            queries = []
            for number in range(15):
                queries.append(query := optimizer.ask(Budget(number, 15 - number)))
                loss = loss_of(query) or 3.0
                outcome = evaluation(loss, seconds if number % 2 else 1.0)
                optimizer.tell(Trial(number, query).started().completed(outcome))
            asked.append(queries)
        assert asked[0] == asked[1]


def simulation(case: Case, optimizer: Optimizer, *, trials: int) -> Simulation:
    """Three workers of different speed, and losses that are blurred on less than everything."""

    def outcome(query: Query) -> Outcome:
        seconds = share_to_do(query, optimizer) * (1 + len(query.configuration.canonical) % 7)
        return blurred(loss_of(query), query, share_of(query, case.objective)), seconds

    return Simulation(optimizer, outcome, 3, trials)


def margins_over_random(case: Case) -> np.ndarray:
    """In each planted world, by how much its best loss is below that of random search."""
    assert case.planted is not None
    found = []
    for world in range(case.planted.worlds):
        space = counted_space((3, 4))
        of_random, of_case = (
            _best_of_planted(optimizer, world, case.planted.work)
            for optimizer in (RandomSearch(space, world), case.make(space, world))
        )
        found.append(of_random - of_case)
    return np.array(found)


def _best_of_planted(optimizer: Optimizer, world: int, left: float) -> float:
    """Loss of the incumbent after the work of that many full evaluations."""
    loss_of_planted, number = planted_loss((3, 4), world), 0
    while left > 1e-9:
        query = optimizer.ask(Budget(trials_spent=number, trials_left=int(np.ceil(left))))
        share = share_of(query, optimizer.objective)
        left -= share_to_do(query, optimizer)
        optimizer.tell(told(number, query, blurred(loss_of_planted(query), query, share)))
        number += 1
    best = loss_of_planted(optimizer.incumbent.query) if optimizer.incumbent else None
    return 100.0 if best is None else best
