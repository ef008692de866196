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
        rungs = f"at {_listed([f'{share:.3g}' for share in partial])} of the rows, then all"
    else:
        rungs = f"at {_listed(partial)} {fidelity}, then all {full}"
    yield f"the best one in {decisions['eta']} went on {rungs} ({decisions['reason']})"
    for rung in decisions["rungs"]:
        level, n_runs, n_failed = rung["level"], rung["runs"], rung["failed"]
        counted = f"{level} {fidelity.removesuffix('s') if level == 1 else fidelity}"
        at = f"{level:.3g} of the rows" if fidelity == "subset" else counted
        yield f"  {at}: {n_runs} evaluated" + (f", {n_failed} failed" if n_failed else "")


def _listed(levels: list[Any]) -> str:
    *others, last = map(str, levels)
    return f"{', '.join(others)} and {last}" if others else last
