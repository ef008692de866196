"""Decisions of BAPI, as people are shown them."""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["training_lines"]


def training_lines(decisions: Mapping[str, Any]) -> list[str]:
    """Return the lines of what `Bapi.decisions` gives."""
    known = decisions.get("configurations", 0) + decisions.get("at_once", 0)
    return list(_lines(decisions)) if known else []


def _lines(decisions: Mapping[str, Any]) -> Iterator[str]:
    n, t_max = decisions["configurations"], decisions["t_max"]
    trained, saved = decisions["epochs"], decisions["saved"]
    yield (
        f"{_counted(n, 'configuration')} trained for {trained:,} epochs in all; to {t_max} epochs "
        f"each would be {n * t_max:,}: {saved:.0%} saved"
    )
    if decisions["at_once"]:
        yield f"  {decisions['at_once']} others fitted at once, as their models have no epochs"
    ends = decisions["ends"]
    said = [f"{ends[end]} {words}" for end, words in _ENDS.items() if ends.get(end)]
    if said:
        yield f"  {', '.join(said)}"
    if decisions["thawed"]:
        yield f"  {_counted(decisions['thawed'], 'training')} gone on with after others were tried"


_ENDS = {
    "full": "to the end",
    "finished": "to where nothing more was expected",
    "stopped": "stopped as they would not win",
    "diverged": "diverged",
    "failed": "failed",
}


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
