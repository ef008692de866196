"""Terminal output on artifacts (lists or single artifacts) and on the whole store."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.table import Table

from prefect_tune.deployments.views.console import CONSOLE, bold, line, uncut_column
from prefect_tune.flows.wording.text import (
    bracketed,
    counted,
    format_bytes,
    format_seconds,
    saved_text,
)
from prefect_tune.optimizers.documents import value_text
from prefect_tune.storage.index import CacheTotals, Entry
from prefect_tune.storage.inspection import Verification

_MOST_TRIALS = 10


def print_artifacts(entries: Sequence[Entry]) -> None:
    """Print artifacts, one artifact per line."""
    names = "step", "algorithm", "size", "cost", "hits"
    table = Table(uncut_column("key"), *names, uncut_column("last used"), "study", box=None)
    for entry in entries:
        last_used = datetime.fromtimestamp(entry.last_used, UTC).astimezone()
        table.add_row(
            entry.key[:12],
            entry.step,
            entry.algorithm,
            format_bytes(entry.size_bytes),
            format_seconds(entry.cost_seconds),
            str(entry.hits),
            f"{last_used:%Y-%m-%d %H:%M:%S}",
            entry.study,
        )
    CONSOLE.print(table if entries else "no cached steps")


def print_artifact(entry: Entry, detail: Mapping[str, Any], trials: Sequence[str]) -> None:
    """Print an artifact: origin, files, contents, and the trials that used the artifact."""
    from prefect_tune.tasks.data.split import REFIT  # noqa: PLC0415 - lists need no split

    lineage = detail["lineage"] or {}
    rows = "all training rows (final model)" if entry.fold == REFIT else f"fold {entry.fold}"
    rows = "all rows of a partition of patients" if "block" in lineage else rows
    state = "" if entry.is_present else ", evicted (only its summary remains)"
    CONSOLE.print(line(bold(entry.key)))
    CONSOLE.print(
        f"  {entry.step}: {entry.algorithm}, {rows}, made by study "
        f"{entry.study} in {format_seconds(entry.cost_seconds)}, "
        f"{format_bytes(entry.size_bytes)}, served {entry.hits} times{state}"
    )
    for step in lineage.get("steps", []):
        values = ", ".join(f"{name}={value}" for name, value in step["arguments"].items())
        CONSOLE.print(f"    {step['step']}: {step['algorithm']}{bracketed(values)}")
    if "epochs" in lineage:
        CONSOLE.print(f"    a checkpoint after {counted(lineage['epochs'], 'epoch')}")
    for file in detail["files"]:
        print_contents(file, detail["contents"][file["name"]])
    for child in detail["children"]:
        name, evicted = child["key"][:12], "" if child["is_present"] else ", evicted"
        CONSOLE.print(f"  children: {name} {child['step']}: {child['algorithm']}{evicted}")
    more = f" and {len(trials) - _MOST_TRIALS} more" if len(trials) > _MOST_TRIALS else ""
    listed = f": {', '.join(trials[:_MOST_TRIALS])}{more}" if trials else ""
    CONSOLE.print(f"  used by {counted(len(trials), 'trial')}{listed}")


def print_contents(file: Mapping[str, Any], contents: Mapping[str, Any]) -> None:
    """Print a file of an artifact, with a preview of the contents."""
    size = format_bytes(file["size_bytes"])
    CONSOLE.print(line("  ", bold(file["name"]), f" {size} {file['url']}"))
    if "unreadable" in contents:
        CONSOLE.print(f"    cannot be read: {contents['unreadable']}")
    elif "type" in contents:
        CONSOLE.print(f"    {contents['type']}")
        for attribute, value in contents["fitted"].items():
            CONSOLE.print(f"    {attribute} = {value}")
    else:
        shape = " x ".join(map(str, contents["shape"]))
        if hidden := contents["columns_not_shown"]:
            shape += f"; {counted(hidden, 'more column')} not shown"
        CONSOLE.print(f"    {shape}")
        statistics = "count", "mean", "min", "max"
        table = Table("column", *statistics, "first values", box=None)
        for position, (column_name, column) in enumerate(contents["columns"].items()):
            values = [column.get(statistic) for statistic in statistics]
            first = [row[position] for row in contents["rows"]]
            texts = ["" if value is None else value_text(value) for value in [*values, *first]]
            table.add_row(column_name, *texts[: len(values)], ", ".join(texts[len(values) :]))
        CONSOLE.print(table)


def print_totals(totals: CacheTotals, records_bytes: int) -> None:
    """Print the sizes and counts of a store."""
    n_steps = totals.hits + totals.misses
    share = f" ({100 * totals.hits / n_steps:.0f}%)" if n_steps else ""
    sizes = totals.size_bytes, totals.budget_bytes, records_bytes
    size, budget, records = map(format_bytes, sizes)
    CONSOLE.print(
        f"cache: {counted(totals.count, 'step')}, {size} of {budget}; records: {records}\n"
        f"{totals.hits} of {n_steps} steps served{share}, {saved_text(totals.seconds_saved)} "
        f"saved; {totals.evicted} evicted, {totals.refused} refused"
    )
    table = Table("step", "hits", "misses", "saved", "evicted", "size", box=None)
    for step, counts in totals.steps.items():
        saved, size = saved_text(counts.seconds_saved), format_bytes(counts.size_bytes)
        numbers = counts.hits, counts.misses, saved, counts.evicted, size
        table.add_row(step, *map(str, numbers))
    if totals.steps:
        CONSOLE.print(table)


def print_verification(found: Verification, *, is_repaired: bool = False) -> None:
    """Print the faults that were found in a store, and any repairs."""
    for what in ("damaged", "missing", "orphans"):
        for name in getattr(found, what):
            CONSOLE.print(f"{what}: {name}")
    state = "all sound" if found.is_sound else "not sound"
    if is_repaired and not found.is_sound:
        state = "repaired; the store is sound"
    CONSOLE.print(f"{found.checked} cached steps and records checked: {state}")
