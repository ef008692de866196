"""Constraints, and the trade between the loss and each bounded quantity."""

from collections.abc import Iterator
from dataclasses import replace

from prefect_tune.deployments.report.page import Figure, Section, Table
from prefect_tune.deployments.report.plots import axis, plot, points, thinned, visible_losses
from prefect_tune.deployments.report.wording import LossWords, short_number
from prefect_tune.flows.reporting.study_report import StudyReport
from prefect_tune.flows.reporting.trade_offs import TradeOff
from prefect_tune.flows.text import counted

_MOST_ON_FRONT = 300

_WIDE = 30.0
"""Largest value over the least from which on an axis is logarithmic."""


def trade_offs_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if a quantity is bounded or was measured."""
    words = LossWords(report.summary["metric"])
    found = [of for of in report.trade_offs if of.trials or of.bound is not None]
    if not found:
        return
    parts: list[Figure | Table] = []
    for k, of in enumerate(found):
        if of.trials:
            parts += [_figure(of, words, k), _table(of, words)]
    yield Section("constraints", "Constraints and trade-offs", _finding(report, found), parts)


def _finding(report: StudyReport, found: list[TradeOff]) -> str:
    best = report.summary["incumbent"] or report.summary["nearest_infeasible"]
    bounded = [of for of in found if of.bound is not None]
    if not bounded:
        return "Nothing is constrained now; these quantities were measured."
    if best is None:
        return "No trial has run in full yet."
    n = len(bounded)
    all_of_them = {1: "the constraint", 2: "both constraints"}.get(n, f"all {n} constraints")
    if report.summary["incumbent"] is None:
        return f"No full trial meets {all_of_them}; the nearest is trial {best['trial']}."
    return f"The best one, trial {best['trial']}, meets {all_of_them}."


def _seen(of: TradeOff, words: LossWords) -> str:
    """Return what a figure shows of the trade."""
    said = ""
    if of.bound is not None:
        n_met = sum(value <= of.bound for value in of.values)
        full, bound = counted(len(of.trials), "full trial"), short_number(of.bound)
        said = f"{n_met:,} of {full} stay within {bound}. "
    best, least = of.front[0], of.front[-1]
    if best == least:
        return f"{said}Trial {of.trials[best]} has the least of both."
    return (
        f"{said}From trial {of.trials[best]} ({words.of(of.losses[best])}) to trial "
        f"{of.trials[least]} ({words.of(of.losses[least])}) {of.quantity} falls from "
        f"{short_number(of.values[best])} to {short_number(of.values[least])}."
    )


def _figure(of: TradeOff, words: LossWords, k: int) -> Figure:
    front = {of.front[k] for k in thinned([of.losses[i] for i in of.front], most=_MOST_ON_FRONT)}
    shown = thinned(of.losses, front)
    bound = of.bound
    traces = []
    for name, paint, symbol, is_in in (
        ("within the bound" if bound is not None else "measured", "var(--c0)", "circle", True),
        ("beyond", "var(--c1)", "x-thin-open", False),
    ):
        mine = [i for i in shown if (bound is None or of.values[i] <= bound) == is_in]
        if mine:
            x, y = [of.values[i] for i in mine], [of.losses[i] for i in mine]
            labels = [_label(of, i, words) for i in mine]
            traces.append(points(name, x, y, paint, symbol=symbol, size=7, labels=labels))
    edge = sorted(front, key=lambda i: of.values[i])
    x, y = [of.values[i] for i in edge], [of.losses[i] for i in edge]
    line = {"color": "var(--c3)", "width": 2, "shape": "hv"}
    labels = [f"{_label(of, i, words)}, on the Pareto front" for i in edge]
    traces.append(
        points("Pareto front", x, y, "var(--c3)", size=8, opacity=1, labels=labels)
        | {"mode": "lines+markers", "line": line}
    )
    positive = [value for value in of.values if value > 0]
    is_wide = len(positive) == len(of.values) and max(positive) > _WIDE * min(positive)
    layout = {
        "xaxis": axis(of.quantity, type="log" if is_wide else "linear"),
        "yaxis": axis(words.axis, range=visible_losses(of.losses)),
        "shapes": [] if bound is None else [_bound(bound)],
    }
    n = len(of.trials)
    note = f"{len(shown):,} of {n:,} full trials are shown." if len(shown) < n else ""
    title = f"{words.name} against {of.quantity}"
    figure = Figure(f"constraint-{k}", title, plot(traces, **layout), note=note, is_half=True)
    return replace(figure, finding=_seen(of, words))


def _bound(bound: float) -> dict[str, object]:
    return {
        "type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": bound, "x1": bound,
        "line": {"color": "var(--ink)", "dash": "dash", "width": 1.5},
        "label": {"text": "bound", "textposition": "end", "textangle": 0, "xanchor": "right",
                  "yanchor": "top", "font": {"color": "var(--ink)", "size": 12}},
    }  # fmt: skip


def _label(of: TradeOff, i: int, words: LossWords) -> str:
    value = short_number(of.values[i])
    return f"trial {of.trials[i]}: {words.of(of.losses[i])}, {of.quantity} {value}"


def _table(of: TradeOff, words: LossWords) -> Table:
    rows = [
        [
            str(of.trials[i]),
            words.of(of.losses[i]),
            short_number(of.values[i]),
            "" if of.bound is None else "yes" if of.values[i] <= of.bound else "no",
        ]
        for i in of.front
    ]
    columns = ["#trial", f"#{words.name}", f"#{of.quantity}", "within the bound"]
    caption = f"Pareto front of {words.name} and {of.quantity}"
    return Table(caption, columns, rows)
