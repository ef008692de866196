"""Figures of a comparison: curves of the methods, their ranks and their test losses."""

from collections.abc import Iterator, Mapping
from typing import Any

from prefect_tune.deployments.report.page import Figure
from prefect_tune.deployments.report.plots import (
    axis,
    colour,
    numbers,
    plain,
    plot,
    points,
    visible_losses,
)
from prefect_tune.deployments.report.wording import LossWords
from prefect_tune.flows.reporting.comparison_report import DataSetCurves, MethodCurve

__all__ = ["curves_figure", "ranks_figure", "test_losses_figure"]

_COLOURS = 7
_DASHES = ("solid", "dash", "dot")


def curves_figure(of: DataSetCurves, k: int) -> Figure:
    """Return median and quartiles of each method over the budget, on one data set."""
    words = LossWords(of.metric)
    budget = of.budget_seconds or float(of.budget_trials or 1)
    x = [share * budget for share in of.shares]
    traces = [t for i, curve in enumerate(of.curves) for t in _bands(curve, x, i, words)]
    known = [v for curve in of.curves for v in curve.median if v is not None]
    layout = {
        "xaxis": axis("seconds" if of.budget_seconds is not None else "trials", rangemode="tozero"),
        "yaxis": axis(f"cross-validated {words.axis}"),
    }
    if known:
        layout["yaxis"]["range"] = visible_losses(known)
    return Figure(f"curves-{k}", f"Best loss on {of.data}", plot(traces, **layout), 420)


def _bands(
    curve: MethodCurve, x: list[float], i: int, words: LossWords
) -> Iterator[dict[str, Any]]:
    paint, name = colour(i), plain(curve.method)
    common = {
        "type": "scatter",
        "x": numbers(x),
        "mode": "lines",
        "legendgroup": name,
        "name": name,
    }
    edge = {"color": paint, "width": 0, "shape": "hv"}
    band = {"line": edge, "showlegend": False, "hoverinfo": "skip", "fillcolor": colour(i, "b")}
    yield {**common, **band, "y": numbers(curve.high)}
    yield {**common, **band, "y": numbers(curve.low), "fill": "tonexty"}
    dash = _DASHES[i // _COLOURS % len(_DASHES)]
    yield {
        **common,
        "y": numbers(curve.median),
        "line": {"color": paint, "width": 2.5, "shape": "hv", "dash": dash},
        "hovertext": [plain(f"{curve.method}: median {words.of(loss)}") for loss in curve.median],
        "hoverinfo": "text",
    }


def ranks_figure(document: Mapping[str, Any]) -> Figure:
    """Return the mean ranks at fractions of the budget."""
    stages = document["fractions"]
    traces = []
    for i, row in enumerate(document["methods"]):
        method = row["method"]
        at = [
            next(r["average_rank"] for r in stage["methods"] if r["method"] == method)
            for stage in stages
        ]
        shares = [100 * stage["fraction"] for stage in stages]
        labels = [
            f"{method}: mean rank {rank:.2f} at {s:g} %" for s, rank in zip(shares, at, strict=True)
        ]
        line = {"color": colour(i), "width": 2.5, "dash": _DASHES[i // _COLOURS % len(_DASHES)]}
        traces.append(
            points(method, shares, at, colour(i), size=8, opacity=1, labels=labels)
            | {"mode": "lines+markers", "line": line}
        )
    layout = {
        "xaxis": axis("of the budget, %", rangemode="tozero"),
        "yaxis": axis("mean rank, 1 is best", autorange="reversed"),
    }
    return Figure("ranks-figure", "Mean rank by the test loss", plot(traces, **layout), 360)


def test_losses_figure(of: DataSetCurves, k: int) -> Figure:
    """Return the test losses of the methods, a point for each repeat."""
    words = LossWords(of.metric)
    traces = []
    for i, curve in enumerate(of.curves):
        labels = [
            f"{curve.method}, repeat {repeat}: {words.of(loss)}"
            for repeat, loss in enumerate(curve.test_losses)
        ]
        trace = points(curve.method, curve.test_losses, [], colour(i), size=10, labels=labels)
        traces.append(trace | {"y": [plain(curve.method)] * len(curve.test_losses)})
    layout = {
        "xaxis": axis(f"test {words.axis}"),
        "yaxis": axis("", type="category", autorange="reversed"),
    }
    height = 120 + 34 * len(of.curves)
    return Figure(f"tests-{k}", f"On {of.data}", plot(traces, **layout), height, is_half=True)
