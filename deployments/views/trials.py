"""Trials of a study, one a line."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from prefect_tune.deployments.views.console import CONSOLE
from prefect_tune.optimizers.space.rendering import fidelity_text

__all__ = ["print_trials"]


def print_trials(
    rows: Sequence[Mapping[str, Any]], n_folds: int | None = None, epochs: int | None = None
) -> None:
    """Print trials, one a line; failed ones with their reason, others with what they ran on.

    Args:
        rows: Trials as JSON values.
        n_folds: Folds of the whole evaluation, where known.
        epochs: Epochs of the whole training, where known.
    """
    fidelities = [fidelity_text(row["query"], n_folds, epochs) for row in rows]
    of = ("of",) if any(fidelities) else ()
    table = Table("trial", "state", *of, "loss", "seconds", "cached", "pipeline", box=None)
    for row, fidelity in zip(rows, fidelities, strict=True):
        evaluation, failure = row["evaluation"], row["failure"]
        path = " > ".join(c["algorithm"] for c in row["query"]["configuration"].values())
        steps = evaluation["steps"] if evaluation else []
        cost = (evaluation or failure or {}).get("cost_seconds")
        measured = evaluation["constraints"] if evaluation else {}
        where = (
            f"{failure['step']}, fold {failure['fold']}: " if failure and failure["step"] else ""
        )
        table.add_row(
            str(row["number"]),
            row["state"],
            *((fidelity or "all",) if of else ()),
            f"{evaluation['loss']:.4g}" if evaluation else "",
            f"{cost:.1f}" if cost is not None else "",
            f"{sum(s['hit'] for s in steps)}/{len(steps)}" if steps else "",
            path
            + (f"\n{where}{failure['message']}" if failure else "")
            + (f"\n{evaluation['trouble']}" if evaluation and evaluation.get("trouble") else "")
            + (f"\n{_measured(measured)}" if measured else ""),
        )
    CONSOLE.print(table if rows else "no trials")


def _measured(constraints: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in constraints.items())
