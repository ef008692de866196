"""Plotly figures as plain JSON values, with texts free of markup; large point clouds are sampled.

Colours are named `var(--name)`; the page defines them for light, dark and print.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from math import isfinite
from typing import Any

from prefect_tune.deployments.report.page import Figure, clipped
from prefect_tune.flows.text import shown

MOST_POINTS = 2_000


def downsampled(
    values: Sequence[float | None], keep: Collection[int] = (), most: int = MOST_POINTS
) -> list[int]:
    """Return positions to show: all, or an even sample plus both extremes and `keep`."""
    known = [i for i, value in enumerate(values) if value is not None and isfinite(value)]
    if len(known) <= most:
        return known

    def value_at(i: int) -> float:
        return values[i] or 0.0

    extremes = {min(known, key=value_at), max(known, key=value_at)}
    even = {known[i * len(known) // most] for i in range(most)}
    return sorted(even | extremes | set(keep).intersection(known))


Values = Mapping[str, Any]
Trace = dict[str, Any]
_COLOURS = 7
_LONGEST_LABEL, _KEPT = 42, 20
"""Longest label on an axis, and the characters kept at both ends of a longer label."""
_LONGEST_TEXT = 160
"""Longest other text in a figure, as each point may have one."""


def colour(position: int, of: str = "c") -> str:
    """Return a distinct line or background (`b`) colour by position (Okabe and Ito 2008)."""
    return f"var(--{of}{position % _COLOURS})"


def plain(text: str) -> str:
    """Return a text escaped for Plotly, which reads `<` as markup."""
    return escape(shown(clipped(text, _LONGEST_TEXT)), quote=False)


def shortened(labels: Sequence[str]) -> list[str]:
    """Return unique axis labels, cut in the middle; Plotly would merge equal ones."""
    alike: dict[str, list[str]] = {}
    for label in dict.fromkeys(labels):
        is_long = len(label) > _LONGEST_LABEL
        short = plain(f"{label[:_KEPT]}…{label[-_KEPT:]}" if is_long else label)
        alike.setdefault(short, []).append(label)
    places = {
        label: short if len(of) == 1 else f"{short} ({k})"
        for short, of in alike.items()
        for k, label in enumerate(of, 1)
    }
    return [places[label] for label in labels]


def texts(values: Iterable[str]) -> list[str]:
    """Return texts escaped for Plotly."""
    return [plain(value) for value in values]


def numbers(values: Iterable[float | None]) -> list[float | None]:
    """Return finite numbers with five digits, as many as figures show, and None for others."""
    return [None if v is None or not isfinite(v) else float(f"{v:.5g}") for v in values]


def visible_losses(losses: Iterable[float | None]) -> list[float]:
    """Return an axis range that spreads the better losses and clips the worst."""
    known = sorted(loss for loss in losses if loss is not None)
    low, high = known[0], known[min(len(known) - 1, int(0.85 * len(known)))]
    margin = 0.08 * (high - low) or abs(low) * 0.1 or 1.0
    return [low - margin, high + margin]


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return an axis."""
    return {"title": {"text": plain(title)}, **more}


LABELS = axis("", autorange="reversed", type="category")
"""Axis of horizontal bars, the first one on top."""


def plot(traces: Sequence[Values], **layout: Any) -> dict[str, Any]:
    """Return a figure."""
    return {"data": list(traces), "layout": layout}


def scatter(
    name: str,
    x: Iterable[float | None],
    y: Iterable[float | None],
    style: Values,
    labels: Sequence[str] = (),
    *,
    mode: str = "markers",
) -> Trace:
    """Return points or a line, by `mode` and `style`, with labels on hovering."""
    return {
        "type": "scatter",
        "mode": mode,
        "name": plain(name),
        "x": numbers(x),
        "y": numbers(y),
        **style,
        "hovertext": texts(labels),
        "hoverinfo": "text" if labels else "x+y",
    }


def points(
    name: str,
    x: Iterable[float | None],
    y: Iterable[float | None],
    paint: str,
    *,
    symbol: str = "circle",
    size: float = 6,
    opacity: float = 0.75,
    labels: Sequence[str] = (),
) -> Trace:
    """Return points of one style."""
    marker = {"color": paint, "symbol": symbol, "size": size, "opacity": opacity}
    return scatter(name, x, y, {"marker": marker}, labels)


def bar(
    name: str,
    labels: Sequence[str],
    values: Iterable[float | None],
    paint: str,
    *,
    hover: Sequence[str] = (),
    **more: Any,
) -> Trace:
    """Return horizontal bars, the first label on top on a reversed axis."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": plain(name),
        "y": shortened(labels),
        "x": numbers(values),
        "marker": {"color": paint},
        "hovertext": texts(hover),
        "hoverinfo": "text" if hover else "x",
        "textposition": "none",
        **more,
    }


def figure(
    figure_id: str,
    title: str,
    traces: Sequence[Trace],
    x: Values,
    y: Values = LABELS,
    *,
    height: int = 380,
    note: str = "",
    caption: str = "",
    is_half: bool = False,
    **layout: Any,
) -> Figure:
    """Return a figure with its axes; `layout` has further layout options of Plotly."""
    drawn = plot(traces, xaxis=x, yaxis=y, **layout)
    return Figure(figure_id, title, drawn, height, note, is_half, caption)
