"""Artifacts, as a list or in full, and the store as a whole."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.table import Table

from prefect_tune.deployments.views.console import CONSOLE, bold, line, uncut_column
from prefect_tune.flows.text import (
    bracketed,
    counted,
    format_bytes,
    format_seconds,
    saved_text,
)
from prefect_tune.optimizers.space.wording import value_text
from prefect_tune.storage.cache.entry import Entry
from prefect_tune.storage.inspection import ArtifactDetail, StoreStats, Verification

_MOST_TRIALS = 10


def print_artifacts(entries: Sequence[Entry]) -> None:
    """Print artifacts, one per line."""
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
    CONSOLE.print(table if entries else "no artifacts")


def print_artifact(detail: ArtifactDetail, trials: Sequence[str], *, final_fold: int) -> None:
    """Print one artifact: its origin, files, contents, and the trials that used it."""
    entry, lineage = detail.entry, detail.lineage or {}
    is_final = entry.fold == final_fold
    rows = "all training rows (final model)" if is_final else f"fold {entry.fold}"
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
    for name, url in detail.urls.items():
        print_contents(name, entry.parts[name].size_bytes, url, detail.contents[name])
    for child in detail.children:
        evicted = "" if child.is_present else ", evicted"
        made = f"{child.step}: {child.algorithm}"
        CONSOLE.print(f"  children: {child.key[:12]} {made}{evicted}")
    more = f" and {len(trials) - _MOST_TRIALS} more" if len(trials) > _MOST_TRIALS else ""
    CONSOLE.print(
        f"  used by {counted(len(trials), 'trial')}: {', '.join(trials[:_MOST_TRIALS])}{more}"
    )


def print_contents(name: str, size_bytes: int, url: str, contents: Mapping[str, Any]) -> None:
    """Print one file of an artifact, with a preview of its contents."""
    CONSOLE.print(line("  ", bold(name), f" {format_bytes(size_bytes)} {url}"))
    if "unreadable" in contents:
        CONSOLE.print(f"    cannot be read: {contents['unreadable']}")
    elif "type" in contents:
        CONSOLE.print(f"    {contents['type']}")
        for attribute, value in contents["fitted"].items():
            CONSOLE.print(f"    {attribute} = {value}")
    else:
        shape = " x ".join(map(str, contents["shape"]))
        hidden = contents["columns_not_shown"]
        CONSOLE.print(f"    {shape}" + (f"; {hidden} more columns are not shown" if hidden else ""))
        CONSOLE.print(_columns(contents["columns"], contents["rows"]))


def _columns(columns: Mapping[str, Mapping[str, Any]], rows: Sequence[Any]) -> Table:
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
    return "" if value is None else value_text(value)


def print_stats(stats: StoreStats) -> None:
    """Print sizes and counts of a store."""
    n_steps = stats.hits + stats.misses
    share = f" ({100 * stats.hits / n_steps:.0f} %)" if n_steps else ""
    sizes = stats.size_bytes, stats.budget_bytes, stats.records_bytes
    size, budget, records = map(format_bytes, sizes)
    copies = stats.copies_bytes
    on_host = f", {format_bytes(copies)} of them also on this host" if copies else ""
    CONSOLE.print(
        f"cache: {stats.count} artifacts, {size} of {budget}; records: {records}{on_host}\n"
        f"{stats.hits} of {n_steps} steps served{share}, {saved_text(stats.seconds_saved)} saved; "
        f"{stats.evicted} evicted, {stats.refused} refused"
    )
    for reason, times in stats.refusals.items():
        CONSOLE.print(f"  refused {times} times: {reason}")
    table = Table("step", "hits", "misses", "saved", "evicted", "size", box=None)
    for step, counts in stats.steps.items():
        table.add_row(
            step,
            str(counts.hits),
            str(counts.misses),
            saved_text(counts.seconds_saved),
            str(counts.evicted),
            format_bytes(counts.size_bytes),
        )
    if stats.steps:
        CONSOLE.print(table)


def print_verification(found: Verification, *, is_repaired: bool = False) -> None:
    """Print the faults found in a store, and whether they were repaired."""
    for what in ("damaged", "missing", "orphans"):
        for name in getattr(found, what):
            CONSOLE.print(f"{what}: {name}")
    state = "all sound" if found.is_sound else "not sound"
    if is_repaired and not found.is_sound:
        state = "repaired; the store is sound"
    CONSOLE.print(f"{found.checked} artifacts and records checked: {state}")
