"""Successive halving and Hyperband: each rung promotes its best configurations, one in eta.

Jamieson and Talwalkar 2016 (one bracket); Li et al. 2018, algorithm 1 (brackets in turn):

    s_max = floor(log_eta R), levels R eta^-s   choose_rungs, counted_levels
    n = ceil(B / R * eta^s / (s + 1))           hyperband_plan; for halving Halving.plan
    get_hyperparameter_configuration(n)         Halving.begin
    n_i = floor(n eta^-i), top_k(T, L, n_i)     Bracket.promotion, by n_promoted and ranked
    run_then_return_val_loss(t, r_i)            Rungs.query
    the configuration of the least loss         Halving.incumbent, by full evaluations if any

Departures from the papers:

- A rung is decided once all its runs have ended. Until the decision, free workers start the next
  bracket, as in BOHB (Falkner et al. 2018).
- Training is resumed from the rung below.
- Infeasible runs rank last, and failed runs drop out.
- If only some models train in epochs, the other models have brackets of their own, with subsets of
  the rows. Models of both kinds are compared by full evaluations only (`Ladder`).
- After the bracket with s = 0, brackets start again at s_max.
- If the budget allows no more configurations, or the seconds left are too few for the further
  rungs, the first rung is decided with fewer.

`choose_rungs` uses the requested fidelity, or else the most useful fidelity of the study.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from math import inf
from typing import Any, ClassVar

from numpy.random import Generator

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Fidelity, Method, Reason
from prefect_tune.optimizers.methods.declarations import HALVING, HYPERBAND, BracketOptions
from prefect_tune.optimizers.optimizer import REPEATED, NotYet, Optimizer
from prefect_tune.optimizers.space.configuration import ROWS_PER_CLASS, Configuration, Query
from prefect_tune.optimizers.space.sampling import SpaceExhausted, new_configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.vectors import CandidateSpace
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import LEAST_ROWS, Objective
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.optimizers.trials.trial import Trial


@dataclass(frozen=True)
class Rungs:
    """The levels of one fidelity (epochs, folds or shares of rows), up to the full evaluation.

    Attributes:
        fidelity: Fidelity that grows from rung to rung.
        levels: Level on each rung, in increasing order.
    """

    fidelity: Fidelity
    levels: tuple[float, ...]

    def query(self, configuration: Configuration, rung: int) -> Query:
        """Return the query for a configuration on a rung, counted from 0."""
        if rung == len(self.levels) - 1:
            return Query(configuration)
        asked: dict[str, Any] = {self.fidelity: self.levels[rung]}
        return Query(configuration, **asked)

    def level(self, query: Query) -> float:
        """Return the level of a query."""
        return self.levels[-1] if query.is_full else getattr(query, self.fidelity)

    def share(self, query: Query) -> float:
        """Return the level of a query as a fraction of the level of a full evaluation."""
        return self.level(query) / self.levels[-1]


def counted_levels(total: int, eta: int) -> tuple[int, ...]:
    """Return `total * eta^-k` for k = s..0, rounded and at least 1 (Li et al. 2018, algorithm 1).

    `total` is R, at least 2. s is the largest integer with `eta^s <= total`, at least 1, found by
    multiplication because logarithms are inexact.
    """
    s = 1
    while eta ** (s + 1) <= total:
        s += 1
    return tuple(max(1, round(total / eta**k)) for k in range(s, -1, -1))


def n_promoted(n: int, eta: int) -> int:
    """Return the number of runs to promote: n / eta, rounded down, but at least one."""
    return max(1, n // eta)


def promotable(best: Iterable[Trial], gone: Collection[Configuration]) -> Iterator[Trial]:
    """Yield the runs in `best` whose configurations are not in `gone`."""
    return (t for t in best if t.query.configuration not in gone)


def ranked(trials: Iterable[Trial], history: History) -> list[Trial]:
    """Return the trials with a loss, best first and infeasible trials last."""

    def key(trial: Trial) -> tuple[float, float, int]:
        loss = inf if trial.loss is None else trial.loss
        return max(history.violation(trial), 0.0), loss, trial.number

    return sorted((t for t in trials if t.loss is not None), key=key)


def all_begun() -> SpaceExhausted:
    """Return the exception for a study that can neither start nor promote a configuration."""
    return SpaceExhausted("all configurations that the budget allows have ended")


_MOST_SUBSETS = 4
"""Largest number of rungs of subsets."""
_ORDER: tuple[Fidelity, ...] = ("epochs", "subset", "folds")


def choose_rungs(space: Space, objective: Objective, options: BracketOptions) -> tuple[Rungs, str]:
    """Return the rungs of a study, and the reason for their fidelity as text for users.

    If the number of rows is unknown, subsets are assumed to be possible. Raises ValueError if the
    study supports no partial evaluations, or does not support the requested fidelity.
    """
    eta, wanted = options.eta, options.fidelity
    n_subsets = _n_subsets(objective, eta)
    obstacles = {
        "epochs": _no_epochs(space, objective),
        "subset": "" if n_subsets else _too_few_rows(objective, eta),
        "folds": ""
        if (objective.n_folds or 0) > 1
        else f"the study needs at least 2 folds; it has {objective.n_folds or 'none'}",
    }
    possible = [fidelity for fidelity in _ORDER if not obstacles[fidelity]]
    if wanted is not None and wanted not in possible:
        instead = " or ".join(f"fidelity={fidelity}" for fidelity in possible)
        raise ValueError(
            f"fidelity={wanted} is not possible: {obstacles[wanted]}; use "
            f"{instead or 'a method that evaluates in full, such as flash'}"
        )
    if not possible:
        listed = "; ".join(f"{fidelity}: {obstacles[fidelity]}" for fidelity in _ORDER)
        raise ValueError(
            f"this study allows no partial evaluations ({listed}); "
            "use a method that evaluates in full, such as flash"
        )
    reason = "as requested"
    if wanted is None:
        wanted, reason = possible[0], "models train in epochs"
        models = {a.id for a in space.steps[-1].algorithms}
        if n_subsets and not models <= objective.iterative:
            reason += "; other models, on subsets of the rows"
        are_few = n_subsets < len(counted_levels(objective.n_folds or 1, eta))
        if wanted == "subset" and are_few and "folds" in possible:
            wanted = "folds"
        if wanted != "epochs":
            reason = f"no model trains in epochs, and no fidelity has more rungs than {wanted}"
    if wanted == "subset":
        return Rungs("subset", subset_levels(objective, eta)), reason
    total = objective.epochs if wanted == "epochs" else objective.n_folds
    assert total is not None  # noqa: S101 - an obstacle otherwise
    return Rungs(wanted, counted_levels(total, eta)), reason


def _no_epochs(space: Space, objective: Objective) -> str:
    if objective.epochs is None:
        return "the study has no number of epochs (see --epochs)"
    if objective.epochs < 2:
        return f"the study needs at least 2 epochs; it has {objective.epochs}"
    if not any(a.id in objective.iterative for s in space.steps for a in s.algorithms):
        return f"no model of space {space.name!r} trains in epochs"
    return ""


def _too_few_rows(objective: Objective, eta: int) -> str:
    of_rarest = (
        f", and {ROWS_PER_CLASS} rows of the rarest class, which has {objective.n_rarest}"
        if objective.n_classes
        else ""
    )
    return (
        f"1/{eta} of the {objective.n_rows} training rows of a fold is too few; a "
        f"subset needs {_least_rows(objective)} rows{of_rarest}"
    )


def _n_subsets(objective: Objective, eta: int) -> int:
    """Return the largest s, at most 3, for which a fraction `eta^-s` of the rows is enough."""
    most = inf if objective.n_rows is None else objective.n_rows / _least_rows(objective)
    if objective.n_classes and objective.n_rarest is not None:
        most = min(most, objective.n_rarest / ROWS_PER_CLASS)
    return sum(eta**s <= most for s in range(1, _MOST_SUBSETS))


def subset_levels(objective: Objective, eta: int) -> tuple[float, ...]:
    """Return the shares of rows on the rungs: 1 and, as far as the rows are enough, `eta^-s`."""
    return tuple(1 / eta**s for s in range(_n_subsets(objective, eta), -1, -1))


def _least_rows(objective: Objective) -> int:
    return max(LEAST_ROWS, ROWS_PER_CLASS * (objective.n_classes or 0))


Plan = tuple[int, int]
"""Number of configurations of a bracket, and the rung on which they start, counted from 0."""


def hyperband_plan(index: int, n_rungs: int, eta: int) -> Plan:
    """Return the plan of Hyperband's bracket `index` (Li et al. 2018, algorithm 1).

    Bracket s starts `ceil((s_max + 1) / (s + 1) * eta^s)` configurations on the rung that is s
    rungs below the last. s falls from s_max to 0 and then returns to s_max.
    """
    s = n_rungs - 1 - index % n_rungs
    return -(-n_rungs * eta**s // (s + 1)), n_rungs - 1 - s


@dataclass(slots=True)
class Bracket:
    """One bracket of successive halving.

    A rung is decided once all its runs have ended. The best fraction 1/eta of the runs, at least
    one, is then promoted. Failed runs drop out.

    Attributes:
        number: Number of the bracket, from 0.
        size: Number of configurations that the bracket starts.
        first: Rung on which configurations start, from 0.
        eta: Factor between rungs.
        runs: Trial numbers on each rung of the bracket.
        is_closed: Whether the bracket accepts no more configurations.
    """

    number: int
    size: int
    first: int
    eta: int
    runs: list[list[int]]
    is_closed: bool = False

    @property
    def takes_more(self) -> bool:
        """Whether the bracket accepts more configurations."""
        return not self.is_closed and len(self.runs[0]) < self.size

    def promotion(self, history: History, *, closing: bool = False) -> Trial | None:
        """Return a run whose configuration should be promoted now; None if no run qualifies.

        If `closing`, the bracket gets no more configurations, and the first rung is decided without
        its pending runs.
        """
        if self.takes_more and not closing:
            return None
        for k, (rung, above) in enumerate(pairwise(self.runs)):
            trials = [history[number] for number in rung]
            n_told = sum(t.is_told for t in trials)
            if n_told < len(trials) and not (closing and k == 0):
                return None
            best = ranked(trials, history)[: n_promoted(n_told, self.eta)]
            gone = {history[number].query.configuration for number in above}
            if len(above) < len(best) and (run := next(promotable(best, gone), None)):
                return run
        return None


class Brackets:
    """All brackets of a ladder.

    A new configuration starts in the last bracket or, if the last bracket is full, in a new one. A
    known configuration stays in its bracket. `plan` maps a bracket's number to its plan.

    Attributes:
        places: Bracket of each configuration, and the highest rung on which the configuration is
            pending or was evaluated.
    """

    def __init__(self, n_rungs: int, eta: int, plan: Callable[[int], Plan]) -> None:
        self._n_rungs, self._eta, self._plan = n_rungs, eta, plan
        self._brackets: list[Bracket] = []
        self.places: dict[Configuration, tuple[Bracket, int]] = {}

    def enter(self, trial: Trial) -> None:
        """Register the next trial."""
        configuration = trial.query.configuration
        bracket, rung = self.next_of(configuration)
        if configuration in self.places:
            bracket.is_closed = True
        elif bracket.number == len(self._brackets):
            self._brackets.append(bracket)
        bracket.runs[rung - bracket.first].append(trial.number)
        self.places[configuration] = bracket, rung

    def promotion(self, history: History, *, n_closing: float = 0) -> Trial | None:
        """Return a run whose configuration should be promoted now, preferring older brackets.

        The first `n_closing` brackets get no more configurations.
        """
        found = (b.promotion(history, closing=b.number < n_closing) for b in self._brackets)
        return next((trial for trial in found if trial is not None), None)

    def next_of(self, configuration: Configuration) -> tuple[Bracket, int]:
        """Return the bracket and the next rung, counted from 0, of a configuration."""
        if configuration in self.places:
            bracket, rung = self.places[configuration]
            return bracket, rung + 1
        if self._brackets and self._brackets[-1].takes_more:
            return self._brackets[-1], self._brackets[-1].first
        number = len(self._brackets)
        size, first = self._plan(number)
        runs: list[list[int]] = [[] for _ in range(first, self._n_rungs)]
        return Bracket(number, size, first, self._eta, runs), first


def model_of(configuration: Configuration, space: Space) -> str:
    """Return the id of a configuration's model."""
    last = space.steps[-1]
    return last.algorithms[0].id if last.fixed else configuration.path[-1]


