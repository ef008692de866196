"""Hand-made curves of studies in a comparison."""

from collections.abc import Iterable

import pandas as pd

from prefect_tune.flows.comparison.standings import CURVE_COLUMNS

COMMON = {"comparison": "c", "data": "d", "dataset": "d", "space": "small", "metric": "error",
          "seed": 0, "ask_seconds": 0.5, "cost_seconds": 2.0, "budget_seconds": 40.0}  # fmt: skip


def replicate(
    method: str, repeat: int, losses: list[float | None], test: float | None, **changes: str
) -> list[dict]:
    """Return a trial every ten seconds; a trial without a loss has failed."""
    common = {**COMMON, **changes, "method": method, "repeat": repeat, "test_loss": test}
    common["study"] = f"{common['comparison']}-{repeat}-{method}"
    rows, best = [{**common, "trials": 0, "seconds": 0.0}], None
    for n, loss in enumerate(losses, 1):
        best = loss if best is None else min(best, loss or best)
        rows.append(
            {**common, "trial": n, "trials": n, "seconds": 10.0 * n, "loss": loss, "incumbent": n,
             "incumbent_loss": best, "failure": None if loss else "error"}
        )  # fmt: skip
    return rows


def curves_of(replicates: Iterable[list[dict]]) -> pd.DataFrame:
    """Return the curves of a comparison with these studies."""
    rows = [row for rows in replicates for row in rows]
    return pd.DataFrame(rows, columns=list(CURVE_COLUMNS))
