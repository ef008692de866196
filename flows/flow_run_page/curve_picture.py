"""The incumbents of a study over time, as a picture that stands in a line of markdown."""

from base64 import b64encode
from collections.abc import Sequence
from html import escape

from prefect_tune.flows.flow_run_page.plain_text import escaped
from prefect_tune.flows.following.incumbent_curve import CurvePoint
from prefect_tune.flows.units import format_seconds

__all__ = ["curve_picture"]

_WIDTH, _HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 18, 34
_LINE, _INK, _GRID = "#1860f2", "#333842", "#dfe3ea"


def curve_picture(points: Sequence[CurvePoint], seconds: float, title: str) -> str:
    """Return an image in markdown; empty without incumbents.

    Args:
        points: The incumbents, which can be compared with one another.
        seconds: The time of the study, at which the curve ends.
        title: What the losses are, for people.
    """
    if not points:
        return ""
    first, last = points[0].loss, points[-1].loss
    encoded = b64encode(_svg(points, max(seconds, points[-1].seconds, 1e-3), title).encode())
    alt = f"{title} from {first:.4g} to {last:.4g} in {format_seconds(seconds)}"
    return f"![{escaped(alt)}](data:image/svg+xml;base64,{encoded.decode()})"


def _svg(points: Sequence[CurvePoint], seconds: float, title: str) -> str:
    low, high = (f(point.loss for point in points) for f in (min, max))
    margin = 0.08 * (high - low) or abs(high) * 0.05 or 1.0
    low, high = low - margin, high + margin

    def x(at: float) -> float:
        return _LEFT + at / seconds * (_WIDTH - _LEFT - _RIGHT)

    def y(loss: float) -> float:
        return _TOP + (high - loss) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    marks = sorted({points[0].loss, points[-1].loss, (points[0].loss + points[-1].loss) / 2})
    path = f"M{x(points[0].seconds):.1f},{y(points[0].loss):.1f}"
    path += "".join(f"H{x(p.seconds):.1f}V{y(p.loss):.1f}" for p in points[1:])
    path += f"H{x(seconds):.1f}"
    dots = "".join(
        f'<circle cx="{x(p.seconds):.1f}" cy="{y(p.loss):.1f}" r="3"/>' for p in points[-40:]
    )
    grid = "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(m):.1f}" y2="{y(m):.1f}"/>'
        for m in marks
    )
    labels = "".join(
        f'<text x="{_LEFT - 8}" y="{y(m) + 4:.1f}" text-anchor="end">{m:.3g}</text>' for m in marks
    )
    bottom = _HEIGHT - 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}">'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="#fff"/>'
        f'<g stroke="{_GRID}">{grid}</g>'
        f'<g font-family="sans-serif" font-size="12" fill="{_INK}">{labels}'
        f'<text x="{_LEFT}" y="{bottom}">0 s</text>'
        f'<text x="{_WIDTH - _RIGHT}" y="{bottom}" text-anchor="end">'
        f"{format_seconds(seconds)}</text>"
        f'<text x="{(_LEFT + _WIDTH) / 2:.0f}" y="{bottom}" text-anchor="middle">'
        f"{escape(title)}</text></g>"
        f'<path d="{path}" fill="none" stroke="{_LINE}" stroke-width="2"/>'
        f'<g fill="{_LINE}">{dots}</g></svg>'
    )