@dataclass
class Ladder:
    """The models that share a fidelity, with their own rungs and brackets.

    Attributes:
        space: Part of the space with these models.
        n_models: Number of models.
        spent: Number of evaluations proposed, each counted as a fraction of a full evaluation.
    """

    space: Space
    n_models: int
    rungs: Rungs
    brackets: Brackets
    spent: float = 0.0

    @cached_property
    def candidates(self) -> CandidateSpace:
        """The candidates for new configurations."""
        return CandidateSpace(self.space)


_PROMOTED = "among the best of the rung below"


class Halving(Optimizer):
    """Successive halving of random configurations.

    Raises ValueError if the study does not support the fidelity (see `choose_rungs`).
    """

    method: ClassVar[Method] = HALVING

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.rungs, self._reason = choose_rungs(self.space, self.objective, self.options)
        self.ladders: dict[Fidelity, Ladder] = {}
        last, models = self.space.steps[-1], dict[Fidelity, list[str]]()
        for algorithm in last.algorithms:
            models.setdefault(self._fidelity(algorithm.id), []).append(algorithm.id)
        for fidelity, ids in models.items():
            part, rungs = self.space, self.rungs
            if len(models) > 1:
                all_ids = {s.name: [a.id for a in s.algorithms] for s in self.space.searched}
                try:
                    part = self.space.restricted_to({**all_ids, last.name: ids})
                except ValueError:
                    continue  # no path that can run leads to these models
            if fidelity != rungs.fidelity:
                rungs = Rungs(fidelity, subset_levels(self.objective, self.options.eta))
            n = len(rungs.levels)
            brackets = Brackets(n, self.options.eta, partial(self.plan, n_rungs=n))
            self.ladders[fidelity] = Ladder(part, len(ids), rungs, brackets)
        self._drawn, self._n_entered = "", 0

    def _fidelity(self, model: str) -> Fidelity:
        """Return the fidelity for a model, given its id."""
        by_rows = self.rungs.fidelity == "epochs" and model not in self.objective.iterative
        return "subset" if by_rows else self.rungs.fidelity

    def ladder(self, configuration: Configuration) -> Ladder:
        """Return the ladder of a configuration."""
        return self.ladders[self._fidelity(model_of(configuration, self.space))]

    def told(self, trials: Iterable[Trial], ladder: Ladder, level: float) -> list[Trial]:
        """Return the trials that have ended at a level of a ladder."""
        own = (t for t in trials if t.is_told and self.ladder(t.query.configuration) is ladder)
        return [t for t in own if ladder.rungs.level(t.query) == level]

    def plan(self, index: int, n_rungs: int) -> Plan:  # noqa: ARG002 - brackets have equal plans
        """Return the plan of bracket `index` on a ladder."""
        return self.options.eta ** (n_rungs - 1), 0

    def begin(self, rng: Generator) -> Configuration:
        """Return a new configuration to start with, or raise SpaceExhausted.

        The configuration is drawn for the ladder whose models have had the least evaluations.
        """
        if (repeated := self._next_repeated()) is not None:
            self._drawn = REPEATED
            return repeated
        for ladder in sorted(self.ladders.values(), key=lambda one: one.spent / one.n_models):
            try:
                return self.draw(ladder, rng)
            except SpaceExhausted as exhausted:
                nothing_new = exhausted
        raise nothing_new

    def draw(self, ladder: Ladder, rng: Generator) -> Configuration:
        """Return a new configuration of a ladder, or raise SpaceExhausted."""
        self._drawn = "drawn at random"
        return new_configuration(ladder.space, self.history.asked, rng)

    @property
    def fewest_started(self) -> int:
        """Number of configurations that the first bracket starts."""
        return self.plan(0, len(self.rungs.levels))[0]

    @property
    def incumbent(self) -> Trial | None:
        """The best full trial or, before any full trial, the best trial on the highest rung."""
        if (best := self.history.incumbent) is not None:
            return best
        feasible = [t for t in self.history.stopped if self.history.violation(t) <= 0]
        return min(feasible, key=lambda t: (-self._share(t), t.loss, t.number), default=None)

    def _share(self, trial: Trial) -> float:
        return self.ladder(trial.query.configuration).rungs.share(trial.query)

    @property
    def decisions(self) -> dict[str, Any]:
        """The rungs, the number of runs on each, and the reason for the fidelity, as JSON."""
        rungs = [
            {
                "fidelity": fidelity,
                "level": level,
                "runs": len(runs := self.told(self.history, ladder, level)),
                "failed": sum(t.state == TrialState.FAILED for t in runs),
            }
            for fidelity, ladder in self.ladders.items()
            for level in ladder.rungs.levels
        ]
        decided: dict[str, Any] = {
            **super().decisions,
            "fidelity": self.rungs.fidelity,
            "reason": self._reason,
            "eta": self.options.eta,
            "levels": list(self.rungs.levels),
            "rungs": rungs,
        }
        if not self.history.complete and (
            self.history.stopped or (self.history.failed and self.history.pending)
        ):
            size = self.fewest_started
            note = f"the budget is too small for a bracket, which starts {size} configurations"
            decided["notes"] = [f"no configuration was evaluated in full: {note}"]
        return decided

    def _propose(self, budget: Budget, rng: Generator) -> Query:
        for number in range(self._n_entered, len(self.history)):
            trial = self.history[number]
            ladder = self.ladder(trial.query.configuration)
            ladder.brackets.enter(trial)
            ladder.spent += ladder.rungs.share(trial.query)
        self._n_entered = len(self.history)
        # Each rung costs about as much as the first: a short budget must end the first rung early.
        left, n_rungs = budget.seconds_left, max(len(x.rungs.levels) for x in self.ladders.values())
        is_short = left is not None and (n_rungs - 1) * budget.seconds_spent > left
        if (run := self._promotion(n_closing=int(is_short))) is not None:
            return self._query(run.query.configuration, _PROMOTED)
        nothing_new = all_begun()
        if budget.trials_left != 0:
            try:
                return self._query(self.begin(rng), self._drawn)
            except SpaceExhausted as exhausted:
                nothing_new = exhausted
        if (run := self._promotion(n_closing=inf)) is not None:
            return self._query(run.query.configuration, _PROMOTED)
        if self.history.pending:
            raise NotYet
        raise nothing_new

    def _query(self, configuration: Configuration, why: str) -> Query:
        """Return the next query of a configuration, and set its reason."""
        ladder = self.ladder(configuration)
        bracket, rung = ladder.brackets.next_of(configuration)
        place = f"bracket {bracket.number + 1}, rung {rung + 1} of {len(ladder.rungs.levels)}"
        self._because = Reason(place, why)
        return ladder.rungs.query(configuration, rung)

    def _promotion(self, *, n_closing: float) -> Trial | None:
        brackets = (ladder.brackets for ladder in self.ladders.values())
        found = (b.promotion(self.history, n_closing=n_closing) for b in brackets)
        return next((trial for trial in found if trial is not None), None)


class Hyperband(Halving):
    """Hyperband: brackets that range from many configurations at low fidelity to few at full."""

    method: ClassVar[Method] = HYPERBAND

    def plan(self, index: int, n_rungs: int) -> Plan:
        """Return the plan of bracket `index` on a ladder."""
        return hyperband_plan(index, n_rungs, self.options.eta)
