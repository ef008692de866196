"""Pages that would be too large, made lighter step by step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prefect_tune.deployments.report.page import Figure, Fold, Page, Part, Pipeline, Table, Text
from prefect_tune.deployments.report.thinning import thinned

__all__ = ["lighter_pages"]


@dataclass(frozen=True, slots=True)
class _Limits:
    """The most that a lighter page has: points of a trace, rows of a table, characters of a text.

    Without points it has no figures.
    """

    points: int
    rows: int
    characters: int


_STEPS = _Limits(400, 200, 1_000), _Limits(60, 40, 200), _Limits(0, 40, 200)


def lighter_pages(page: Page) -> Iterator[Page]:
    """Yield a page without tracebacks, with fewer points and rows and shorter texts, thrice less.

    Each says of itself what it lacks.
    """
    for limits in _STEPS:
        figures = "figures show fewer points" if limits.points else "figures are left out"
        said = (
            f"This page is a lighter one, to stay small: {figures}, long tables and texts are cut, "
            "and tracebacks are left out; `prefect-tune show` and `prefect-tune trials` have them."
        )
        yield replace(
            page,
            alert=f"{page.alert} {said}".strip(),
            answers=[replace(a, parts=_parts(a.parts, limits)) for a in page.answers],
            sections=[
                replace(s, finding=_cut(s.finding, limits), parts=_parts(s.parts, limits))
                for s in page.sections
            ],
        )


def _parts(parts: Sequence[Part], limits: _Limits) -> list[Part]:
    """Return the parts that stay; commands stay as they are, as they are there to be copied."""
    return [_part(part, limits) for part in parts if _stays(part, limits)]


def _stays(part: Part, limits: _Limits) -> bool:
    return not isinstance(part, Fold) and (limits.points > 0 or not isinstance(part, Figure))


def _part(part: Part, limits: _Limits) -> Part:
    match part:
        case Figure():
            return _figure(part, limits)
        case Table():
            rows = [[_cut(cell, limits) for cell in row] for row in part.rows[: limits.rows]]
            n = len(part.rows)
            note = f"The first {limits.rows} of {n:,} rows." if n > limits.rows else part.note
            return replace(part, rows=rows, note=note)
        case Text():
            return replace(part, lines=[_cut(line, limits) for line in part.lines[: limits.rows]])
        case Pipeline():
            steps = [(step, name, _cut(values, limits)) for step, name, values in part.steps]
            return replace(part, steps=steps)
        case _:
            return part


def _figure(figure: Figure, limits: _Limits) -> Figure:
    traces = [_trace(trace, limits) for trace in figure.plot["data"]]
    is_less = any(
        len(a["x"]) < len(b["x"]) for a, b in zip(traces, figure.plot["data"], strict=True)
    )
    note = f"{figure.note} This page shows fewer of the points.".strip() if is_less else figure.note
    return replace(figure, plot={**figure.plot, "data": traces}, note=note)


def _trace(trace: Mapping[str, Any], limits: _Limits) -> dict[str, Any]:
    """Return a trace with fewer points; bars, and places of two names, are never many."""
    x, y = trace["x"], trace["y"]
    positions = list(range(len(x)))
    if trace["type"] != "bar" and len(x) == len(y) > limits.points:
        values = y if all(v is None or isinstance(v, int | float) for v in y) else x
        gaps = {i for i, value in enumerate(values) if value is None}
        ends = {0, len(x) - 1, *(i + by for i in gaps for by in (-1, 1))}
        positions = sorted({*thinned(values, ends, limits.points), *gaps})
    return {name: _taken(value, len(x), positions, limits) for name, value in trace.items()}


def _taken(value: Any, n: int, positions: Sequence[int], limits: _Limits) -> Any:
    """Return a value of a trace, at these of its n positions if it is of all."""
    if isinstance(value, dict):
        return {name: _taken(one, n, positions, limits) for name, one in value.items()}
    if isinstance(value, list) and len(value) == n:
        return [_taken(value[i], 0, (), limits) for i in positions]
    return _cut(value, limits) if isinstance(value, str) else value


def _cut(text: str, limits: _Limits) -> str:
    most = limits.characters
    return text if len(text) <= most else f"{text[: most - 1]}…"
