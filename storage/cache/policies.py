"""Which artifact goes first when the cache is full: a table of policies.

Each artifact has a priority in the index, set anew at each use; the lowest goes first. A policy is
the rule for it. What is pinned, or cheaper to make again than to read, is none of its business.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["DEFAULT_POLICY", "POLICIES", "Policy"]

Columns = Mapping[str, Any]
"""Columns of an artifact's row, or values that are to be written there."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A rule for priorities.

    Attributes:
        name: What a user calls it.
        priority: From last use, number of uses, cost and size of an artifact, and from the clock
            of the cache (the highest priority that was ever evicted), the artifact's priority;
            in numbers or, for many at once, as a part of a statement.
    """

    name: str
    priority: Callable[[Columns, Any], Any]


def _least_recently_used(columns: Columns, clock: Any) -> Any:  # noqa: ARG001
    """FLASH, §5.1: the time of the last use."""
    return columns["last_used"]


def _greedy_dual_size_frequency(columns: Columns, clock: Any) -> Any:
    """Cherkasova (1998), equation 3: H = L + F C / S.

    L is the clock, F the uses, C the seconds to make it, S its bytes.
    """
    worth = columns["cost_seconds"] * (columns["hits"] + 1)
    return clock + worth / (columns["size_bytes"] + 1)


POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy("lru", _least_recently_used),
        Policy("gdsf", _greedy_dual_size_frequency),
    )
}
DEFAULT_POLICY = "lru"
