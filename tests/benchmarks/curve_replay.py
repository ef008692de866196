"""A table of recorded curves as an objective, and what a run on it saw, stretch by stretch.

A run keeps rows, epochs and seconds only: any figure, and any other rule of the final choice, can
be had of it and the table later.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import process_time

import numpy as np
from curve_tables import Table
from simulation import Simulation

from prefect_tune.optimizers import Configuration, Evaluation, Objective, Optimizer, Query
from prefect_tune.optimizers.space.vectors import CandidateSpace

__all__ = ["Replay", "Run", "Seen", "evaluation_of", "objective_of", "run"]

HELD_OUT = {"olivetti": 100, "mnist_t10k": 2500, "puma8NH": 2048}
"""449 of digits; the synthetic ones have no rows."""


def objective_of(name: str, table: Table) -> Objective:
    """What a method may know of a table of that name."""
    n_held_out = None if name.startswith("synth") else HELD_OUT.get(name, 449)
    models = frozenset(a.id for a in table.space.steps[-1].algorithms)
    return Objective(epochs=table.epochs, iterative=models, n_folds=1, n_held_out=n_held_out)


def evaluation_of(curve: tuple[float, ...], seconds: float, done: int) -> Evaluation:
    """The outcome of a stretch in one fold, gone on with after so many epochs."""
    return Evaluation(
        loss=min(curve),
        fold_losses=(min(curve),),
        cost_seconds=seconds,
        cost_uncached_seconds=seconds,
        curve=curve,
        fold_curves=(curve,),
        best_epoch=int(np.argmin(curve)) + 1,
        resumed_from=done,
    )


class Replay:
    """A table as an objective: rows by nearness, each standing for one configuration."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.candidates = CandidateSpace(table.space)
        self.features = self.candidates.features(self.candidates.encode(table.configurations))
        self.numbers = {c: i for i, c in enumerate(table.configurations)}
        self.free = np.ones(len(table.configurations), dtype=bool)
        self.rows: dict[Configuration, int] = {}
        self.done: dict[int, int] = {}

    def __call__(self, query: Query) -> Evaluation:
        """The curve so far, and seconds of the epochs that are new."""
        row = self.row(query.configuration)
        done, epochs = self.done.get(row, 0), query.epochs or self.table.epochs
        curve = tuple(float(x) for x in self.table.losses[row, :epochs])
        seconds = float(self.table.seconds[row, done:epochs].sum())
        self.done[row] = max(done, epochs)
        return evaluation_of(curve, seconds, min(done, epochs))

    def row(self, configuration: Configuration) -> int:
        """The row of a configuration: its own, or the nearest one that is free."""
        if configuration not in self.rows and configuration in self.numbers:
            self.rows[configuration] = self.numbers[configuration]
        elif configuration not in self.rows:
            features = self.candidates.features(self.candidates.encode([configuration]))
            distances = ((self.features - features) ** 2).sum(axis=1)
            row = int(np.argmin(np.where(self.free, distances, np.inf)))
            self.free[row] = False
            self.rows[configuration] = row
        return self.rows[configuration]


@dataclass(frozen=True)
class Seen:
    """All that was known at a time.

    Attributes:
        rows: Begun, in this order.
        epochs: To which each of them was trained.
        chosen: Row and epoch that the method named; None before it did.
        ask_seconds: Of all asks until then.
    """

    rows: list[int]
    epochs: list[int]
    chosen: tuple[int, int] | None
    ask_seconds: float

    def least_validated(self, table: Table) -> float:
        """The least loss seen; the largest of the table before anything was told."""
        losses = [table.losses[r, :e].min() for r, e in zip(self.rows, self.epochs, strict=True)]
        return float(min(losses, default=table.losses.max()))

    def test_of_chosen(self, table: Table) -> float:
        """Test loss of what the method named; the largest of the table before it did."""
        if self.chosen is None:
            return float(table.tests.max())
        row, epoch = self.chosen
        return float(table.tests[row, epoch - 1])


@dataclass(frozen=True)
class Run:
    """One run, tell by tell.

    Attributes:
        total: Seconds of the budget.
        rows: That were trained.
        epochs: To which.
        ends: Seconds at which they were told, asks included where they are charged.
        asks: Seconds of the ask of each.
        chosen: Row and epoch that the method named after it; None if it named none.
    """

    total: float
    rows: list[int]
    epochs: list[int]
    ends: list[float]
    asks: list[float]
    chosen: list[Sequence[int] | None]

    def at(self, share: float) -> Seen:
        """What was known at a share of the budget."""
        n = int(np.searchsorted(self.ends, share * self.total, side="right"))
        reached: dict[int, int] = {}
        for row, epochs in zip(self.rows[:n], self.epochs[:n], strict=True):
            reached[row] = max(epochs, reached.get(row, 0))
        named = self.chosen[n - 1] if n else None
        chosen = None if named is None else (named[0], named[1])
        return Seen([*reached], [*reached.values()], chosen, sum(self.asks[:n]))


def run(optimizer: Optimizer, table: Table, trainings: float, *, are_asks_free: bool) -> Run:
    """Run a method for the seconds of so many full trainings of mean cost.

    What ends later does not count. The incumbent is looked at off the clock.
    """
    replay = Replay(table)
    total = trainings * float(table.seconds.sum(axis=1).mean())
    study = Simulation(
        optimizer,
        replay,
        seconds=total,
        is_end_told=True,
        clock=process_time,
        are_asks_free=are_asks_free,
    )
    seen = Run(total, [], [], [], [], [])
    for stretch in study.ends():
        if stretch.ended > total:
            break
        query, best = stretch.trial.query, optimizer.incumbent
        seen.rows.append(replay.row(query.configuration))
        seen.epochs.append(query.epochs or table.epochs)
        seen.ends.append(stretch.ended)
        seen.asks.append(study.ask_seconds[stretch.trial.number])
        named = None
        if best is not None and best.evaluation is not None:
            epoch = best.evaluation.best_epoch or table.epochs
            named = (replay.row(best.query.configuration), epoch)
        seen.chosen.append(named)
    return seen
