"""The interface of all methods: ask for a query, tell the outcome, and restore earlier asks.

An optimizer's state is a fold over its events. The random numbers of an ask depend on the seed and
the number of earlier asks, so a process that replays the events continues exactly like the process
that recorded the events.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from math import isfinite
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.documents import UnknownName
from prefect_tune.optimizers.method import Method, Reason, ordinal
from prefect_tune.optimizers.models.seconds import Costs
from prefect_tune.optimizers.space.configuration import Configuration, Query, part_of
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.earlier import N_START, Prior
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import Bootstraps, Objective
from prefect_tune.optimizers.trials.trial import Trial

KNOWN = "known configurations"
REPEATED = "among the best and most diverse of an earlier run"


class NotYet(Exception):  # noqa: N818 - not an error: the next outcome allows an answer
    """The next query depends on the outcome of a pending trial."""


class Optimizer(ABC):
    """A search method with an ask-and-tell interface.

    Calls are cheap and may come in any order, even while queries are pending. Subclasses implement
    `_propose`, which sets `_because`. Subclasses with state outside the history also implement
    `_observe` and `_restore`.

    Args:
        space: Space to search.
        seed: Seed of all random numbers.
        objective: Metric, constraints and size of the data; None to minimize an error in percent.
        options: Options of the method.

    Attributes:
        history: All trials proposed so far.
        costs: Predictor of the run times of queries, updated with each finished trial.
        has_partial_runs: Whether a race of the method's configurations starts with evaluations on
            part of the rows.
        inserted: Configurations that a race has added to the proposals of the method.
        memo: State that `replay` needs, as JSON values; None without such state.
        reason: Reason for the last proposal; None before the first ask of this process.

    Raises:
        UnknownName: If the method lacks a given option.
        TypeError, ValueError: If the value of an option is not valid.
    """

    method: ClassVar[Method]
    """Declaration of the method."""

    def __init__(
        self, space: Space, seed: int, objective: Objective | None = None, **options: Any
    ) -> None:
        known = [f.name for f in fields(self.method.options)]
        for option in options:
            if option not in known:
                raise UnknownName(f"option of method {self.name!r}:", option, known)
        self.space = space
        self.seed = seed
        self.objective = objective or Objective()
        self.options = self.method.options(**options)
        self.history = History(self.objective.constraints)
        self.costs = Costs(space, self.objective)
        self.has_partial_runs = False
        self._learns_costs = True
        self.memo: Mapping[str, Any] | None = None
        self.reason: Reason | None = None
        self._because: Reason | None = None
        self._n_asks = 0
        self._start: tuple[Configuration, ...] = ()
        self._start_name = ""
        self.inserted: set[Configuration] = set()

    @property
    def name(self) -> str:
        """Name of the method, as given to `--method`."""
        return self.method.name

    @property
    def decisions(self) -> dict[str, Any]:
        """Decisions of the method so far, as JSON values for users."""
        prior = self.history.prior
        if prior is None:
            return {}
        told = {t.query.configuration for t in self.history if t.is_told}
        transfer = self.history.older.transfer
        used = {
            "name": prior.name,
            "trials": len(prior.trials),
            "skipped": prior.n_skipped,
            "repeated": len(told & prior.losses.keys()),
            "pairs": transfer.n_pairs,
            "correlation": transfer.correlation,
            "weight": transfer.weight,
        }
        return {"prior": used}

    @property
    def notes(self) -> Sequence[str]:
        """Notes for users during the search. Each note is reported once."""
        return ()

    @staticmethod
    def refit(trial: Trial) -> Query:
        """Return the query for fitting the final model of a trial."""
        return trial.refit_query

    @property
    def bootstraps(self) -> Bootstraps | None:
        """The bootstraps for which evaluations must report risks; None if risks are not needed."""
        return getattr(self.options, "bootstraps", None)

    @property
    def is_of_paper(self) -> bool:
        """Whether the options select the paper's variant, which runs without additions."""
        return getattr(self.options, "variant", None) == "paper"

    @property
    def resumes_configurations(self) -> bool:
        """Whether configurations may be resumed when the budget allows no new configurations."""
        return bool(self.method.fidelities)

    @property
    def fewest_started(self) -> int:
        """Number of configurations that are started before the first full evaluation."""
        return 1

    @property
    def incumbent(self) -> Trial | None:
        """The trial that the method would choose now: by default the best full trial.

        Before the first full trial, the incumbent is the best partial trial.
        """
        return self.history.incumbent or self.history.best_partial

    @property
    def weights(self) -> Mapping[int, float]:
        """Weights of trials in the final model, by number; by default, only the incumbent."""
        return {} if self.incumbent is None else {self.incumbent.number: 1.0}

    def begin_with(self, start: Iterable[Configuration], name: str = KNOWN) -> None:
        """Propose known configurations first, each as a full evaluation.

        `name` is the phase shown in the reasons for these proposals. To resume a study, call this
        method before replaying events.

        Raises:
            ValueError: If the method chooses the fidelity of evaluations, or if an ask was already
                made.
        """
        if self.method.fidelities:
            asked_for = ", ".join(sorted(self.method.fidelities))
            raise ValueError(
                f"method {self.name!r} cannot begin with known configurations, because the method "
                f"chooses the fidelity of each evaluation ({asked_for})"
            )
        if self._n_asks:
            raise ValueError(f"the method has already proposed {self._n_asks} trials")
        self._start, self._start_name = tuple(dict.fromkeys(start)), name

    def begin_after(self, prior: Prior) -> None:
        """Re-evaluate `prior.start` first, and use `prior.trials` in the models.

        A prior with many observations replaces a portfolio. If the prior is dropped, the portfolio
        runs after all. Raises ValueError if an ask was already made.
        """
        if self._n_asks:
            raise ValueError(f"the method has already proposed {self._n_asks} trials")
        self.history.prior = prior

    def share_costs(self, costs: Costs) -> None:
        """Use the cost model of an optimizer that wraps this optimizer."""
        self.costs, self._learns_costs = costs, False

    def ask(self, budget: Budget) -> Query:
        """Return the next query, and set `memo` and `reason`.

        The query of the n-th ask, counted from 0, becomes trial n.

        Raises:
            NotYet: If the next query depends on the outcome of a pending trial.
            SpaceExhausted: If no query is left.
            RuntimeError: If the method waits although no trial is pending, exceeds the budget, or
                requests more folds or epochs than a full evaluation has.
        """
        sequence = np.random.SeedSequence(self.seed, spawn_key=(self._n_asks,))
        self._because = None
        try:
            query = self._next_of_start() or self._propose(budget, np.random.default_rng(sequence))
        except NotYet:
            if not self.history.pending:
                message = f"method {self.name!r} waits although no trial is pending"
                raise RuntimeError(message) from None
            raise
        if budget.trials_left == 0 and query.configuration not in self.history.asked:
            raise RuntimeError(f"method {self.name!r} proposes a configuration beyond the budget")
        try:
            # In a query, None stands for all folds or all epochs.
            folds = part_of(self.objective.n_folds, query.folds, "folds")
            epochs = part_of(self.objective.epochs, query.epochs, "epochs")
        except ValueError as error:
            raise RuntimeError(f"method {self.name!r} requests {error}") from None
        query = replace(query, folds=folds, epochs=epochs)
        self._register(query)
        self.reason = self._given_reason()
        return query

    def tell(self, trial: Trial) -> None:
        """Record the outcome of a trial that has ended.

        Raises ValueError if the trial was not proposed, has a different query, has not ended, was
        already told, or has a loss that is not finite.
        """
        asked = self.history.get(trial.number)
        if asked is None:
            raise ValueError(
                f"trial {trial.number} was never proposed; trials so far: 0 to {self._n_asks - 1}"
            )
        if asked.is_told:
            raise ValueError(f"trial {trial.number} was told before; call retry() to tell it again")
        if not trial.is_told:
            raise ValueError(f"trial {trial.number} is {trial.state}; call tell() after it ends")
        if trial.query != asked.query:
            raise ValueError(f"trial {trial.number} was proposed with another query")
        if trial.loss is not None and not isfinite(trial.loss):
            raise ValueError(f"trial {trial.number} has loss {trial.loss}; tell it as failed")
        self.history.record(trial)
        if self._learns_costs:
            self.costs.tell(trial)
        self._observe(trial)

    def retry(self, number: int) -> None:
        """Return a failed trial to pending; raises ValueError if the trial has not failed."""
        if number not in self.history or self.history[number].failure is None:
            raise ValueError(f"trial {number} has not failed, so it cannot be retried")
        self.history.record(self.history[number].retried())

    def restore(self, number: int, query: Query, memo: Mapping[str, Any] | None) -> None:
        """Record an ask of an earlier process; raises ValueError unless `number` is next."""
        if number != self._n_asks:
            raise ValueError(
                f"the events are not in order: they propose trial {number}, but trial "
                f"{self._n_asks} comes next"
            )
        if memo is not None:
            self._restore(memo)
        self._register(query)

    def _next_of_start(self) -> Query | None:
        if (repeated := self._next_repeated()) is not None and not self.method.fidelities:
            return Query(repeated)
        asked = self.history.asked
        if self._uses_ample_prior or not asked - self.inserted <= {*self._start, *self._repeated}:
            return None
        for number, known in enumerate(self._start, 1):
            if known not in asked:
                text = f"{ordinal(number)} of {len(self._start)} known configurations"
                self._because = Reason(self._start_name, text)
                return Query(known)
        return None

    def _next_repeated(self) -> Configuration | None:
        prior = self.history.prior
        if prior is None or self.history.older.transfer.is_dropped:
            return None
        for number, configuration in enumerate(self._repeated, 1):
            if configuration not in self.history.asked:
                text = (
                    f"{ordinal(number)} of {len(self._repeated)} configurations to evaluate again"
                )
                self._because = Reason(prior.name, text)
                return configuration
        return None

    @property
    def _repeated(self) -> tuple[Configuration, ...]:
        return () if self.history.prior is None else self.history.prior.start

    @property
    def _uses_ample_prior(self) -> bool:
        # If true, the observations of earlier runs replace the method's own start.
        prior = self.history.prior
        return prior is not None and len(prior.losses) >= N_START and len(self.history.older) > 0

    def _given_reason(self) -> Reason:
        return self._because or Reason(self.name)

    def _register(self, query: Query) -> None:
        self.history.record(Trial(self._n_asks, query))
        self._n_asks += 1

    @abstractmethod
    def _propose(self, budget: Budget, rng: Generator) -> Query:
        """Return the next query and set `_because`, or raise `NotYet` or `SpaceExhausted`."""

    def _observe(self, trial: Trial) -> None:  # noqa: B027 - most methods have no such state
        """Update state outside the history after a trial has ended."""

    def _restore(self, memo: Mapping[str, Any]) -> None:
        self.memo = memo
