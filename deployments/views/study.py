"""What the commands print for people."""

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from prefect_tune.flows.units import counted, format_bytes, format_seconds, loss_name
from prefect_tune.optimizers.registry import METHODS
from prefect_tune.optimizers.space.rendering import pipeline_lines
from prefect_tune.storage.inspection import Verification

__all__ = [
    "CONSOLE",
    "UNITS",
    "print_artifacts",
    "print_stats",
    "print_studies",
    "print_summary",
    "print_trials",
    "print_verification",
]

CONSOLE = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 160)
UNITS = {"error": " %"}
"""Written after losses of a metric."""


def print_summary(summary: Mapping[str, Any]) -> None:
    """What came of a study."""
    unit = UNITS.get(summary["metric"], "")
    seconds, cache, incumbent = summary["seconds"], summary["cache"], summary["incumbent"]
    CONSOLE.print(f"[bold]{summary['study']}[/] ({summary['method']}, {summary['state']})")
    total, evaluating = format_seconds(seconds["total"]), format_seconds(seconds["evaluating"])
    CONSOLE.print(
        f"  {counted(summary['n_trials'], 'trial')}, {summary['n_failed']} failed, in {total} "
        f"({evaluating} of evaluating)"
        + (f"; {summary['n_waiting']} more asked for, and not run" if summary["n_waiting"] else "")
    )
    if incumbent is not None:
        scored = "cross-validated" if summary["holdout"] is None else "held-out"
        CONSOLE.print(
            f"  best: trial {incumbent['trial']}, {scored} {loss_name(summary['metric'])} "
            f"[bold]{incumbent['loss']:.4g}{unit}[/]"
            + (
                f"; on the test rows [bold]{summary['test_loss']:.4g}{unit}[/]"
                if summary["test_loss"] is not None
                else ""
            )
            + f" (guessing: {summary['chance_loss']:.4g}{unit})"
        )
        for line in pipeline_lines(incumbent["configuration"]):
            CONSOLE.print(f"    {line}")
    if summary["ensemble"] is not None:
        members = ", ".join(
            f"{m['trial']} ({m['weight']:.2f})" for m in summary["ensemble"]["members"]
        )
        loss = summary["ensemble"]["losses"][-1]
        CONSOLE.print(f"  ensemble of trials {members}: {loss:.4g}{unit} on the held-out rows")
    for name, bound in summary["constraints"].items():
        best = incumbent or summary["nearest_infeasible"]
        value = best["constraints"].get(name) if best else None
        measured = "not measured" if value is None else f"{value:.4g}"
        nearest = "" if incumbent or not best else f" in trial {best['trial']}, the nearest"
        CONSOLE.print(f"  {name}: {measured} of at most {bound:g}{nearest}")
    method = METHODS.get(summary["method"])
    for line in method.render_decisions(summary["decisions"]) if method else ():
        CONSOLE.print(f"  {line}")
    n_steps = cache["hits"] + cache["misses"]
    if n_steps:
        CONSOLE.print(
            f"  cache: {cache['hits']} of {n_steps} steps served, "
            f"{format_seconds(cache['seconds_saved'])} saved, {format_bytes(cache['size_bytes'])}"
        )
    study = summary["study"]
    CONSOLE.print(
        f"  next: prefect-tune show {study} | trials {study} | artifacts ls --study {study}"
        + (f" | export {study} model.pkl" if incumbent else "")
    )


def print_trials(rows: Sequence[Mapping[str, Any]]) -> None:
    """Trials, one a line; failed ones with their reason."""
    table = Table("trial", "state", "loss", "seconds", "cached", "pipeline", box=None)
    for row in rows:
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
            f"{evaluation['loss']:.4g}" if evaluation else "",
            f"{cost:.1f}" if cost is not None else "",
            f"{sum(s['hit'] for s in steps)}/{len(steps)}" if steps else "",
            path
            + (f"\n{where}{failure['message']}" if failure else "")
            + (f"\n{_measured(measured)}" if measured else ""),
        )
    CONSOLE.print(table if rows else "no trials")


def _measured(constraints: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in constraints.items())


def print_artifacts(rows: Sequence[Mapping[str, Any]]) -> None:
    """Artifacts, one a line."""
    table = Table(
        _whole("key"),
        "step",
        "algorithm",
        "size",
        "cost",
        "hits",
        _whole("last used"),
        "study",
        box=None,
    )
    for row in rows:
        table.add_row(
            row["key"][:12],
            row["step"],
            row["algorithm"],
            format_bytes(row["size_bytes"]),
            format_seconds(row["cost_seconds"]),
            str(row["hits"]),
            _when(row["last_used"]),
            row["study"],
        )
    CONSOLE.print(table if rows else "no artifacts")


def print_stats(document: Mapping[str, Any]) -> None:
    """Sizes and counts of a store."""
    n_steps = document["hits"] + document["misses"]
    share = f" ({100 * document['hits'] / n_steps:.0f} %)" if n_steps else ""
    size, budget, records = (
        format_bytes(document[name]) for name in ("size_bytes", "budget_bytes", "records_bytes")
    )
    CONSOLE.print(
        f"cache: {document['count']} artifacts, {size} of {budget}; records: {records}\n"
        f"{document['hits']} of {n_steps} steps served{share}, "
        f"{format_seconds(document['seconds_saved'])} saved; "
        f"{document['evicted']} evicted by {document['policy']}, {document['refused']} refused"
    )
    for reason, times in document["refusals"].items():
        CONSOLE.print(f"  refused {times} times: {reason}")
    table = Table("step", "hits", "misses", "saved", "evicted", "size", box=None)
    for step, counts in document["steps"].items():
        table.add_row(
            step,
            str(counts["hits"]),
            str(counts["misses"]),
            format_seconds(counts["seconds_saved"]),
            str(counts["evicted"]),
            format_bytes(counts["size_bytes"]),
        )
    if document["steps"]:
        CONSOLE.print(table)


def print_verification(found: Verification, *, is_repaired: bool = False) -> None:
    """What is or was wrong with a store, if anything."""
    for what in ("damaged", "missing", "orphans"):
        for name in getattr(found, what):
            CONSOLE.print(f"{what}: {name}")
    state = "all sound" if found.is_sound else "not sound"
    if is_repaired and not found.is_sound:
        state = "repaired, all sound now"
    CONSOLE.print(f"{found.checked} artifacts and records checked: {state}")


def print_studies(rows: Sequence[Mapping[str, Any]]) -> None:
    """Studies, one a line."""
    table = Table(
        _whole("study"), "state", "method", "metric", "best", "trials", "failed", "data", box=None
    )
    for row in rows:
        best = row["incumbent"]
        table.add_row(
            row["study"],
            row["state"],
            row["method"],
            loss_name(row["metric"]),
            f"{best['loss']:.4g}" if best else "",
            str(row["n_trials"]),
            str(row["n_failed"]),
            row["data"],
        )
    CONSOLE.print(table if rows else "no studies")


def _whole(header: str) -> Column:
    """A column whose values are never cut: others commands need them."""
    return Column(header, no_wrap=True, overflow="ignore")


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
