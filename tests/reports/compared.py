"""Curves of replicates by hand, and the reports of comparisons of them."""

from collections.abc import Iterable

import pandas as pd

from prefect_tune.deployments.report.comparison_data import ComparisonReport, comparison_report
from prefect_tune.flows.comparison.standings import (
    CURVE_COLUMNS,
    ComparisonOutcome,
    SingleComparison,
    standings,
)

COMMON = {"comparison": "c", "data": "d", "dataset": "d", "space": "small", "metric": "error",
          "seed": 0, "ask_seconds": 0.5, "cost_seconds": 2.0}  # fmt: skip


def replicate(
    method: str, repeat: int, losses: list[float | None], test: float, **more: str
) -> list[dict]:
    """A trial each ten seconds of forty, which has failed where there is no loss."""
    budget = {"budget_seconds": 40.0, "budget_trials": None}
    common = {**COMMON, **budget, **more, "method": method, "repeat": repeat}
    common["study"] = "-".join((method, str(repeat), *more.values()))
    rows, best = [{**common, "trials": 0, "seconds": 0.0}], None
    for n, loss in enumerate(losses, 1):
        best = loss if best is None else min(best, loss or best)
        rows.append(
            {**common, "trial": n, "trials": n, "seconds": 10.0 * n, "loss": loss, "incumbent": n,
             "incumbent_loss": best, "test_loss": test, "failure": None if loss else "error"}
        )  # fmt: skip
    return rows


def report_of(replicates: Iterable[list[dict]]) -> tuple[ComparisonOutcome, ComparisonReport]:
    """The outcome of a comparison with these replicates, and its report."""
    rows = [row for rows in replicates for row in rows]
    curves = pd.DataFrame(rows, columns=list(CURVE_COLUMNS))
    subject = SingleComparison("c", "d", "small", "error", 2, 40.0, None, "curves.parquet", {})
    outcome = ComparisonOutcome(subject, standings(curves))
    return outcome, comparison_report(outcome.to_json(), curves)
