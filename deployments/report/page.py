"""A report as a page: its contents, before rendering to HTML.

All texts are plain, without markup. Long tables and texts are cut here, so that pages stay small.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

T = TypeVar("T")
_MOST_ROWS = 200
"""Maximum number of rows in a table and lines in a text."""
_LONGEST_CELL = 200
_LONGEST_LINE = 1_000


def clipped(text: str, most: int = _LONGEST_LINE) -> str:
    """Return a text of at most `most` characters; a longer one ends in an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


@dataclass(frozen=True, slots=True)
class Cut:
    """A text shown up to `most` characters, and in full on hovering."""

    text: str
    most: int

    @property
    def shown(self) -> str:
        """The visible part."""
        return clipped(self.text, self.most)

    @property
    def is_cut(self) -> bool:
        """Whether the text is longer than its visible part."""
        return len(self.text) > self.most


@dataclass(frozen=True, slots=True)
class Figure:
    """A Plotly figure; `caption` and `note` may be empty. `height` is in pixels.

    `id` is unique on the page (letters, digits and dashes). `plot` has Plotly's `data`, `layout`
    and colours such as `var(--name)`. A wide screen shows two `is_half` figures in a row.
    """

    id: str
    title: str
    plot: Mapping[str, Any]
    height: int = 380
    note: str = ""
    is_half: bool = False
    caption: str = ""

    kind = "figure"


@dataclass(frozen=True, slots=True)
class Table:
    """A table, expanded if `is_open`, with a note on omitted rows.

    A heading with a leading `#` marks a numeric column; the sign is not shown. Two leading spaces
    indent the text of a cell.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | Cut]]
    is_open: bool = False
    note: str = ""

    kind = "table"

    @classmethod
    def of(
        cls,
        caption: str,
        items: Sequence[T],
        columns: Mapping[str, Callable[[T], str | Cut]],
        *,
        is_open: bool = False,
        note: str = "",
    ) -> Self:
        """Return a table of items from a function per heading that gives an item's text."""
        rows = [[text(item) for text in columns.values()] for item in items]
        return cls(caption, list(columns), rows, is_open, note)

    def __post_init__(self) -> None:
        n = len(self.rows)
        rows = [list(map(_bounded, row)) for row in self.rows[:_MOST_ROWS]]
        object.__setattr__(self, "rows", rows)
        if n > _MOST_ROWS:
            object.__setattr__(self, "note", f"The first {_MOST_ROWS} of {n:,} rows.")


def _bounded(cell: str | Cut) -> str | Cut:
    if isinstance(cell, Cut):
        return Cut(clipped(cell.text), min(cell.most, _LONGEST_CELL))
    return clipped(cell, _LONGEST_CELL)


@dataclass(frozen=True, slots=True)
class Text:
    """Lines of text; two leading spaces indent a line."""

    lines: Sequence[str]
    is_quiet: bool = False

    kind = "text"

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", [clipped(line) for line in self.lines[:_MOST_ROWS]])


@dataclass(frozen=True, slots=True)
class Command:
    """A command to copy, and its purpose."""

    words: str
    purpose: str = ""

    kind = "command"


@dataclass(frozen=True, slots=True)
class Details:
    """A long collapsed text, such as a traceback."""

    caption: str
    text: str

    kind = "fold"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline: its steps, each with algorithm and values, and its `idle` steps."""

    steps: Sequence[tuple[str, str, str]]
    idle: Sequence[str] = ()

    kind = "pipeline"

    def __post_init__(self) -> None:
        steps = [(step, algorithm, clipped(values)) for step, algorithm, values in self.steps]
        object.__setattr__(self, "steps", steps)


@dataclass(frozen=True, slots=True)
class Bar:
    """One of several losses in a bar chart; `fraction` is relative to the largest loss."""

    label: str
    value: str
    fraction: float
    is_main: bool = False


Part = Figure | Table | Text | Command | Details | Pipeline


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer on the first screen; `section_id` names the section with details."""

    id: str
    question: str
    headline: str
    subtitle: str = ""
    bars: Sequence[Bar] = ()
    parts: Sequence[Part] = ()
    section_id: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A section: a finding in words, and the parts that show it."""

    id: str
    title: str
    finding: str
    parts: Sequence[Part] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "finding", clipped(self.finding))


@dataclass(frozen=True, slots=True)
class ReportPage:
    """A report: facts and the most important warning, answers, then sections by interest."""

    title: str
    kind: str
    state: str
    facts: Sequence[str]
    alert: str
    answers: Sequence[Answer]
    sections: Sequence[Section]
    made: str
