"""Constraints, and the trade-off between the loss and each measured quantity."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any

from prefect_tune.deployments.report.page import Figure, Section, Table
from prefect_tune.deployments.report.plots import (
    Trace,
    axis,
    downsampled,
    figure,
    points,
    visible_losses,
)
from prefect_tune.flows.reading.study_view import StudyView
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.text import LossWords, counted, number_text

_MOST_ON_FRONT = 300
_WIDE = 30.0
"""Ratio of largest to smallest value from which an axis is logarithmic."""


@dataclass(slots=True)
class TradeOff:
    """Full trials by loss and one quantity, with its bound (None if unbounded).

    `front` has the positions of the Pareto front by loss; `n_unmeasured` trials have no value.
    """

    quantity: str
    bound: float | None
    trials: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    front: Sequence[int] = ()
    n_unmeasured: int = 0


class TradeOffsPass:
    """Collector of the quantities of full trials."""

    def __init__(self, plan: StudyPlan) -> None:
        bounds = [bounded.constraint for bounded in plan.options.bounds]
        self._found = {of.name: TradeOff(of.name, of.bound) for of in bounds}
        self._n_full = 0

    def add(self, trial: TrialView) -> None:
        """Take a trial."""
        if not trial.is_full:
            return
        self._n_full += 1
        for name, value in trial.quantities.items():
            if isfinite(value):
                of = self._found.setdefault(name, TradeOff(name, None))
                of.trials.append(trial.number)
                of.losses.append(trial.loss)
                of.values.append(value)

    def found(self) -> list[TradeOff]:
        """Return a trade-off for each quantity, the bounded ones first."""
        for of in self._found.values():
            of.front = _front(of.losses, of.values)
            of.n_unmeasured = self._n_full - len(of.trials)
        return list(self._found.values())


def _front(losses: Sequence[float], values: Sequence[float]) -> list[int]:
    front, least = [], inf
    for i in sorted(range(len(losses)), key=lambda i: (losses[i], values[i])):
        if values[i] < least:
            front.append(i)
            least = values[i]
    return front


def trade_offs_section(trade_offs: Sequence[TradeOff], summary: StudyView) -> Iterator[Section]:
    """Yield the section, if a quantity is bounded or was measured."""
    words, parts = LossWords(summary.metric), list[Figure | Table]()
    shown = [of for of in trade_offs if of.trials or of.bound is not None]
    for k, of in enumerate(shown):
        if of.trials:
            parts += [_figure(of, words, k), _table(of, words)]
    if shown:
        n_bounds = sum(of.bound is not None for of in shown)
        yield Section(
            "constraints", "Constraints and trade-offs", _finding(n_bounds, summary), parts
        )


def _finding(n_bounds: int, summary: StudyView) -> str:
    best, nearest = summary.incumbent, summary.nearest_infeasible
    if not n_bounds:
        return "The study has no constraints; these quantities were measured."
    all_of_them = {1: "the constraint", 2: "both constraints"}.get(
        n_bounds, f"all {n_bounds} constraints"
    )
    if best is not None:
        return f"The best trial, {best.trial}, meets {all_of_them}."
    if nearest is not None:
        return f"No full trial meets {all_of_them}; the nearest is trial {nearest.trial}."
    return "No full trial has finished yet."


def _figure_caption(of: TradeOff, words: LossWords) -> str:
    text = ""
    if of.bound is not None:
        n_met = sum(value <= of.bound for value in of.values)
        full, bound = counted(len(of.trials), "full trial"), number_text(of.bound)
        text = f"{n_met:,} of {full} stay within {bound}. "
    best, least = of.front[0], of.front[-1]
    if best == least:
        return f"{text}Trial {of.trials[best]} is best in both."
    return (
        f"{text}From trial {of.trials[best]} ({words.of(of.losses[best])}) to trial "
        f"{of.trials[least]} ({words.of(of.losses[least])}) {of.quantity} falls from "
        f"{number_text(of.values[best])} to {number_text(of.values[least])}."
    )


def _figure(of: TradeOff, words: LossWords, k: int) -> Figure:
    front = {
        of.front[k] for k in downsampled([of.losses[i] for i in of.front], most=_MOST_ON_FRONT)
    }
    shown, bound = downsampled(of.losses, front), of.bound
    within = [i for i in shown if bound is None or of.values[i] <= bound]
    beyond = [i for i in shown if bound is not None and of.values[i] > bound]

    def cloud(name: str, trials: Sequence[int], paint: str, end: str = "", **mark: Any) -> Trace:
        x, y = [of.values[i] for i in trials], [of.losses[i] for i in trials]
        labels = [
            f"trial {of.trials[i]}: {words.of(of.losses[i])}, {of.quantity} "
            f"{number_text(of.values[i])}{end}"
            for i in trials
        ]
        return points(name, x, y, paint, labels=labels, **mark)

    traces = []
    if within:
        name = "measured" if bound is None else "within the bound"
        traces.append(cloud(name, within, "var(--c0)", size=7))
    if beyond:
        traces.append(cloud("beyond", beyond, "var(--c1)", symbol="x-thin-open", size=7))
    edge, paint = sorted(front, key=lambda i: of.values[i]), "var(--c3)"
    line = {"mode": "lines+markers", "line": {"color": paint, "width": 2, "shape": "hv"}}
    on_front = cloud("Pareto front", edge, paint, ", on the Pareto front", size=8, opacity=1)
    is_wide = min(of.values) > 0 and max(of.values) > _WIDE * min(of.values)
    n, title = len(of.trials), f"{words.name} against {of.quantity}"
    return figure(
        f"constraint-{k}",
        title,
        [*traces, on_front | line],
        axis(of.quantity, type="log" if is_wide else "linear"),
        axis(words.axis, range=visible_losses(of.losses)),
        note=f"{len(shown):,} of {n:,} full trials are shown." if len(shown) < n else "",
        is_half=True,
        caption=_figure_caption(of, words),
        shapes=[] if bound is None else [_bound(bound)],
    )


def _bound(bound: float) -> dict[str, object]:
    return {
        "type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": bound, "x1": bound,
        "line": {"color": "var(--ink)", "dash": "dash", "width": 1.5},
        "label": {"text": "bound", "textposition": "end", "textangle": 0, "xanchor": "right",
                  "yanchor": "top", "font": {"color": "var(--ink)", "size": 12}},
    }  # fmt: skip


def _table(of: TradeOff, words: LossWords) -> Table:
    def is_within(i: int) -> str:
        return "" if of.bound is None else "yes" if of.values[i] <= of.bound else "no"

    return Table.of(
        f"Pareto front of {words.name} and {of.quantity}",
        of.front,
        {
            "#trial": lambda i: str(of.trials[i]),
            f"#{words.name}": lambda i: words.of(of.losses[i]),
            f"#{of.quantity}": lambda i: number_text(of.values[i]),
            "within the bound": is_within,
        },
    )
