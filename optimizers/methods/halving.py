"""Successive halving and Hyperband: each rung promotes the best 1/eta of its configurations.

Jamieson and Talwalkar 2016 (one bracket); Li et al. 2018, algorithm 1 (brackets in turn):

    s_max = floor(log_eta R), levels R eta^-s   choose_rungs, highest_s, counted_levels
    n = ceil(B / R * eta^s / (s + 1))           hyperband_plan; for halving Halving.plan
    get_hyperparameter_configuration(n)         Halving.begin
    n_i = floor(n eta^-i), top_k(T, L, n_i)     Bracket.promotion, by n_promoted and ranked
    run_then_return_val_loss(t, r_i)            Rungs.query
    the configuration of the least loss         Halving.incumbent, by full evaluations if any

Departures: a rung is decided when all its runs are told; meanwhile a free worker begins the next
bracket, as in BOHB (Falkner et al. 2018). Trainings are resumed from the rung below. Infeasible
runs rank last, and failed runs drop out. After s = 0, brackets start again at s_max. If no more
configurations may begin, the first rung is decided with its present ones.

`choose_rungs` takes the requested fidelity, or the best one available to the study.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

from numpy.random import Generator

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Fidelity, Method, Reason
from prefect_tune.optimizers.methods.declarations import HALVING, HYPERBAND, BracketOptions
from prefect_tune.optimizers.methods.rungs import (
    Rungs,
    all_begun,
    counted_levels,
    highest_s,
    is_decided,
    n_promoted,
    promotable,
    ranked,
)
from prefect_tune.optimizers.optimizer import REPEATED, NotYet, Optimizer
from prefect_tune.optimizers.space.configuration import ROWS_PER_CLASS, Configuration, Query
from prefect_tune.optimizers.space.sampling import SpaceExhausted, new_configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import Objective
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.optimizers.trials.trial import Trial

_LEAST_ROWS = 100
"""Least rows of a subset: losses on fewer rows hardly predict losses on all."""
_MOST_SUBSETS = 4
"""Default number of rungs of subsets."""
_MANY_SUBSETS = 3
"""Number of rungs from which the smallest subset saves more than folds do."""
_ORDER: tuple[Fidelity, ...] = ("epochs", "subset", "folds")


def choose_rungs(space: Space, objective: Objective, options: BracketOptions) -> tuple[Rungs, str]:
    """Return the rungs of a study, and the reason for their fidelity, for people.

    Unknown numbers of rows do not exclude subsets. A `ValueError` is raised if the study supports
    no fidelity, or not the requested one.
    """
    obstacles = {fidelity: _obstacle(fidelity, space, objective, options) for fidelity in _ORDER}
    possible = [fidelity for fidelity in _ORDER if not obstacles[fidelity]]
    if options.fidelity is not None:
        if options.fidelity not in possible:
            instead = " or ".join(f"fidelity={fidelity}" for fidelity in possible)
            raise ValueError(
                f"fidelity={options.fidelity} is not possible: {obstacles[options.fidelity]}; "
                f"{instead or 'a method without fidelities'} would serve"
            )
        return _rungs(options.fidelity, objective, options), "as requested"
    if not possible:
        listed = "; ".join(f"{fidelity}: {obstacles[fidelity]}" for fidelity in _ORDER)
        raise ValueError(
            f"nothing is less than a full evaluation here ({listed}); "
            "a method without fidelities would serve"
        )
    if "epochs" in possible:
        return _rungs("epochs", objective, options), "models train in epochs"
    if "subset" in possible:
        rungs = _rungs("subset", objective, options)
        if len(rungs) >= min(_MANY_SUBSETS, options.n_rungs or _MANY_SUBSETS):
            return rungs, "no model trains in epochs, and the rows are many"
        if "folds" not in possible:
            return rungs, "no model trains in epochs, and there is one fold"
    return _rungs("folds", objective, options), "no model trains in epochs, and the rows are few"


def _obstacle(
    fidelity: Fidelity, space: Space, objective: Objective, options: BracketOptions
) -> str:
    if fidelity == "epochs":
        if objective.epochs is None:
            return "the study trains models at once, as it has no number of epochs (--epochs)"
        if objective.epochs < 2:
            return f"a full training must have at least 2 epochs; it has {objective.epochs}"
        if not any(a.id in objective.iterative for s in space.steps for a in s.algorithms):
            return f"no model of space {space.name!r} trains in epochs"
    if fidelity == "folds" and (objective.n_folds is None or objective.n_folds < 2):
        return f"it takes at least 2 folds, and the study has {objective.n_folds or 'no number'}"
    if fidelity == "subset" and _n_subsets(objective, options.eta) < 1:
        of_rarest = (
            f", and {ROWS_PER_CLASS} of the rarest class (which has {objective.n_rarest})"
            if objective.n_classes
            else ""
        )
        return (
            f"one in {options.eta} of the {objective.n_rows} training rows of a fold is too few: a "
            f"subset takes {_least_rows(objective)} rows{of_rarest}"
        )
    return ""


def _rungs(fidelity: Fidelity, objective: Objective, options: BracketOptions) -> Rungs:
    eta = options.eta
    if fidelity == "subset":
        most = (options.n_rungs or _MOST_SUBSETS) - 1
        s = min(_n_subsets(objective, eta), most)
        return Rungs("subset", tuple(1 / eta**k for k in range(s, -1, -1)))
    total = objective.epochs if fidelity == "epochs" else objective.n_folds
    assert total is not None  # noqa: S101 - an obstacle otherwise
    s = highest_s(total, eta)
    if options.n_rungs is not None:
        s = min(s, options.n_rungs - 1)
    return Rungs(fidelity, counted_levels(total, eta, s))


def _n_subsets(objective: Objective, eta: int) -> int:
    """Largest s such that a subset of `eta^-s` of the rows is large enough."""
    s = 0
    while s < 32 and _is_enough(objective, eta ** (s + 1)):
        s += 1
    return s


def _is_enough(objective: Objective, divisor: int) -> bool:
    rows, rarest = objective.n_rows, objective.n_rarest
    if rows is not None and rows < divisor * _least_rows(objective):
        return False
    is_class = bool(objective.n_classes) and rarest is not None
    return not (is_class and rarest is not None and rarest < divisor * ROWS_PER_CLASS)


def _least_rows(objective: Objective) -> int:
    return max(_LEAST_ROWS, ROWS_PER_CLASS * (objective.n_classes or 0))


@dataclass(frozen=True, slots=True)
class Plan:
    """Start of a bracket: `size` configurations on rung number `first`, counted from 0."""

    size: int
    first: int = 0


def hyperband_plan(index: int, n_rungs: int, eta: int) -> Plan:
    """Return the Hyperband bracket of that number (Li et al. 2018, algorithm 1).

    Bracket s begins `ceil((s_max + 1) / (s + 1) * eta^s)` configurations s rungs below the last
    rung. s falls from s_max to 0, then starts again.
    """
    s = n_rungs - 1 - index % n_rungs
    return Plan(-(-n_rungs * eta**s // (s + 1)), n_rungs - 1 - s)


@dataclass(slots=True)
class Bracket:
    """One bracket of successive halving; its runs are numbers of trials, rung by rung.

    A rung is decided when all its runs are told. Then the best 1/eta of them, at least one, is
    promoted; failed runs drop out. A closed bracket accepts no more configurations.
    """

    plan: Plan
    eta: int
    number: int = 0
    runs: list[list[int]] = field(default_factory=list)
    is_closed: bool = False

    @property
    def takes_more(self) -> bool:
        """Whether it accepts more configurations."""
        return not self.is_closed and len(self.runs[0]) < self.plan.size

    def promotion(self, history: History, *, closing: bool = False) -> Trial | None:
        """Return a run to promote now, if any; when `closing`, no more configurations begin."""
        if self.takes_more and not closing:
            return None
        for rung, above in pairwise(self.runs):
            trials = [history[number] for number in rung]
            if not is_decided(trials):
                return None
            best = ranked(trials, history)[: n_promoted(len(trials), self.eta)]
            gone = {history[number].query.configuration for number in above}
            if len(above) < len(best) and (run := next(promotable(best, gone), None)):
                return run
        return None


class Brackets:
    """All brackets of a study, from the trials in the order of asking.

    A new configuration begins in the last bracket, or in the next one if that is full. A known
    configuration continues in its own bracket. `plan` maps the number of a bracket to its plan.
    """

    def __init__(self, n_rungs: int, eta: int, plan: Callable[[int], Plan]) -> None:
        self._n_rungs, self._eta, self._plan = n_rungs, eta, plan
        self._brackets: list[Bracket] = []
        self._places: dict[Configuration, tuple[Bracket, int]] = {}
        self._n_entered = 0

    @property
    def places(self) -> Mapping[Configuration, tuple[Bracket, int]]:
        """Bracket of each configuration, and its highest requested rung."""
        return self._places

    def catch_up(self, history: History) -> None:
        """Register trials requested since the last call."""
        for number in range(self._n_entered, len(history)):
            self._enter(history[number])
        self._n_entered = len(history)

    def promotion(self, history: History, *, closing: bool = False) -> Trial | None:
        """Return a run whose configuration should be promoted now, oldest bracket first."""
        found = (b.promotion(history, closing=closing) for b in self._brackets)
        return next((trial for trial in found if trial is not None), None)

    def rung_above(self, configuration: Configuration) -> int:
        """Return the next rung of a configuration, from 0."""
        bracket, k = self._places[configuration]
        return bracket.plan.first + k + 1

    @property
    def first_rung(self) -> int:
        """Rung on which the next new configuration begins."""
        return self._open().plan.first

    def number_of(self, configuration: Configuration) -> int:
        """Return the number of a configuration's bracket, from 0, or of the next if it is new."""
        known = self._places.get(configuration)
        return (known[0] if known else self._open()).number

    def _open(self) -> Bracket:
        if self._brackets and self._brackets[-1].takes_more:
            return self._brackets[-1]
        plan = self._plan(len(self._brackets))
        runs: list[list[int]] = [[] for _ in range(plan.first, self._n_rungs)]
        return Bracket(plan, self._eta, len(self._brackets), runs)

    def _enter(self, trial: Trial) -> None:
        configuration = trial.query.configuration
        if configuration in self._places:
            bracket, k = self._places[configuration]
            k += 1
            bracket.is_closed = True
        else:
            bracket, k = self._open(), 0
            if not self._brackets or self._brackets[-1] is not bracket:
                self._brackets.append(bracket)
        bracket.runs[k].append(trial.number)
        self._places[configuration] = bracket, k


