"""The contents of the report of one comparison, or of several pooled ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.flows.comparison.standings import finite, quartiles

_N_STAGES = 60
"""Points per curve, evenly spaced over the budget."""


@dataclass(frozen=True, slots=True)
class MethodCurve:
    """Median and quartiles of the best loss per share of the budget; None before any loss."""

    method: str
    low: Sequence[float | None]
    median: Sequence[float | None]
    high: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class DataSetCurves:
    """The methods on one data set, with one curve each at the same `shares` of the budget."""

    data: str
    metric: str
    budget_seconds: float | None
    budget_trials: int | None
    shares: Sequence[float]
    curves: Sequence[MethodCurve]


@dataclass(frozen=True, slots=True)
class MethodWork:
    """The work of all replicates of a method: finished and failed trials, and seconds."""

    method: str
    evaluations: int
    failed: int
    evaluating_seconds: float
    asking_seconds: float


@dataclass(frozen=True, slots=True)
class ComparisonReport:
    """The contents of a comparison's report; `standings` are as printed by `--json`."""

    standings: Mapping[str, Any]
    data_sets: Sequence[DataSetCurves]
    work: Sequence[MethodWork]
    studies: Sequence[str]


def comparison_report(standings: Mapping[str, Any], curves: pd.DataFrame) -> ComparisonReport:
    """Collect the report of a comparison from curves with `standings.CURVE_COLUMNS`."""
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
    """Return the incumbent's loss at each share of the budget; inf before the first loss."""
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
