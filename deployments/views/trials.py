"""Trials of a study, one a line."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table

from prefect_tune.deployments.views.console import CONSOLE
from prefect_tune.optimizers.space.wording import fidelity_text

_STATES = {"stopped": "in part"}
"""States by the words that people know them by, where these are others."""


def first_trials(rows: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Return the trials that go on with a configuration, each with the one that began it.

    Args:
        rows: All trials of a study as JSON values, by number.
    """
    begun: dict[str, int] = {}
    first = {
        row["number"]: begun.setdefault(
            json.dumps(row["query"]["configuration"], sort_keys=True), row["number"]
        )
        for row in rows
    }
    return {number: of for number, of in first.items() if number != of}


def print_trials(
    rows: Sequence[Mapping[str, Any]],
    n_folds: int | None = None,
    epochs: int | None = None,
    *,
    first: Mapping[int, int] | None = None,
    links: Mapping[int, str] | None = None,
) -> None:
    """Print trials, one a line; failed ones with their reason, others with what they ran on.

    Args:
        rows: Trials as JSON values.
        n_folds: Folds of the whole evaluation, where known.
        epochs: Epochs of the whole training, where known.
        first: Trials that go on with a configuration, each with the one that began it.
        links: By number, where Prefect shows the task runs of trials.
    """
    first, links = first or {}, links or {}
    fidelities = [fidelity_text(row["query"], n_folds, epochs) for row in rows]
    of = ("of",) if any(fidelities) else ()
    on = ("goes on",) if any(row["number"] in first for row in rows) else ()
    table = Table("trial", *on, "state", *of, "loss", "seconds", "cached", "pipeline", box=None)
    for row, fidelity in zip(rows, fidelities, strict=True):
        evaluation, failure = row["evaluation"], row["failure"]
        path = " > ".join(c["algorithm"] for c in row["query"]["configuration"].values())
        steps = evaluation["steps"] if evaluation else []
        cost = (evaluation or failure or {}).get("cost_seconds")
        constraints = evaluation["constraints"] if evaluation else {}
        measured = ", ".join(f"{name} {value:.4g}" for name, value in constraints.items())
        where = (
            f"{failure['step']}, fold {failure['fold']}: " if failure and failure["step"] else ""
        )
        table.add_row(
            str(row["number"]),
            *((f"from {first[row['number']]}" if row["number"] in first else "",) if on else ()),
            _STATES.get(row["state"], row["state"]),
            *((fidelity or "all",) if of else ()),
            f"{evaluation['loss']:.4g}" if evaluation else "",
            f"{cost:.1f}" if cost is not None else "",
            f"{sum(s['hit'] for s in steps)}/{len(steps)}" if steps else "",
            path
            + (f"\n{where}{failure['message']}" if failure else "")
            + "".join(f"\n| {line}" for line in (failure or {}).get("output", "").splitlines())
            + (f"\n{links[row['number']]}" if row["number"] in links else "")
            + (f"\n{evaluation['trouble']}" if evaluation and evaluation.get("trouble") else "")
            + (f"\n{measured}" if measured else ""),
        )
    CONSOLE.print(table if rows else "no trials")
