"""Where views print, and what tables of several subjects share."""

import sys

from rich.console import Console
from rich.table import Column

__all__ = ["CONSOLE", "UNITS", "uncut_column"]

CONSOLE = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 160)
UNITS = {"error": " %"}
"""Units printed after the loss of a metric."""


def uncut_column(header: str) -> Column:
    """Return a column whose values are never cut, since other commands take them."""
    return Column(header, no_wrap=True, overflow="ignore")
