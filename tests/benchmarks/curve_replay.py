"""Recorded learning curves as an objective, and results of runs on recorded curves.

A run stores only rows, epochs and seconds, so any figure can be computed later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import process_time

import numpy as np
from curve_tables import Table
from numpy.typing import NDArray
from scipy.stats import rankdata
from simulation import Simulation

from prefect_tune.optimizers import Evaluation, Objective, Optimizer, Query

__all__ = ["AT", "Figures", "Run", "mean_ranks", "objective_of", "run"]

HELD_OUT = {"olivetti": 100, "mnist_t10k": 2500, "puma8NH": 2048}
"""Held-out rows; 449 for digits. The synthetic tables have none."""
AT = (0.25, 0.5, 0.75, 1.0)
"""Shares of the budget."""
Array = NDArray[np.float64]


def objective_of(name: str, table: Table) -> Objective:
    """Return the objective of the table with the given name."""
    n_held_out = None if name.startswith("synth") else HELD_OUT.get(name, 449)
    models = frozenset(a.id for a in table.space.steps[-1].algorithms)
    return Objective(epochs=table.epochs, iterative=models, n_folds=1, n_held_out=n_held_out)


class Replay:
    """A table of curves as an objective."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.rows = {c: i for i, c in enumerate(table.configurations)}
        self.done: dict[int, int] = {}

    def __call__(self, query: Query) -> Evaluation:
        """Return the curve so far, and the seconds of the new epochs."""
        row, epochs = self.rows[query.configuration], query.epochs or self.table.epochs
        done = min(self.done.get(row, 0), epochs)
        self.done[row] = max(self.done.get(row, 0), epochs)
        curve = tuple(float(x) for x in self.table.losses[row, :epochs])
        seconds = float(self.table.seconds[row, done:epochs].sum())
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


@dataclass(frozen=True)
class Run:
    """The course of a run, recorded at each tell.

    Attributes:
        total: Seconds of the budget.
        rows: For each tell, the table row of the configuration that was trained.
        epochs: Epoch up to which the configuration was trained, for each tell.
        ends: Seconds at each tell, including asks if they are charged.
        asks: Seconds of each ask.
        chosen: Row and epoch of the incumbent after each tell; None before the first incumbent.
    """

    total: float
    rows: list[int]
    epochs: list[int]
    ends: list[float]
    asks: list[float]
    chosen: list[Sequence[int] | None]

    def n_told(self, share: float) -> int:
        """Return the number of tells within a share of the budget."""
        return int(np.searchsorted(self.ends, share * self.total, side="right"))

    def least_validated(self, share: float, table: Table) -> float:
        """Return the least loss so far; before the first tell, the largest loss of the table."""
        n = self.n_told(share)
        pairs = zip(self.rows[:n], self.epochs[:n], strict=True)
        losses = [table.losses[row, :epochs].min() for row, epochs in pairs]
        return float(min(losses, default=table.losses.max()))

    def incumbent_test_loss(self, share: float, table: Table) -> float:
        """Return the test loss of the incumbent; at first, the largest of the table."""
        n = self.n_told(share)
        named = self.chosen[n - 1] if n else None
        return float(table.tests.max() if named is None else table.tests[named[0], named[1] - 1])


def run(optimizer: Optimizer, table: Table, trainings: float, *, are_asks_free: bool) -> Run:
    """Run a method for the mean seconds of a full training run, times `trainings`.

    Evaluations that end after the time limit do not count. Reading the incumbent takes no time.
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
        seen.rows.append(replay.rows[query.configuration])
        seen.epochs.append(query.epochs or table.epochs)
        seen.ends.append(stretch.ended)
        seen.asks.append(study.ask_seconds[stretch.trial.number])
        named = None
        if best is not None and best.evaluation is not None:
            epoch = best.evaluation.best_epoch or table.epochs
            named = (replay.rows[best.query.configuration], epoch)
        seen.chosen.append(named)
    return seen


@dataclass(frozen=True)
class Figures:
    """Figures of the runs of one method on one table, one row per seed.

    Attributes:
        regrets: Regret of the least loss in percentage points at each share, shape (n, 4).
        tests: Test loss of the incumbent in percent at each share, shape (n, 4).
        line: Number of runs and evaluations, as printed.
    """

    regrets: Array
    tests: Array
    line: str

    @classmethod
    def of(cls, runs: Sequence[Run], table: Table) -> "Figures":
        """Return the figures of one or more runs."""
        best = float(table.losses.min())
        reached = [dict(zip(r.rows, r.epochs, strict=True)) for r in runs]  # epochs only grow
        n_begun, n_epochs = np.mean([[len(r), sum(r.values())] for r in reached], axis=0)
        asks = np.mean([sum(r.asks) for r in runs])
        return cls(
            np.array([[r.least_validated(share, table) - best for share in AT] for r in runs]),
            np.array([[r.incumbent_test_loss(share, table) for share in AT] for r in runs]),
            f"{n_begun:.0f}, {n_epochs:.0f}, {asks:.2f} / {runs[0].total:.1f}",
        )


def mean_ranks(
    of_tables: Mapping[str, Mapping[str, Figures]], share: float, by: str
) -> dict[str, tuple[float, float]]:
    """Return the mean rank of each method and its standard error over the tables.

    Ranks are per seed; ties share their ranks.

    Args:
        of_tables: Figures by table and method.
        share: Share of the budget, a value of `AT`.
        by: Figures to rank, `regrets` or `tests`.
    """
    ranks = []
    for of_methods in of_tables.values():
        values = np.array([getattr(f, by)[:, AT.index(share)] for f in of_methods.values()])
        ranks.append(rankdata(values.round(9), axis=0).mean(axis=1))
    errors = np.std(ranks, axis=0, ddof=min(1, len(ranks) - 1)) / np.sqrt(len(ranks))
    pairs = zip(np.mean(ranks, axis=0).tolist(), errors.tolist(), strict=True)
    return dict(zip(next(iter(of_tables.values())), pairs, strict=True))
