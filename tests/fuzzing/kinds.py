"""All kinds of hostile input, each with its strategy and its check."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from fuzzing import command_lines, data_files, settings, store_files
from fuzzing.ground import Ground

__all__ = ["KINDS", "Kind"]


@dataclass(frozen=True)
class Kind:
    """One kind of hostile input.

    Attributes:
        name: What is hostile.
        share: Of the cases of a benchmark.
        cases: Makes one at random.
        check: Tries one; returns whether it was accepted, raises if it was neither that nor
            refused with a message and nothing left behind.
    """

    name: str
    share: float
    cases: st.SearchStrategy[Any]
    check: Callable[[Ground, Any], bool]


KINDS = (
    Kind("settings", 0.25, settings.parameters(), settings.check),
    Kind("data files", 0.3, data_files.damaged(), data_files.check),
    Kind("command line", 0.3, command_lines.command_lines(), command_lines.check),
    Kind("store's files", 0.15, store_files.damaged_stores(), store_files.check),
)
