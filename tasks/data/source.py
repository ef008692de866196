"""Where data comes from, and how to read it."""

from dataclasses import dataclass
from typing import Literal

GAPS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")
"""Texts that count as missing by default, in any kind of file."""


@dataclass(frozen=True, slots=True)
class Source:
    """Options that say where data comes from; they have the names of the command line.

    Attributes:
        data: A file or folder, `cohort:NAME?option=value` or `sklearn:NAME`.
        target: Column of the class.
        labels: File or folder of labels, for events.
        format: Name of one of the `formats`; None detects it.
        test: File of the test rows: a table like `data`, or for events labels like `labels`.
        group: Column of a table whose equal values stay in one fold.
        drop: Columns to leave out.
        categorical: Columns to take as categories.
        drop_missing_target: Whether to leave out rows without a class.
        na_values: Texts that count as missing; None for the default list.
        aside: Dropped columns that a constraint takes its groups from.
        predicts: Kind of the target, classes or numbers; None detects it.
    """

    data: str
    target: str | None = None
    labels: str | None = None
    format: str | None = None
    test: str | None = None
    group: str | None = None
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    drop_missing_target: bool = False
    na_values: tuple[str, ...] | None = None
    aside: tuple[str, ...] = ()
    predicts: Literal["classes", "numbers"] | None = None

    @property
    def gaps(self) -> tuple[str, ...]:
        """Texts that count as missing; empty cells always do."""
        return GAPS if self.na_values is None else tuple(dict.fromkeys(("", *self.na_values)))
