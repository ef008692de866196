"""Figures of Plotly Express in the style of a page; large point clouds are sampled.

Colours are named `var(--name)`; the page defines them for light, dark and print.
"""

from collections.abc import Iterable
from typing import Any

import pandas as pd
import plotly.express as px

from prefect_tune.flows.wording.text import counted

_STYLE: dict[str, Any] = {
    "template": "none",
    "color_discrete_sequence": [f"var(--c{k})" for k in range(7)],  # Okabe and Ito 2008
}
STYLE = {**_STYLE, "render_mode": "svg"}  # a browser may lack WebGL, and paper does
"""Arguments of points and lines of Plotly Express."""
_LONGEST_LABEL, _KEPT = 42, 20
"""Longest label on an axis, and the characters kept at both ends of a longer label."""


def sampled(frame: pd.DataFrame, column: str, most: int = 2_000) -> pd.DataFrame:
    """Return all rows, or an even sample of about `most` with both extremes of a column."""
    if len(frame) <= most:
        return frame
    always = {frame[column].idxmin(), frame[column].idxmax(), frame.index[-1]}
    return frame.loc[frame.index[:: -(-len(frame) // most)].union(list(always))]


def sample_note(shown: pd.DataFrame, frame: pd.DataFrame, noun: str) -> str:
    """Return how many rows a figure shows; empty if all."""
    total = counted(len(frame), noun)
    return f"{len(shown):,} of {total} are shown. " if len(shown) < len(frame) else ""


def visible_losses(losses: pd.Series) -> tuple[float, float]:
    """Return an axis range that spreads the better losses and clips the worst."""
    low, high = float(losses.min()), float(losses.quantile(0.85))
    margin = 0.08 * (high - low) or abs(low) * 0.1 or 1.0
    return low - margin, high + margin


def bars(frame: pd.DataFrame, y: str, **options: Any) -> Any:
    """Return horizontal bars of Plotly Express, the first row on top."""
    drawn = px.bar(frame, y=y, orientation="h", **_STYLE, **options)
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
