"""Decisions of the methods that learn on subsets, as people are shown them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["size_lines"]

_LEAST_SHOWN = 0.05
"""Probability of a model that is worth naming."""


def size_lines(decisions: Mapping[str, Any]) -> list[str]:
    """Return the lines of what `Fabolas.decisions` gives."""
    return [
        *_sizes(decisions),
        *_gate(decisions.get("gate", {})),
        *_models(decisions.get("algorithms", {})),
        *_confirmed(decisions.get("confirmations", ())),
    ]


def _sizes(decisions: Mapping[str, Any]) -> Iterator[str]:
    sizes, n_sizes = decisions.get("sizes", ()), decisions.get("n_sizes", 0)
    if sizes:
        yield f"evaluated on {len(sizes)} of {n_sizes} sizes:" if n_sizes > 1 else "evaluated on:"
    for size in sizes:
        n_failed = size["failed"]
        failed = f", {n_failed} of them failed" if n_failed else ""
        yield f"  {_share(size['share'])} of the rows: {_counted(size['runs'], 'trial')}{failed}"


def _gate(gate: Mapping[str, Any]) -> Iterator[str]:
    if gate.get("state") == "closed":
        yield f"subsets were given up: {gate['reason']}"


def _models(probabilities: Mapping[str, float]) -> Iterator[str]:
    ranked = sorted(probabilities.items(), key=lambda pair: -pair[1])
    if len(ranked) > 1:
        shown = [f"{name} {p:.2f}" for name, p in ranked if p >= _LEAST_SHOWN]
        yield f"the best one's model, by probability: {', '.join(shown)}"


def _confirmed(confirmations: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for made in confirmations:
        predicted = f"predicted {made['predicted']:.4g} (deviation {made['deviation']:.2g})"
        is_failed = made.get("state") == "failed"
        nothing = "failed on all rows" if is_failed else "not evaluated on all rows in time"
        came = nothing if made["loss"] is None else f"came out as {made['loss']:.4g} on all rows"
        unlike = ", which disagrees" if made["disagrees"] else ""
        yield f"trial {made['trial']}: {predicted}, {came}{unlike}"
    if any(made["disagrees"] for made in confirmations):
        yield "more than two deviations apart: subsets are not to be relied on here"


def _share(share: float) -> str:
    return "all" if share == 1 else f"1/{round(1 / share)}"


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
