"""Which artifact goes first when the cache is full: a table of policies.

Each artifact has a priority in the index, set anew at each use; the lowest goes first. A policy is
the rule for it. What is pinned, or cheaper to make again than to read, is none of its business.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Double, cast

__all__ = ["DEFAULT_POLICY", "POLICIES", "Policy"]

Columns = Mapping[str, Any]
"""Columns of an artifact's row, or values that are to be written there."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A rule for priorities.

    Attributes:
        name: What a user calls it.
        priority: From last use, number of uses, cost and size of an artifact, and from the clock
            of the cache (the highest priority that was ever evicted), the artifact's priority.
        start: The same for a new artifact, in numbers.
    """

    name: str
    priority: Callable[[Columns, ColumnElement[float]], Any]
    start: Callable[[Columns, float], float]


def _least_recently_used(columns: Columns, clock: ColumnElement[float]) -> Any:  # noqa: ARG001
    """FLASH, §5.1: the time of the last use."""
    return columns["last_used"]


def _greedy_dual_size_frequency(columns: Columns, clock: ColumnElement[float]) -> Any:
    """Cherkasova (1998), equation 3: H = L + F C / S.

    L is the clock, F the uses, C the seconds to make it, S its bytes.
    """
    worth = cast(columns["hits"] + 1, Double) * columns["cost_seconds"]
    return clock + worth / cast(columns["size_bytes"] + 1, Double)


POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy("lru", _least_recently_used, lambda row, _: float(row["last_used"])),
        Policy(
            "gdsf",
            _greedy_dual_size_frequency,
            lambda row, clock: (
                clock + (row["hits"] + 1) * row["cost_seconds"] / (row["size_bytes"] + 1)
            ),
        ),
    )
}
DEFAULT_POLICY = "lru"
