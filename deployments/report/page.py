"""A report as a page: what stands on it, before it is HTML.

All texts are plain; nothing in them is markup. Long tables and texts are cut here, whatever a study
brings along, so that a page stays small.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

T = TypeVar("T")
_MOST_ROWS = 200
"""Rows of a table, and lines of a text."""
_LONGEST_CELL = 200
_LONGEST_LINE = 1_000


def clipped(text: str, most: int = _LONGEST_LINE) -> str:
    """Return a text of at most so many characters; a longer one ends in an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


@dataclass(frozen=True, slots=True)
class Cut:
    """A text that is shown in part; the whole appears on hovering.

    Attributes:
        text: The whole text.
        most: Characters that are shown.
    """

    text: str
    most: int

    @property
    def shown(self) -> str:
        """The part that is shown."""
        return clipped(self.text, self.most)

    @property
    def is_cut(self) -> bool:
        """Whether the text is longer than what is shown."""
        return len(self.text) > self.most


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of Plotly.

    Attributes:
        id: Unique on the page; letters, digits and dashes.
        title: What it shows.
        plot: `data` and `layout` as Plotly takes them; colours may be `var(--name)`.
        height: In pixels.
        note: What a reader must know of it; empty for nothing.
        is_half: Whether two stand side by side on a wide screen.
        finding: What is to be seen in it, where its section has others; empty otherwise.
    """

    id: str
    title: str
    plot: Mapping[str, Any]
    height: int = 380
    note: str = ""
    is_half: bool = False
    finding: str = ""

    kind = "figure"


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        caption: What it lists.
        columns: Their headings; those that begin with `#` hold numbers, and lose that sign.
        rows: Texts by column; those that begin with two spaces are indented.
        is_open: Whether it is seen at once, or folded in.
        note: Which rows are left out; empty if none are.
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
        """Return a table of items, given the text of an item by heading."""
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
    """Lines of text; those that begin with two spaces stand under the one before."""

    lines: Sequence[str]
    is_quiet: bool = False

    kind = "text"

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", [clipped(line) for line in self.lines[:_MOST_ROWS]])


@dataclass(frozen=True, slots=True)
class Command:
    """A command to copy, and what it does."""

    words: str
    purpose: str = ""

    kind = "command"


@dataclass(frozen=True, slots=True)
class Details:
    """A long text that is folded in, such as a traceback."""

    caption: str
    text: str

    kind = "fold"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline.

    Attributes:
        steps: Step, algorithm and the values of its hyperparameters.
        idle: Steps that do nothing in it.
    """

    steps: Sequence[tuple[str, str, str]]
    idle: Sequence[str] = ()

    kind = "pipeline"

    def __post_init__(self) -> None:
        steps = [(step, algorithm, clipped(values)) for step, algorithm, values in self.steps]
        object.__setattr__(self, "steps", steps)


@dataclass(frozen=True, slots=True)
class Bar:
    """One of several losses beside each other.

    Attributes:
        label: Whose it is.
        value: The loss, as people read it.
        share: Of the largest, 0 to 1.
        is_main: Whether it is the one that counts.
    """

    label: str
    value: str
    share: float
    is_main: bool = False


Part = Figure | Table | Text | Command | Details | Pipeline


@dataclass(frozen=True, slots=True)
class Answer:
    """One of the questions that the first screen answers.

    Attributes:
        id: Names its place on the screen.
        question: The question, in a few words.
        headline: The answer in one line.
        under: Of what that is; empty where it needs no word.
        bars: Losses beside each other.
        parts: What belongs to it.
        more: The id of the section that says more; empty for none.
    """

    id: str
    question: str
    headline: str
    under: str = ""
    bars: Sequence[Bar] = ()
    parts: Sequence[Part] = ()
    more: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A section: one finding in words, and what shows it."""

    id: str
    title: str
    finding: str
    parts: Sequence[Part] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "finding", clipped(self.finding))


@dataclass(frozen=True, slots=True)
class ReportPage:
    """A report.

    Attributes:
        title: Name of the study or comparison.
        kind: What it is the report of.
        state: Where it stands, in a word; empty for nothing.
        facts: A few facts below the title.
        alert: What the reader must know before all else; empty for nothing.
        answers: Of the first screen.
        sections: What follows, in the order of interest.
        made: When and by which version it was made.
    """

    title: str
    kind: str
    state: str
    facts: Sequence[str]
    alert: str
    answers: Sequence[Answer]
    sections: Sequence[Section]
    made: str
