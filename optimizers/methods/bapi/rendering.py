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
    trained, spared = decisions["epochs"], decisions["spared"]
    yield (
        f"{_counted(n, 'configuration')} trained for {trained:,} of {n * t_max:,} epochs in all"
        + (f"; {spared:,} spared by ending early" if spared else "")
    )
    if decisions["at_once"]:
        yield f"  {decisions['at_once']} others fitted at once, as their models have no epochs"
    ends = decisions["ends"]
    said = [f"{ends[end]} {words}" for end, words in _ENDS.items() if ends.get(end)]
    if said:
        yield f"  {', '.join(said)}"
    if "least" in decisions:
        least = decisions["least"]
        yield (
            f"  trial {least['trial']} has the least loss at one epoch, {least['loss']:.4g}; the "
            "answer has the least mean over neighbouring epochs"
        )
    if decisions["thawed"]:
        yield f"  {_counted(decisions['thawed'], 'training')} gone on with after others were tried"


_ENDS = {
    "full": "to the end",
    "finished": "to where nothing more was expected",
    "stopped": "stopped as they would not win",
    "diverged": "diverged",
    "left": "left where they were",
    "failed": "failed",
}


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
