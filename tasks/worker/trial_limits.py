"""Limits of a trial: the time and memory that it may take of its worker."""

from dataclasses import dataclass

from distributed.system import MEMORY_LIMIT

__all__ = ["TrialLimits", "share_of_memory"]

_SHARE_OF_MEMORY = 0.9
"""The trials' share of a machine's memory; the rest is for the flow and the server."""


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """The most that a trial may take.

    Attributes:
        seconds: Wall time from its start on a worker.
        memory_bytes: Resident memory of its worker's process; None for what the worker was
            started with.
    """

    seconds: float
    memory_bytes: int | None = None


def share_of_memory(n_workers: int, memory_bytes: int = MEMORY_LIMIT) -> int:
    """Return each worker's share of memory, by default of this machine or container."""
    return int(_SHARE_OF_MEMORY * memory_bytes / n_workers)
