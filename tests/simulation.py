"""A study without a flow: workers that take simulated seconds, and cheaper partial fidelities."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from zlib import crc32

from worlds import evaluation

from prefect_tune.optimizers import (
    Budget,
    Evaluation,
    Failure,
    FailureKind,
    NotYet,
    Objective,
    Optimizer,
    Query,
    SpaceExhausted,
    Trial,
)

Outcome = tuple[float | None, float]
"""Loss, None of a failure, and seconds of a stretch."""


@dataclass(frozen=True)
class Stretch:
    """A trial on a worker."""

    trial: Trial
    started: float
    ended: float


def share_of(query: Query, objective: Objective) -> float:
    """Return the cost of a query as a share of a full evaluation."""
    share = query.subset
    if query.epochs is not None:
        share *= query.epochs / (objective.epochs or 1)
    if query.folds is not None:
        share *= query.folds / (objective.n_folds or 1)
    return share


def share_to_do(query: Query, optimizer: Optimizer) -> float:
    """Return the remaining share of a full evaluation; training on another subset starts anew."""
    share = share_of(query, optimizer.objective)
    before = [
        share_of(t.query, optimizer.objective)
        for t in optimizer.history.trials_of(query.configuration)
        if t.loss is not None and t.query.subset == query.subset
    ]
    return share - max(before, default=0.0)


def blurred(loss: float | None, query: Query, share: float, width: float = 10.0) -> float | None:
    """Return a partial loss: higher by up to `width`, and reproducible."""
    if loss is None:
        return None
    text = f"{query.configuration.canonical}{share:.6f}"
    return loss + width * (1 - share) * crc32(text.encode()) / 2**32


@dataclass
class Simulation:
    """Workers that get trials as they become free, on a simulated clock.

    No trial is begun after the limit of seconds or trials. With a real clock, the duration of asks
    is measured and, unless asks are free, added to the simulated time.
    """

    optimizer: Optimizer
    outcome: Callable[[Query], Outcome | Evaluation]
    n_workers: int = 1
    trials: int | None = None
    seconds: float = float("inf")
    is_end_told: bool = False
    clock: Callable[[], float] | None = None
    are_asks_free: bool = False
    ask_seconds: list[float] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    n_waits: int = 0
    now: float = 0.0

    def run(self) -> "Simulation":
        """Run until nothing is left to propose, or until the seconds are spent."""
        for _ in self.ends():
            pass
        return self

    def ends(self) -> Iterator[Stretch]:
        """Yield each trial after its result was told."""
        under_way = list[tuple[float, int, Stretch, Outcome | Evaluation]]()
        is_over = False
        while True:
            while not is_over and len(under_way) < self.n_workers and self.now < self.seconds:
                if self.budget.trials_left == 0 and not self.optimizer.resumes_configurations:
                    is_over = True
                    break
                try:
                    query = self._ask()
                except NotYet:
                    self.n_waits += 1
                    break
                except SpaceExhausted:
                    is_over = True
                    break
                number = len(self.optimizer.history) - 1
                outcome = self.outcome(query)
                took = outcome.cost_seconds if isinstance(outcome, Evaluation) else outcome[1]
                stretch = Stretch(Trial(number, query).started(), self.now, self.now + took)
                heappush(under_way, (stretch.ended, number, stretch, outcome))
            if not under_way:
                return
            ended, _, stretch, outcome = heappop(under_way)
            self.now = max(self.now, ended)
            yield self._tell(stretch, outcome)

    @property
    def budget(self) -> Budget:
        """Return the budget as a flow would report it now."""
        n_begun = len(self.optimizer.history.asked)
        said = [] if self.are_asks_free else self.ask_seconds
        return Budget(
            trials_spent=len(self.stretches),
            trials_left=None if self.trials is None else self.trials - n_begun,
            seconds_spent=sum(s.ended - s.started for s in self.stretches),
            seconds_left=self.n_workers * (self.seconds - self.now) if self.is_end_told else None,
            ask_seconds=sum(said),
            n_workers=self.n_workers,
            last_ask_seconds=tuple(said[-10:]),
        )

    def _ask(self) -> Query:
        budget, started = self.budget, self.clock() if self.clock else 0.0
        query = self.optimizer.ask(budget)
        if self.clock:
            self.ask_seconds.append(self.clock() - started)
            self.now += 0.0 if self.are_asks_free else self.ask_seconds[-1]
        return query

    def _tell(self, stretch: Stretch, outcome: Outcome | Evaluation) -> Stretch:
        took = stretch.ended - stretch.started
        if not isinstance(outcome, Evaluation) and outcome[0] is not None:
            outcome = evaluation(outcome[0], took)
        if isinstance(outcome, Evaluation):
            told = stretch.trial.completed(outcome)
        else:
            told = stretch.trial.failed(Failure(FailureKind.ERROR, "no loss", cost_seconds=took))
        self.optimizer.tell(told)
        self.stretches.append(Stretch(told, stretch.started, stretch.ended))
        return self.stretches[-1]
