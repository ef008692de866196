"""What every optimizer promises."""

import json
import subprocess
import sys
import textwrap
from typing import Any, ClassVar

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
    Query,
    RandomSearch,
    Retried,
    Space,
    SpaceExhausted,
    Told,
    Trial,
    make_optimizer,
    replay,
)


def loss_of(query: Query) -> float | None:
    """A fixed loss that depends on path and values; one path in ten fails."""
    text = query.configuration.canonical
    digits = sum(ord(c) * (i + 1) for i, c in enumerate(text))
    return None if digits % 10 == 0 else (digits % 997) / 10


class OptimizerContract:
    """Inherit and set `method`; `options` are those of the method under test."""

    method: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}
    objective: ClassVar[Objective] = Objective(
        chance=50.0,
        n_rows=9_000,
        n_held_out=4_500,
        n_classes=2,
        n_rarest=3_000,
        n_folds=3,
        epochs=9,
        iterative=frozenset({"svm", "tree"}),
    )
    n_planted: ClassVar[int] = 6
    planted_work: ClassVar[float] = 40.0
    """Full evaluations, or as much work in parts of them, in each of those worlds."""
    margin: ClassVar[float] = 0.2
    """Percent points by which the mean best loss must be below that of random search."""
    margin_share: ClassVar[float] = 0.6
    """Share of the planted worlds in which it must be below."""

    def make(self, space: Space, seed: int = 0) -> Optimizer:
        return make_optimizer(self.method, space, seed, self.objective, self.options)

    def run(self, optimizer: Optimizer, n: int, *, first: int = 0) -> list[Event]:
        """Ask and tell n times, with two queries pending most of the time."""
        events: list[Event] = []
        pending: list[Trial] = []
        for number in range(first, first + n):
            query = optimizer.ask(Budget(trials_spent=number))
            events.append(Asked(number, query, Budget(trials_spent=number)))
            pending.append(Trial(number, query))
            if len(pending) > 2:
                events.append(self.tell(optimizer, pending.pop(0)))
        events += [self.tell(optimizer, trial) for trial in pending]
        return events

    def tell(self, optimizer: Optimizer, trial: Trial) -> Told:
        ended = told(trial.number, trial.query, loss_of(trial.query))
        optimizer.tell(ended)
        return Told(ended)

    @pytest.mark.parametrize(
        "space",
        [mixed_space(), sparse_space(), ordered_space(), ignoring_space()],
        ids=lambda s: s.name,
    )
    def test_queries_lie_in_the_space(self, space: Space) -> None:
        optimizer = self.make(space)
        n = {"sparse": 3, "ignoring": 25}.get(space.name, 12)
        for event in self.run(optimizer, n):
            if isinstance(event, Asked):
                path = event.query.configuration.path
                assert space.canonical(path) == path
                document = json.loads(json.dumps(event.query.to_json()))
                assert Query.from_json(document, space) == event.query

    def test_same_seed_and_same_told_losses_give_the_same_queries(self) -> None:
        first = self.run(self.make(mixed_space()), 15)
        assert self.run(self.make(mixed_space()), 15) == first

    def test_another_seed_gives_other_queries(self) -> None:
        assert self.run(self.make(mixed_space(), 1), 12) != self.run(
            self.make(mixed_space(), 2), 12
        )

    @pytest.mark.slow
    def test_another_process_with_another_hash_seed_asks_the_same(self) -> None:
        program = textwrap.dedent(f"""
            import json, sys
            sys.path.insert(0, {str(self._tests_folder())!r})
            from contracts.optimizer import OptimizerContract
            from worlds import mixed_space
            class Same(OptimizerContract):
                method = {self.method!r}
                options = {self.options!r}
            same = Same()
            events = same.run(same.make(mixed_space()), 10)
            print(json.dumps([e.to_json() for e in events]))
        """)
        there = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": "77", "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        here = [event.to_json() for event in self.run(self.make(mixed_space()), 10)]
        assert json.loads(there.stdout) == json.loads(json.dumps(here))

    def test_replay_equals_never_having_stopped(self) -> None:
        unbroken = self.make(mixed_space())
        events = self.run(unbroken, 9)
        space = mixed_space()
        kinds = {"ask": Asked, "tell": Told, "retry": Retried}
        stored = [(e.kind, json.loads(json.dumps(e.to_json()))) for e in events]
        resumed = self.make(space)
        memo = json.loads(json.dumps(unbroken.memo))  # of the last ask alone
        replay(resumed, [kinds[kind].from_json(body, space) for kind, body in stored], memo)
        assert self.run(resumed, 6, first=9) == self.run(unbroken, 6, first=9)

    def test_replay_with_queries_pending_equals_never_having_stopped(self) -> None:
        unbroken, resumed = self.make(mixed_space()), self.make(mixed_space())
        events: list[Event] = []
        for number in range(4):
            query = unbroken.ask(Budget())
            events.append(Asked(number, query, Budget()))
        events.append(self.tell(unbroken, Trial(1, events[1].query)))  # type: ignore[union-attr]
        replay(resumed, events, unbroken.memo)
        assert resumed.ask(Budget()) == unbroken.ask(Budget())
        assert len(resumed.history.pending) == 4

    def test_a_retried_trial_is_pending_again_and_can_be_told(self) -> None:
        optimizer = self.make(mixed_space())
        query = optimizer.ask(Budget())
        optimizer.tell(told(0, query, None))
        optimizer.retry(0)
        assert [t.number for t in optimizer.history.pending] == [0]
        optimizer.tell(told(0, query, 3.0))
        assert not optimizer.history.pending
        assert optimizer.history[0].loss == 3.0
        optimizer.ask(Budget())

    def test_it_asks_for_less_than_everything_only_in_its_fidelities(self) -> None:
        declared = METHODS[self.method].fidelities
        for event in self.run(self.make(mixed_space()), 12):
            if isinstance(event, Asked):
                assert "subset" in declared or event.query.subset == 1
                assert "epochs" in declared or event.query.epochs is None
                assert "folds" in declared or event.query.folds is None

    def test_it_asks_the_same_whatever_trials_take_unless_it_draws_on_cost(self) -> None:
        if METHODS[self.method].draws_on_cost:
            return
        asked = []
        for seconds in (1.0, 50.0):
            optimizer = self.make(mixed_space())
            queries = []
            for number in range(15):
                queries.append(query := optimizer.ask(Budget(number, 15 - number)))
                loss = loss_of(query) or 3.0
                outcome = evaluation(loss, seconds if number % 2 else 1.0)
                optimizer.tell(Trial(number, query).started().ended(outcome))
            asked.append(queries)
        assert asked[0] == asked[1]

    def test_it_says_why_it_asks(self) -> None:
        optimizer = self.make(mixed_space())
        assert optimizer.reason is None
        for number in range(12):
            query = optimizer.ask(Budget(number, 12 - number))
            reason = optimizer.reason
            assert reason is not None
            assert reason.phase
            assert reason.text
            assert "\n" not in reason.phase + reason.text
            optimizer.tell(told(number, query, loss_of(query)))

    def test_pending_queries_differ_from_one_another(self) -> None:
        optimizer = self.make(mixed_space())
        self.run(optimizer, 6)
        asked = [optimizer.ask(Budget()).configuration for _ in range(6)]
        assert len(set(asked)) == 6

    def test_an_exhausted_space_says_so_and_was_searched_without_repeats(self) -> None:
        optimizer = self.make(finite_space())
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

    def test_it_is_better_than_random_on_planted_worlds(self) -> None:
        margins = [
            self._best_of_planted(world, RandomSearch) - self._best_of_planted(world, None)
            for world in range(self.n_planted)
        ]
        assert np.mean(margins) >= self.margin
        assert np.mean(np.array(margins) > 0) >= self.margin_share

    def _best_of_planted(self, world: int, method: type[Optimizer] | None) -> float:
        """Loss of the incumbent after the work of that many full evaluations.

        A world has 12 paths; losses are percent, 10 at best.
        """
        space = counted_space((3, 4))
        loss_of_planted = planted_loss((3, 4), world)
        optimizer = method(space, world) if method else self.make(space, world)
        number, left = 0, self.planted_work
        while left > 1e-9:
            query = optimizer.ask(Budget(trials_spent=number, trials_left=int(np.ceil(left))))
            share = share_of(query, optimizer.objective)
            left -= share_to_do(query, optimizer)
            optimizer.tell(told(number, query, blurred(loss_of_planted(query), query, share)))
            number += 1
        incumbent = optimizer.incumbent
        best = loss_of_planted(incumbent.query) if incumbent else None
        return 100.0 if best is None else best

    def test_a_space_of_failures_raises_nothing(self) -> None:
        optimizer = self.make(mixed_space())
        for number in range(20):
            optimizer.tell(told(number, optimizer.ask(Budget()), None))
        assert optimizer.incumbent is None

    def test_equal_losses_raise_nothing(self) -> None:
        optimizer = self.make(mixed_space())
        for number in range(20):
            optimizer.tell(told(number, optimizer.ask(Budget()), 7.0))
        assert optimizer.incumbent is not None
        assert optimizer.incumbent.loss == 7.0
        if "subset" not in METHODS[self.method].fidelities:
            first = optimizer.history[0].query.configuration
            assert optimizer.incumbent.query.configuration == first

    def simulation(self, optimizer: Optimizer, *, trials: int, n_workers: int = 3) -> Simulation:
        """Workers of different speed, and losses that are blurred on less than everything."""

        def outcome(query: Query) -> Outcome:
            share = share_to_do(query, optimizer)
            seconds = share * (1 + len(query.configuration.canonical) % 7)
            return blurred(loss_of(query), query, share_of(query, self.objective)), seconds

        return Simulation(optimizer, outcome, n_workers, trials)

    def test_no_more_than_the_trials_are_begun_and_each_goes_on_upwards(self) -> None:
        optimizer = self.make(mixed_space())
        self.simulation(optimizer, trials=12).run()
        assert len(optimizer.history.asked) == 12
        assert not optimizer.history.pending
        for configuration in optimizer.history.asked:
            stretches = optimizer.history.stretches(configuration)
            shares = [share_of(t.query, self.objective) for t in stretches]
            assert shares == sorted(set(shares))
            # What failed on few rows alone is not known to fail on more.
            assert all(t.loss is not None or t.query.subset < 1 for t in stretches[:-1])

    def test_full_evaluations_are_asked_for_and_the_answer_has_a_loss(self) -> None:
        optimizer = self.make(mixed_space())
        self.simulation(optimizer, trials=12).run()
        assert optimizer.history.complete
        assert optimizer.incumbent is not None
        assert optimizer.incumbent.loss is not None
        assert optimizer.weights == {optimizer.incumbent.number: 1.0}

    def test_replay_equals_never_having_stopped_at_any_event(self) -> None:
        whole = self.simulation(self.make(mixed_space()), trials=8).run()
        for n in range(0, len(whole.events), 3):
            resumed = self._with_last_memo_alone(whole.events[:n])
            rest = [e for e in whole.events[n:] if isinstance(e, Asked | Told)]
            for event in rest[:4]:
                if isinstance(event, Told):
                    resumed.tell(event.trial)
                else:
                    assert resumed.ask(event.budget) == event.query

    def _with_last_memo_alone(self, events: list[Event]) -> Optimizer:
        optimizer = self.make(mixed_space())
        last = max((e.number for e in events if isinstance(e, Asked)), default=-1)
        replay(
            optimizer,
            [
                Asked(e.number, e.query, e.budget, e.memo if e.number == last else None)
                if isinstance(e, Asked)
                else e
                for e in events
            ],
        )
        return optimizer

    def test_when_none_may_be_begun_it_goes_on_or_waits_and_waiting_changes_nothing(self) -> None:
        asked, twin = self.make(mixed_space()), self.make(mixed_space())
        if not asked.can_go_on:
            asked.ask(Budget(trials_left=1))
            with pytest.raises(RuntimeError, match="begins a configuration though none is left"):
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

    @staticmethod
    def _tests_folder() -> str:
        return next(path for path in sys.path if path.rstrip("/").endswith("tests"))
