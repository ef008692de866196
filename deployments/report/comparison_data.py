"""Everything that is reported of a comparison of methods, or of several that are pooled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.flows.comparison.standings import finite, quartiles

_N_STAGES = 60
"""Points of a curve; evenly over the budget."""


@dataclass(frozen=True, slots=True)
class MethodCurve:
    """The best losses of a method's replicates over the budget.

    Attributes:
        method: The method.
        low: Lower quartile over the replicates, at each share; None where there is no loss yet.
        median: Median, likewise.
        high: Upper quartile, likewise.
    """

    method: str
    low: Sequence[float | None]
    median: Sequence[float | None]
    high: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class DataSetCurves:
    """The methods on one data set.

    Attributes:
        data: Its name.
        metric: Name of the metric.
        budget_seconds: Of each replicate; None where trials are bounded.
        budget_trials: Likewise; None where seconds are.
        shares: Shares of the budget at which the curves have their points.
        curves: One for each method.
    """

    data: str
    metric: str
    budget_seconds: float | None
    budget_trials: int | None
    shares: Sequence[float]
    curves: Sequence[MethodCurve]


@dataclass(frozen=True, slots=True)
class MethodWork:
    """The work of all replicates of a method.

    Attributes:
        method: The method.
        evaluations: Trials that have ended.
        failed: Those that failed.
        evaluating_seconds: What trials took.
        asking_seconds: What choosing them took.
    """

    method: str
    evaluations: int
    failed: int
    evaluating_seconds: float
    asking_seconds: float


@dataclass(frozen=True, slots=True)
class ComparisonReport:
    """Everything that is reported of a comparison.

    Attributes:
        standings: As `compare --json` or `standings --json` prints them.
        data_sets: Curves by data set.
        work: What each method did, in the order of the standings.
        studies: Names of the replicates' studies.
    """

    standings: Mapping[str, Any]
    data_sets: Sequence[DataSetCurves]
    work: Sequence[MethodWork]
    studies: Sequence[str]


def comparison_report(standings: Mapping[str, Any], curves: pd.DataFrame) -> ComparisonReport:
    """Gather everything that is reported of a comparison.

    Args:
        standings: Of these curves.
        curves: With the columns of `standings.CURVE_COLUMNS`.
    """
    methods = [row["method"] for row in standings["methods"]]
    groups = curves.groupby(["dataset", "metric"], sort=False)
    return ComparisonReport(
        standings,
        [_of_data_set(group, methods) for _, group in groups],
        [_work(method, curves[curves["method"] == method]) for method in methods],
        list(dict.fromkeys(curves["study"])),
    )


def _of_data_set(curves: pd.DataFrame, methods: Sequence[str]) -> DataSetCurves:
    first = curves.iloc[0]
    shares = np.linspace(0.0, 1.0, _N_STAGES + 1)
    is_of_seconds = pd.notna(first["budget_seconds"])
    return DataSetCurves(
        data=str(first["data"]),
        metric=str(first["metric"]),
        budget_seconds=float(first["budget_seconds"]) if is_of_seconds else None,
        budget_trials=None if is_of_seconds else int(first["budget_trials"]),
        shares=shares.tolist(),
        curves=[_curve(method, curves[curves["method"] == method], shares) for method in methods],
    )


def _curve(method: str, curves: pd.DataFrame, shares: NDArray[np.float64]) -> MethodCurve:
    replicates = [_best_losses(rows, shares) for _, rows in curves.groupby("study", sort=False)]
    found = quartiles(np.array(replicates).reshape(-1, len(shares)))
    return MethodCurve(method, *([finite(value) for value in row] for row in found))


def _best_losses(rows: pd.DataFrame, shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the incumbent's loss at each share of the budget; inf where there is none yet."""
    unit = "seconds" if pd.notna(rows["budget_seconds"].iloc[0]) else "trials"
    budget = float(rows[f"budget_{unit}"].iloc[0])
    spent = np.maximum.accumulate(rows[unit].to_numpy(dtype=np.float64) / budget)
    known = rows["incumbent_loss"].astype("Float64").to_numpy(dtype=np.float64, na_value=np.inf)
    last = np.searchsorted(spent, shares + 1e-12, side="right") - 1
    return np.where(last >= 0, known[np.maximum(last, 0)], np.inf)


def _work(method: str, curves: pd.DataFrame) -> MethodWork:
    ended = curves[curves["trial"].notna()]
    asking = curves.groupby("study")["ask_seconds"].max()
    return MethodWork(
        method,
        len(ended),
        int(ended["failure"].notna().sum()),
        float(ended["cost_seconds"].sum()),
        float(asking.sum()),
    )
