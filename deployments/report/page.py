"""A report as a page: its contents, before rendering to HTML.

All texts are plain, without markup. Long tables and texts are cut here, so that pages stay small.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Self

import pandas as pd
from pandas.api.types import is_numeric_dtype

from prefect_tune.flows.reading.study_lines import StudyLine
from prefect_tune.flows.wording.text import number_text

Texts = Mapping[str, Callable[..., str]]
"""Functions that format the values of a column, by its name."""
NO_TEXTS: Texts = {}
_MOST_ROWS = 200
"""Maximum number of rows in a table and lines in a text."""
_LONGEST_CELL = 200
_LONGEST_LINE = 1_000


def clipped(text: str, most: int = _LONGEST_LINE) -> str:
    """Return a text of at most `most` characters; a longer one ends in an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


@dataclass(frozen=True, slots=True)
class Figure:
    """A Plotly figure with its height in pixels and a note below.

    The `plot` may have colours such as `var(--name)`. A wide screen shows two `is_half` figures in
    a row.
    """

    title: str
    plot: Any
    height: int = 380
    note: str = ""
    is_half: bool = False

    kind = "figure"


@dataclass(frozen=True, slots=True)
class Table:
    """A table, expanded if `is_open`, with a note below.

    A heading with a leading `#` marks a numeric column; the sign is not shown. Two leading spaces
    indent the text of a cell.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    is_open: bool = False
    note: str = ""

    kind = "table"

    @classmethod
    def of(
        cls, caption: str, frame: pd.DataFrame, texts: Texts = NO_TEXTS, *, is_open: bool = False
    ) -> Self:
        """Return the table of a frame; `texts` has functions that format columns."""
        shown = frame.head(_MOST_ROWS)
        columns = [values.map(texts.get(str(name), _text)) for name, values in shown.items()]
        headings = [
            f"{'#' * is_numeric_dtype(values)}{_heading(str(name))}"
            for name, values in frame.items()
        ]
        note = f"The first {_MOST_ROWS} of {len(frame):,} rows." if len(frame) > len(shown) else ""
        return cls(caption, headings, [*zip(*columns, strict=True)], is_open, note)

    def __post_init__(self) -> None:
        rows = [[clipped(cell, _LONGEST_CELL) for cell in row] for row in self.rows[:_MOST_ROWS]]
        object.__setattr__(self, "rows", rows)


def _heading(name: str) -> str:
    if name.startswith("params_"):  # a step, with a name that a user chose
        return name.removeprefix("params_")
    return name.replace("_", " ") if name.isidentifier() else name


def _text(cell: Any) -> str:
    if isinstance(cell, float):
        return number_text(cell)
    return "-" if cell is None or cell is pd.NA else str(cell)


@dataclass(frozen=True, slots=True)
class Text:
    """Lines of text; those with a caption are folded, and of any number."""

    lines: Sequence[str]
    caption: str = ""

    kind = "text"

    def __post_init__(self) -> None:
        lines = self.lines if self.caption else self.lines[:_MOST_ROWS]
        object.__setattr__(self, "lines", [clipped(line) for line in lines])


@dataclass(frozen=True, slots=True)
class Command:
    """A command to copy, and its purpose."""

    words: str
    purpose: str = ""

    kind = "command"


Part = Figure | Table | Text | Command


@dataclass(frozen=True, slots=True)
class Section:
    """A section: its parts, and a note on how to read them."""

    id: str
    title: str
    note: str
    parts: Sequence[Part] = ()


def _made_now() -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"Made by prefect-tune {version('prefect-tune')} on {now}."


@dataclass(frozen=True, slots=True)
class ReportPage:
    """A report: facts, lines and commands on the first screen, then sections by interest.

    The `headline`, if any, is the most important number, in large letters.
    """

    title: str
    kind: str
    state: str
    facts: Sequence[str]
    headline: str
    lines: Sequence[StudyLine]
    commands: Sequence[Command]
    sections: Sequence[Section]
    made: str = field(default_factory=_made_now)
