"""Racing by folds, around any method: who is clearly behind on the first fold ends there.

A configuration first runs one fold. If it is clearly behind the incumbent (`first_fold`) it stays
stopped, and the method is told a paired estimate of its loss; else it goes on with all folds, of
which the first is served, and the method is told what came of it. The method itself sees one trial
a configuration and knows of no folds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.optimizer import NotYet, Optimizer
from prefect_tune.optimizers.racing.first_fold import is_behind
from prefect_tune.optimizers.racing.told_evaluation import estimated, failed_later, joined
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.query import Query
from prefect_tune.optimizers.space.sampling import SpaceExhausted
from prefect_tune.optimizers.trials.bootstraps import Bootstraps
from prefect_tune.optimizers.trials.state import TrialState
from prefect_tune.optimizers.trials.trial import Trial

__all__ = ["Racing"]


class Racing(Optimizer):
    """A method whose configurations race, one fold at first and the others if they keep up.

    Many methods: all of the contract that speak of trials must speak of configurations.

    The history has the stretches, each a trial of its own; that of `inner` has one trial for each
    configuration, pending until it is known how far it goes.

    Args:
        inner: The method, new.

    Attributes:
        inner: The same.

    Raises:
        ValueError: If the method cannot be raced, or there is one fold only.
    """

    def __init__(self, inner: Optimizer) -> None:
        if inner.method.fidelities:
            asked_for = ", ".join(sorted(inner.method.fidelities))
            raise ValueError(
                f"method {inner.name!r} cannot be raced: it chooses itself how much to run "
                f"({asked_for})"
            )
        n_folds = inner.objective.n_folds
        if n_folds is not None and n_folds < 2:
            raise ValueError(f"a race needs 2 folds or more; there is {n_folds}")
        self.method = inner.method  # type: ignore[misc]  # it declares itself as what it races
        super().__init__(inner.space, inner.seed, inner.objective)
        self.options = inner.options
        self.inner = inner
        self._inner_of: dict[int, int] = {}
        self._first: dict[int, int] = {}
        self._rest: dict[int, int] = {}

    @property
    def decisions(self) -> dict[str, Any]:
        """Those of the method, and the numbers of the race, as JSON values.

        Under `race`: `begun` configurations, of which `stopped` ended after their first fold.
        """
        ended = [i for i in self._first if i not in self._rest and self._is_told(i)]
        stopped = [i for i in ended if self.inner.history[i].failure is None]
        race = {"begun": len(self._first), "stopped": len(stopped)}
        return {**self.inner.decisions, "race": race}

    @property
    def notes(self) -> Sequence[str]:
        """Those of the method."""
        return self.inner.notes

    @property
    def bootstraps(self) -> Bootstraps | None:
        """Those of the method."""
        return self.inner.bootstraps

    @property
    def can_go_on(self) -> bool:
        """Configurations that keep up go on, also when no more may be begun."""
        return True

    @property
    def incumbent(self) -> Trial | None:
        """The trial of the configuration that the method would choose, if that ran all folds."""
        chosen = self.inner.incumbent
        if chosen is None or chosen == self.inner.history.incumbent:
            return self.history.incumbent
        whole = self._whole(chosen.number)
        return self.history.incumbent if whole is None else self.history[whole]

    @property
    def weights(self) -> Mapping[int, float]:
        """Those of the method, shared out again among the configurations that ran all folds."""
        chosen, weights = self.inner.incumbent, self.inner.weights
        if chosen is None or weights == {chosen.number: 1.0}:
            return super().weights
        wholes = {self._whole(i): weight for i, weight in weights.items()}
        known = {number: weight for number, weight in wholes.items() if number is not None}
        total = sum(known.values())
        return {n: weight / total for n, weight in known.items()} if total else super().weights

    def begin_with(self, start: Iterable[Configuration]) -> None:
        """Let these race first, in their order."""
        self.inner.begin_with(start)

    def restore(self, number: int, query: Query, memo: Mapping[str, Any] | None) -> None:
        """Take an ask of an earlier process; a first fold was an ask of the method inside."""
        if number == self._n_asks and not query.is_full:
            whole = replace(query, folds=None)
            self.inner.restore(len(self.inner.history), whole, None)
        super().restore(number, query, memo)

    def retry(self, number: int) -> None:
        """Count a failed stretch, and so its configuration, as pending again."""
        super().retry(number)
        self.inner.retry(self._inner_of[number])

    def measure(self, number: int, constraints: Mapping[str, float]) -> None:
        """Take quantities of a stretch; the last one of a configuration has those that count."""
        super().measure(number, constraints)
        i = self._inner_of[number]
        is_last = self._rest.get(i, number) == number
        if is_last and self.inner.history[i].evaluation is not None:
            self.inner.measure(i, constraints)
        self._stop_behind()

    def _propose(self, budget: Budget, rng: np.random.Generator) -> Query:  # noqa: ARG002
        """Return what keeps up, to go on; else the first fold of what the method asks for."""
        if waiting := self._waiting():
            return self.inner.history[waiting[0]].query
        try:
            query = self._begun(budget)
        except SpaceExhausted:
            if self.history.pending:  # one of them may keep up
                raise NotYet from None
            raise
        self.memo = self.inner.memo
        return replace(query, folds=1)

    def _begun(self, budget: Budget) -> Query:
        if budget.trials_left == 0:
            raise SpaceExhausted("no configuration is left to go on with")
        n_told = sum(trial.is_told for trial in self.inner.history)
        return self.inner.ask(replace(budget, trials_spent=n_told))

    def _restore(self, memo: Mapping[str, Any]) -> None:
        super()._restore(memo)
        self.inner._restore(memo)  # noqa: SLF001 - its own, whichever ask was the last

    def _register(self, query: Query) -> None:
        """Enter a stretch; the first one of a configuration was asked of the method just now."""
        number = self._n_asks
        if query.is_full:
            i = self._going_on(query)
            self._rest[i] = number
        else:
            i = len(self.inner.history) - 1
            self._first[i] = number
        self._inner_of[number] = i
        super()._register(query)

    def _going_on(self, query: Query) -> int:
        """Return the method's number of a configuration that goes on.

        Raises:
            ValueError: If its first fold was not run.
        """
        found = [
            i
            for i, number in self._first.items()
            if self.history[number].query.configuration == query.configuration
            and self.history[number].state == TrialState.STOPPED
            and i not in self._rest
        ]
        if not found:
            raise ValueError(
                f"trial {self._n_asks} goes on with a configuration that has no first fold"
            )
        i = min(found, key=lambda i: (self._is_told(i), i))
        if self._is_told(i):  # a constraint has changed since, and with it who was the incumbent
            self.inner.history.record(self.inner.history[i].waiting())
        return i

    def _observe(self, trial: Trial) -> None:
        i = self._inner_of[trial.number]
        asked = replace(self.inner.history[i], attempts=trial.attempts)
        first = self.history[self._first[i]].evaluation if trial.query.is_full else None
        if trial.failure is not None:
            failure = failed_later(first, trial.failure) if first else trial.failure
            self.inner.tell(asked.failed(failure))
        elif first is not None and trial.evaluation is not None:
            self.inner.tell(asked.completed(joined(first, trial.evaluation)))
        self._stop_behind()

    def _stop_behind(self) -> None:
        """Tell the method of those that are clearly behind, and will not go on.

        Whenever an outcome is told: the incumbent may be another one.
        """
        incumbent = self.history.incumbent
        best = incumbent.evaluation if incumbent else None
        for i in self._waiting() if best else ():
            first = self.history[self._first[i]]
            if first.evaluation and best and is_behind(first.evaluation, best, self.history):
                asked = replace(self.inner.history[i], attempts=first.attempts)
                told = estimated(first.evaluation, best, self.objective)
                self.inner.tell(asked.completed(told))

    def _waiting(self) -> list[int]:
        """Return the method's numbers of configurations that may go on."""
        return [
            i
            for i, number in self._first.items()
            if i not in self._rest
            and not self._is_told(i)
            and self.history[number].state == TrialState.STOPPED
        ]

    def _whole(self, i: int) -> int | None:
        """Return the trial of all folds of a configuration of the method, if it is complete."""
        number = self._rest.get(i)
        is_complete = number is not None and self.history[number].state == TrialState.COMPLETE
        return number if is_complete else None

    def _is_told(self, i: int) -> bool:
        return self.inner.history[i].is_told
