"""A report as a page: its contents, before rendering to HTML.

All texts are plain, without markup. Long tables and texts are cut here, so that pages stay small.
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
"""Functions that format the values of a column, by its name."""
NO_TEXTS: Texts = {}
_MOST_ROWS = 200
"""Maximum number of rows in a table and lines in a text."""
_LONGEST_CELL = 200
_LONGEST_LINE = 1_000


def clipped(text: str, max_length: int = _LONGEST_LINE) -> str:
    """Return a text of at most `max_length` characters; a longer one ends in an ellipsis."""
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"


@dataclass(frozen=True, slots=True)
class Figure:
    """A Plotly figure with its height in pixels and a note below.

    The `plot` may have colors such as `var(--name)`. A wide screen shows two `is_half` figures in
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
        headings = []
        for name, values in frame.items():
            heading = str(name)  # a user chose the name of a step
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


@dataclass(frozen=True, slots=True)
class Threshold:
    """A confusion matrix of two classes whose threshold moves.

    Attributes:
        classes: The negative and the positive class.
        totals: Rows of both.
        rows: Threshold, and rows of both classes that reach it, in ascending order.
        start: Position of the threshold shown first.
    """

    title: str
    classes: Sequence[str]
    totals: Sequence[int]
    rows: Sequence[Sequence[float]]
    start: int

    kind = "threshold"


Part = Figure | Table | Text | Command | Threshold


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


_STYLE: dict[str, Any] = {
    "template": "none",
    "color_discrete_sequence": [f"var(--c{k})" for k in range(7)],  # Okabe and Ito 2008
}
STYLE = {**_STYLE, "render_mode": "svg"}  # a browser may lack WebGL, and paper does
"""Arguments of points and lines of Plotly Express."""
DASHED = {"mode": "lines", "line": {"color": "var(--muted)", "dash": "dash"}}
"""Arguments of a line to compare with."""
_LONGEST_LABEL, _KEPT = 42, 20
"""Longest label on an axis, and the characters kept at both ends of a longer label."""


def sampled(frame: pd.DataFrame, column: str, n_rows: int = 2_000) -> pd.DataFrame:
    """Return all rows, or an even sample of about `n_rows` with both extremes of a column."""
    if len(frame) <= n_rows:
        return frame
    always = {frame[column].idxmin(), frame[column].idxmax(), frame.index[-1]}
    return frame.loc[frame.index[:: -(-len(frame) // n_rows)].union(list(always))]


def sample_note(shown: pd.DataFrame, frame: pd.DataFrame, noun: str) -> str:
    """Return how many rows a figure shows; empty if all."""
    total = counted(len(frame), noun)
    return f"{len(shown):,} of {total} are shown. " if len(shown) < len(frame) else ""


def visible_losses(losses: pd.Series, words: LossWords) -> list[float]:
    """Return an axis range, in users' numbers, that spreads the better losses, clips the worst."""
    low, high = float(losses.min()), float(losses.quantile(0.85))
    margin = 0.08 * (high - low) or abs(low) * 0.1 or 1.0
    return sorted(map(words.number, (low - margin, high + margin)))


def bars(frame: pd.DataFrame, y: str, **options: Any) -> Any:
    """Return horizontal bars of Plotly Express, the first row on top."""
    drawn = px.bar(frame, y=y, orientation="h", **_STYLE, **options)
    drawn.update_traces(error_x_color="var(--ink)")
    return with_labels(drawn, frame[y])


def with_labels(drawn: Any, labels: Iterable[str]) -> Any:
    """Put labels on the vertical axis, the first on top; long ones are cut in the middle."""
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
