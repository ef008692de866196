"""Clouds of points thinned: so many can be told apart, and a page stays quick with them."""

from collections.abc import Collection, Sequence
from math import isfinite

__all__ = ["MOST_POINTS", "thinned"]

MOST_POINTS = 2_000


def thinned(
    values: Sequence[float | None], keep: Collection[int] = (), most: int = MOST_POINTS
) -> list[int]:
    """Return the positions to show, in order: all of them, or evenly chosen ones.

    The least and the largest value are always among them.

    Args:
        values: What is shown; None for what is not.
        keep: Positions that are shown in any case.
        most: How many are shown at most, those to keep aside.
    """
    known = [i for i, value in enumerate(values) if value is not None and isfinite(value)]
    if len(known) <= most:
        return known

    def value_at(i: int) -> float:
        return values[i] or 0.0

    extremes = {min(known, key=value_at), max(known, key=value_at)}
    even = {known[i * len(known) // most] for i in range(most)}
    return sorted(even | extremes | set(keep).intersection(known))
