"""Decisions of the methods that halve, as people are shown them."""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["bracket_lines"]


def bracket_lines(decisions: Mapping[str, Any]) -> list[str]:
    """Return the lines of what `Halving.decisions` gives."""
    return list(_lines(decisions)) if "fidelity" in decisions else []


def _lines(decisions: Mapping[str, Any]) -> Iterator[str]:
    fidelity, levels = decisions["fidelity"], decisions["levels"]
    *partial, full = levels
    if fidelity == "subset":
        *partial, whole = [*map(_share, partial), "all of the rows"]
    else:
        whole = f"all {full} {fidelity}"
    rungs = " to ".join([*map(str, partial), whole])
    yield f"one in {decisions['eta']} goes on, from {rungs} ({decisions['reason']})"
    for rung in decisions["rungs"]:
        level, n_runs, n_failed = rung["level"], rung["runs"], rung["failed"]
        counted = f"{level} {fidelity.removesuffix('s') if level == 1 else fidelity}"
        at = f"{_share(level)} of the rows" if fidelity == "subset" else counted
        yield f"  {at}: {n_runs} evaluated" + (f", {n_failed} failed" if n_failed else "")


def _share(share: float) -> str:
    return "all" if share == 1 else f"1/{round(1 / share)}"
