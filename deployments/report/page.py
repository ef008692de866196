"""The contents of a report page, before rendering to HTML.

All texts are plain, without markup. Long tables and texts are truncated, so that pages stay small.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Self

import pandas as pd
import plotly.express as px
from pandas.api.types import is_numeric_dtype

from prefect_tune.flows.reading.study_lines import StudyLine
from prefect_tune.flows.wording.text import LossWords, counted, number_text

Texts = Mapping[str, Callable[..., str]]
"""Functions that format the values of columns, by column name."""
NO_TEXTS: Texts = {}
_MOST_ROWS = 200
"""Maximum number of rows in a table, and of lines in a text."""
_LONGEST_CELL = 200
_LONGEST_LINE = 1_000


def clipped(text: str, max_length: int = _LONGEST_LINE) -> str:
    """Truncate a text to `max_length` characters. A truncated text ends in an ellipsis."""
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"


@dataclass(frozen=True, slots=True)
class Figure:
    """A Plotly figure with a height in pixels and a note below the figure.

    The `plot` may use colors such as `var(--name)`. A wide screen shows two `is_half` figures side
    by side.
    """

    title: str
    plot: Any
    height: int = 380
    note: str = ""
    is_half: bool = False

    kind = "figure"


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a note below the table. The table is expanded if `is_open` is true.

    A leading `#` in a heading marks a numeric column and is not shown. Two leading spaces indent
    the text of a cell.
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
        """Return the table of a frame. `texts` contains functions that format columns."""
        shown = frame.head(_MOST_ROWS)
        columns = [values.map(texts.get(str(name), _text)) for name, values in shown.items()]
        headings = []
        for name, values in frame.items():
            heading = str(name)  # step names are chosen by the user
            is_words = heading.isidentifier() and not heading.startswith("params_")
            plain = heading.replace("_", " ") if is_words else heading.removeprefix("params_")
            headings.append(f"{'#' * is_numeric_dtype(values)}{plain}")
        note = f"The first {_MOST_ROWS} of {len(frame):,} rows." if len(frame) > len(shown) else ""
        return cls(caption, headings, [*zip(*columns, strict=True)], is_open, note)

    def __post_init__(self) -> None:
        rows = [[clipped(cell, _LONGEST_CELL) for cell in row] for row in self.rows[:_MOST_ROWS]]
        object.__setattr__(self, "rows", rows)


def _text(cell: Any) -> str:
    if isinstance(cell, float):
        return number_text(cell)
    return "-" if cell is None or cell is pd.NA else str(cell)


@dataclass(frozen=True, slots=True)
class Text:
    """Lines of text. Lines with a caption are folded, and their number is not limited."""

    lines: Sequence[str]
    caption: str = ""

    kind = "text"

    def __post_init__(self) -> None:
        lines = self.lines if self.caption else self.lines[:_MOST_ROWS]
        object.__setattr__(self, "lines", [clipped(line) for line in lines])


@dataclass(frozen=True, slots=True)
class Command:
    """A command for the reader to copy, and the purpose of the command."""

    words: str
    purpose: str = ""

    kind = "command"


@dataclass(frozen=True, slots=True)
class Threshold:
    """A confusion matrix of two classes with a movable threshold.

    Attributes:
        classes: The negative and the positive class.
        totals: Numbers of rows of both classes.
        rows: Thresholds in ascending order, each with the numbers of rows of both classes that
            reach the threshold.
        start: Position of the threshold that is shown first.
        note: Note below the matrix.
    """

    title: str
    classes: Sequence[str]
    totals: Sequence[int]
    rows: Sequence[Sequence[float]]
    start: int
    note: str = ""

    kind = "threshold"


Part = Figure | Table | Text | Command | Threshold


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a page: its parts, and a note that helps to read the parts."""

    id: str
    title: str
    note: str
    parts: Sequence[Part] = ()


def _made_now() -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"Made by prefect-tune {version('prefect-tune')} on {now}."


@dataclass(frozen=True, slots=True)
class ReportPage:
    """A report: facts, lines and commands on the first screen, then sections by importance.

    The `headline`, if any, is the most important number, shown in large type.
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


_STYLE: dict[str, Any] = {
    "template": "none",
    "color_discrete_sequence": [f"var(--c{k})" for k in range(7)],  # Okabe and Ito 2008
}
STYLE = {**_STYLE, "render_mode": "svg"}  # neither paper nor every browser has WebGL
"""Arguments for points and lines in Plotly Express."""
DASHED = {"mode": "lines", "line": {"color": "var(--muted)", "dash": "dash"}}
"""Arguments for a line that serves as a reference."""
_LONGEST_LABEL, _KEPT = 42, 20
"""Maximum length of an axis label, and number of characters kept at both ends of a longer label."""


def sampled(frame: pd.DataFrame, column: str, n_rows: int = 2_000) -> pd.DataFrame:
    """Return all rows, or an even sample of about `n_rows` that keeps the extremes of a column."""
    if len(frame) <= n_rows:
        return frame
    always = {frame[column].idxmin(), frame[column].idxmax(), frame.index[-1]}
    return frame.loc[frame.index[:: -(-len(frame) // n_rows)].union(list(always))]


def sample_note(shown: pd.DataFrame, frame: pd.DataFrame, noun: str) -> str:
    """Return a note on the number of rows that a figure shows; empty if all rows are shown."""
    total = counted(len(frame), noun)
    return f"{len(shown):,} of {total} are shown. " if len(shown) < len(frame) else ""


def visible_losses(losses: pd.Series, words: LossWords) -> list[float]:
    """Return an axis range, in displayed values, that shows the better losses in detail."""
    low, high = float(losses.min()), float(losses.quantile(0.85))
    margin = 0.08 * (high - low) or abs(low) * 0.1 or 1.0
    return sorted(map(words.number, (low - margin, high + margin)))


def bars(frame: pd.DataFrame, y: str, **options: Any) -> Any:
    """Return a horizontal bar chart of Plotly Express, with the first row on top."""
    drawn = px.bar(frame, y=y, orientation="h", **_STYLE, **options)
    drawn.update_traces(error_x_color="var(--ink)")
    return with_labels(drawn, frame[y])


def with_labels(drawn: Any, labels: Iterable[str]) -> Any:
    """Label the vertical axis from top to bottom, shortening long labels in the middle."""
    names = list(dict.fromkeys(labels))
    short = [n if len(n) <= _LONGEST_LABEL else f"{n[:_KEPT]}…{n[-_KEPT:]}" for n in names]
    return drawn.update_yaxes(
        title="",
        type="category",
        autorange="reversed",
        categoryorder="array",
        categoryarray=names,
        tickvals=names,
        ticktext=short,
    )
