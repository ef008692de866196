"""Figures of runs on recorded curves: regrets and test losses by table, and mean ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from curve_replay import Run
from curve_tables import Table
from numpy.typing import NDArray
from scipy.stats import rankdata

__all__ = ["AT", "Figures", "mean_ranks", "report_of", "with_error"]

AT = (0.25, 0.5, 0.75, 1.0)
"""Shares of the budget."""
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Figures:
    """Of the runs of one method on one table, one row a seed, in the order of the seeds.

    Attributes:
        regrets: Of the least validated loss, in percent points, at each share; shape (n, 4).
        tests: Test loss in percent of what the method named, likewise.
        n_begun: Configurations, shape (n,).
        n_epochs: Epochs trained, likewise.
        saved: Share of the epochs that training each configuration in full would have taken.
        ask_seconds: Of all asks, likewise.
        total: Seconds of the budget.
    """

    regrets: Array
    tests: Array
    n_begun: Array
    n_epochs: Array
    saved: Array
    ask_seconds: Array
    total: float

    @classmethod
    def of(cls, runs: Sequence[Run], table: Table) -> "Figures":
        """Figures of at least one run."""
        best = float(table.losses.min())
        seen = [[run.at(share) for share in AT] for run in runs]
        ends = [of_run[-1] for of_run in seen]
        n_begun = np.array([len(end.rows) for end in ends], dtype=float)
        n_epochs = np.array([sum(end.epochs) for end in ends], dtype=float)
        return cls(
            np.array([[s.least_validated(table) - best for s in of_run] for of_run in seen]),
            np.array([[s.test_of_chosen(table) for s in of_run] for of_run in seen]),
            n_begun,
            n_epochs,
            1 - n_epochs / np.maximum(n_begun * table.epochs, 1),
            np.array([end.ask_seconds for end in ends]),
            runs[0].total,
        )


def report_of(name: str, of_methods: Mapping[str, Figures]) -> list[str]:
    """Lines of one table: means and standard errors over the seeds; regrets x 100."""
    width = max(map(len, of_methods))
    shares = " ".join(f"{share:.0%}" for share in AT)
    columns = "configurations, epochs, share of epochs saved, seconds of asks / of the budget"
    lines = [f"{name}: regret at {shares} of the budget | test loss at 50 and 100 % | {columns}"]
    for method, of in of_methods.items():
        regrets = " ".join(f"{with_error(100 * r, 1):>13}" for r in of.regrets.T)
        tests = " ".join(f"{with_error(t, 2):>13}" for t in (of.tests[:, 1], of.tests[:, 3]))
        lines.append(
            f"  {method:<{width}} {regrets} | {tests} | {of.n_begun.mean():.0f}, "
            f"{of.n_epochs.mean():.0f}, {of.saved.mean():.2f}, "
            f"{of.ask_seconds.mean():.2f} / {of.total:.1f}"
        )
    return lines


def mean_ranks(
    of_tables: Mapping[str, Mapping[str, Figures]], among: Sequence[str], share: float, by: str
) -> dict[str, tuple[float, float]]:
    """Mean rank and its standard error over the tables; ranks are per seed, of equals their mean.

    Args:
        of_tables: Figures by table and method.
        among: Methods that are ranked.
        share: Of the budget, one of `AT`.
        by: `regrets` or `tests`.
    """
    column = AT.index(share)
    of_table = []
    for of_methods in of_tables.values():
        values = np.array([getattr(of_methods[m], by)[:, column] for m in among])
        of_table.append(rankdata(values.round(9), axis=0).mean(axis=1))
    ranks = np.array(of_table)
    errors = (
        ranks.std(axis=0, ddof=1) / np.sqrt(len(ranks))
        if len(ranks) > 1
        else np.zeros(ranks.shape[1])
    )
    return {
        m: (float(r), float(e)) for m, r, e in zip(among, ranks.mean(axis=0), errors, strict=True)
    }


def with_error(values: Array, digits: int) -> str:
    """Mean and standard error."""
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{values.mean():.{digits}f} +- {error:.{digits}f}"