class Halving(Optimizer):
    """Brackets of random configurations; `ValueError` if the study lacks the fidelity."""

    method: ClassVar[Method] = HALVING

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.rungs, self._reason = choose_rungs(self.space, self.objective, self.options)
        self.brackets = Brackets(len(self.rungs), self.options.eta, self.plan)
        self._drawn = ""

    def plan(self, index: int) -> Plan:  # noqa: ARG002 - all brackets are alike
        """Return the plan of the bracket of that number."""
        return Plan(self.options.n or self.options.eta ** (len(self.rungs) - 1))

    def begin(self, rng: Generator) -> Configuration:
        """Return a new configuration to start with, or raise `SpaceExhausted`."""
        if (repeated := self._next_repeated()) is not None:
            self._drawn = REPEATED
            return repeated
        self._drawn = "drawn at random"
        return new_configuration(self.space, self.history.asked, rng)

    @property
    def least_begun(self) -> int:
        """Number of configurations of the first bracket."""
        return self.plan(0).size

    @property
    def incumbent(self) -> Trial | None:
        """The best full trial; before there is one, the best of the highest rung reached."""
        if (best := self.history.incumbent) is not None:
            return best
        feasible = [t for t in self.history.stopped if self.history.violation(t) <= 0]
        return min(
            feasible, key=lambda t: (-self.rungs.level(t.query), t.loss, t.number), default=None
        )

    @property
    def decisions(self) -> dict[str, Any]:
        """The rungs with their numbers of runs, and the reason for their fidelity."""
        runs = [(self.rungs.level(t.query), t.state) for t in self.history if t.is_told]
        rungs = [
            {
                "level": level,
                "runs": sum(at == level for at, _ in runs),
                "failed": runs.count((level, TrialState.FAILED)),
            }
            for level in self.rungs.levels
        ]
        decided: dict[str, Any] = {
            **super().decisions,
            "fidelity": self.rungs.fidelity,
            "reason": self._reason,
            "eta": self.options.eta,
            "levels": list(self.rungs.levels),
            "rungs": rungs,
        }
        if not self.history.complete and (self.history.stopped or (runs and self.history.pending)):
            size = self.least_begun
            note = f"the budget is smaller than a bracket, which begins {size} configurations"
            decided["notes"] = [f"nothing was evaluated in full: {note}"]
        return decided

    def _propose(self, budget: Budget, rng: Generator) -> Query:
        self.brackets.catch_up(self.history)
        if (run := self.brackets.promotion(self.history)) is not None:
            return self._go_on(run)
        nothing_new = all_begun()
        if budget.trials_left != 0:
            try:
                return self._asked(self.begin(rng), self.brackets.first_rung, self._drawn)
            except SpaceExhausted as exhausted:
                nothing_new = exhausted
        if (run := self.brackets.promotion(self.history, closing=True)) is not None:
            return self._go_on(run)
        if self.history.pending:
            raise NotYet
        raise nothing_new

    def _go_on(self, run: Trial) -> Query:
        configuration = run.query.configuration
        rung = self.brackets.rung_above(configuration)
        return self._asked(configuration, rung, "among the best of the rung below")

    def _asked(self, configuration: Configuration, rung: int, why: str) -> Query:
        """Return the query of a configuration on a rung, from 0, and set its reason."""
        bracket, n_rungs = self.brackets.number_of(configuration) + 1, len(self.rungs)
        self._because = Reason(f"bracket {bracket}, rung {rung + 1} of {n_rungs}", why)
        return self.rungs.query(configuration, rung)


class Hyperband(Halving):
    """Brackets from many configurations on the lowest rung to a few on the last one."""

    method: ClassVar[Method] = HYPERBAND

    def plan(self, index: int) -> Plan:
        """Return the plan of the bracket of that number."""
        return hyperband_plan(index, len(self.rungs), self.options.eta)
