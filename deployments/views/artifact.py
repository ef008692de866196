"""Artifacts, one a line or one in full, and the store as a whole."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.table import Table

from prefect_tune.deployments.views.console import CONSOLE, bold, line, uncut_column
from prefect_tune.flows.text import counted, format_bytes, format_seconds
from prefect_tune.storage.inspection import Verification

_MOST_TRIALS = 10


def print_artifacts(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print artifacts, one a line."""
    table = Table(
        uncut_column("key"),
        "step",
        "algorithm",
        "size",
        "cost",
        "hits",
        uncut_column("last used"),
        "study",
        box=None,
    )
    for row in rows:
        last_used = datetime.fromtimestamp(row["last_used"], UTC).astimezone()
        table.add_row(
            row["key"][:12],
            row["step"],
            row["algorithm"],
            format_bytes(row["size_bytes"]),
            format_seconds(row["cost_seconds"]),
            str(row["hits"]),
            f"{last_used:%Y-%m-%d %H:%M:%S}",
            row["study"],
        )
    CONSOLE.print(table if rows else "no artifacts")


def print_artifact(document: Mapping[str, Any], *, final_fold: int) -> None:
    """Print one artifact: its origin, its files and their contents, and its users.

    Args:
        document: The artifact.
        final_fold: Number of the fold that the final model is trained on.
    """
    fold, lineage = document["fold"], document["lineage"] or {}
    rows = "all training rows, the final model" if fold == final_fold else f"fold {fold}"
    rows = "all rows of a partition of patients" if "block" in lineage else rows
    state = "" if document["is_present"] else ", evicted: only its facts are left"
    CONSOLE.print(line(bold(document["key"])))
    CONSOLE.print(
        f"  {document['step']}: {document['algorithm']}, {rows}, made by study "
        f"{document['study']} in {format_seconds(document['cost_seconds'])}, "
        f"{format_bytes(document['size_bytes'])}, served {document['hits']} times{state}"
    )
    for step in lineage.get("steps", []):
        values = ", ".join(f"{name}={value}" for name, value in step["arguments"].items())
        CONSOLE.print(
            f"    {step['step']}: {step['algorithm']}" + (f" ({values})" if values else "")
        )
    if "epochs" in lineage:
        CONSOLE.print(f"    a checkpoint after {counted(lineage['epochs'], 'epoch')}")
    for file in document["files"]:
        print_contents(file, document["contents"][file["name"]])
    for child in document["children"]:
        evicted = "" if child["is_present"] else ", evicted"
        made = f"{child['step']}: {child['algorithm']}"
        CONSOLE.print(f"  made from it: {child['key'][:12]} {made}{evicted}")
    used = [f"{trial['study']} {trial['number']}" for trial in document["trials"]]
    more = f" and {len(used) - _MOST_TRIALS} more" if len(used) > _MOST_TRIALS else ""
    CONSOLE.print(
        f"  used by {counted(len(used), 'trial')}: {', '.join(used[:_MOST_TRIALS])}{more}"
    )


def print_contents(file: Mapping[str, Any], contents: Mapping[str, Any]) -> None:
    """Print one file of an artifact, with its contents in a few lines."""
    size = format_bytes(file["size_bytes"])
    CONSOLE.print(line("  ", bold(file["name"]), f" {size} {file['url']}"))
    if "unreadable" in contents:
        CONSOLE.print(f"    cannot be read: {contents['unreadable']}")
    elif "type" in contents:
        CONSOLE.print(f"    {contents['type']}")
        for name, value in contents["fitted"].items():
            CONSOLE.print(f"    {name} = {value}")
    else:
        shape = " x ".join(map(str, contents["shape"]))
        hidden = contents["columns_not_shown"]
        CONSOLE.print(f"    {shape}" + (f"; {hidden} more columns are not shown" if hidden else ""))
        CONSOLE.print(_columns(contents["columns"], contents["rows"]))


def _columns(columns: Mapping[str, Mapping[str, Any]], rows: Sequence[Any]) -> Table:
    """Return statistics and first values, one column a line."""
    table = Table("column", "min", "mean", "max", "zero", "empty", "first values", box=None)
    for position, (name, of) in enumerate(columns.items()):
        first = [row[position] if isinstance(row, list) else row for row in rows]
        numbers = [_short(of.get(what)) for what in ("min", "mean", "max")]
        shares = [_share(of.get(f"share_{what}")) for what in ("zero", "empty")]
        table.add_row(name, *numbers, *shares, ", ".join(map(_short, first)))
    return table


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def _short(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def print_stats(document: Mapping[str, Any]) -> None:
    """Print sizes and counts of a store."""
    n_steps = document["hits"] + document["misses"]
    share = f" ({100 * document['hits'] / n_steps:.0f} %)" if n_steps else ""
    size, budget, records = (
        format_bytes(document[name]) for name in ("size_bytes", "budget_bytes", "records_bytes")
    )
    copies = document["copies_bytes"]
    on_host = f", {format_bytes(copies)} of them also on this host" if copies else ""
    CONSOLE.print(
        f"cache: {document['count']} artifacts, {size} of {budget}; records: {records}{on_host}\n"
        f"{document['hits']} of {n_steps} steps served{share}, "
        f"{format_seconds(document['seconds_saved'])} saved; "
        f"{document['evicted']} evicted, {document['refused']} refused"
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
    """Print the faults that a verification found in a store, and those it repaired."""
    for what in ("damaged", "missing", "orphans"):
        for name in getattr(found, what):
            CONSOLE.print(f"{what}: {name}")
    state = "all sound" if found.is_sound else "not sound"
    if is_repaired and not found.is_sound:
        state = "repaired, all sound now"
    CONSOLE.print(f"{found.checked} artifacts and records checked: {state}")
