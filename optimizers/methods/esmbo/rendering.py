"""Decisions of the methods that end in an agnostic ensemble, as people are shown them."""

from collections.abc import Mapping
from typing import Any

__all__ = ["ensemble_lines"]


def ensemble_lines(decisions: Mapping[str, Any]) -> list[str]:
    """Return the lines of what `Esmbo.decisions` gives."""
    n_members, n_trials = decisions.get("members", 0), decisions.get("candidates", 0)
    if not n_members:
        return []
    effective, n = decisions["effective"], decisions["histories"]
    among = (
        f"in the search, {n_members} of {n_trials} models were the best in some of {n} bootstraps"
    )
    return [f"{among}, worth {effective:.1f} of equal weight"]
