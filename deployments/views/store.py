"""The store as a whole: how full it is, how often it served, and whether it is sound."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from prefect_tune.deployments.views.console import CONSOLE
from prefect_tune.flows.text import format_bytes, format_seconds
from prefect_tune.storage.inspection import Verification

__all__ = ["print_stats", "print_verification"]


def print_stats(document: Mapping[str, Any]) -> None:
    """Print sizes and counts of a store."""
    n_steps = document["hits"] + document["misses"]
    share = f" ({100 * document['hits'] / n_steps:.0f} %)" if n_steps else ""
    size, budget, records = (
        format_bytes(document[name]) for name in ("size_bytes", "budget_bytes", "records_bytes")
    )
    CONSOLE.print(
        f"cache: {document['count']} artifacts, {size} of {budget}; records: {records}\n"
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
