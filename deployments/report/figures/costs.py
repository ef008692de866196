"""Costs of trials: time by step, failures by reason, and trade-offs with measured quantities."""

import shlex
from collections.abc import Iterator, Sequence
from math import inf

import pandas as pd
import plotly.express as px

from prefect_tune.deployments.report.page import (
    STYLE,
    Command,
    Figure,
    Part,
    Section,
    Table,
    Text,
    Texts,
    bars,
    sample_note,
    sampled,
    visible_losses,
)
from prefect_tune.deployments.report.study_report import StudyReport
from prefect_tune.flows.wording.text import format_bytes, format_seconds, saved_text
from prefect_tune.optimizers.trials.outcome import FailureKind
from prefect_tune.tasks.objective.metric import is_at_least

_ADVICE = {
    FailureKind.TIMEOUT: "more time, such as --trial-timeout 5m",
    FailureKind.MEMORY: "more memory, such as --trial-memory 8GB, or fewer --workers",
    FailureKind.CRASHED: "more memory; the process ended or was killed",
}
_MOST_GROUPS, _MOST_NAMED = 20, 8
"""Maximum number of reasons in full, and of trials that a command names."""
_WIDE = 30.0
"""Ratio of largest to smallest value from which an axis is logarithmic."""


def step_times_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if any step ran."""
    times = report.step_times
    if times.empty:
        return
    kinds = {"made_seconds": "made", "saved_seconds": "saved by the cache"}
    seconds = times[["step", *kinds]].rename(columns=kinds).melt("step", None, "kind", "seconds")
    seconds["seconds"] = seconds["seconds"].clip(lower=0)
    drawn = bars(seconds, "step", x="seconds", color="kind")
    texts: Texts = {
        **dict.fromkeys(("made_seconds", "load_seconds"), format_seconds),
        "saved_seconds": saved_text,
        **dict.fromkeys(("kept_bytes", "evicted_bytes", "refused_bytes"), format_bytes),
    }
    figure = Figure("Seconds by step, all trials together", drawn, 120 + 32 * len(times))
    table = Table.of("Steps of all folds of all trials", times, texts)
    asking = format_seconds(report.summary.seconds.asking)
    note = f"Choosing configurations took {asking}."
    yield Section("time", "Time by step", note, [figure, table])


def failures_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if trials failed."""
    groups, can_retry = report.failures, not report.reproduction.obstacle
    rows = [
        (
            str(group.kind),
            group.step or "-",
            group.message.strip().partition("\n")[0],
            len(group.trials),
            group.seconds,
            _ADVICE.get(group.kind, ""),
        )
        for group in groups
    ]
    columns = ["kind", "step", "message", "trials", "lost", "what may help"]
    table = pd.DataFrame(rows, columns=columns)
    lost = {"lost": format_seconds}
    parts: list[Part] = [Table.of("Failures by reason", table, lost, is_open=True)]
    for group in groups[:_MOST_GROUPS]:
        is_named = len(group.trials) <= _MOST_NAMED
        whose = ", ".join(map(str, group.trials)) if is_named else f"{group.trials[0]} and others"
        text = f"{group.message}\n{group.traceback}".strip()
        parts.append(Text(text.split("\n"), f"{group.kind} in trial {whose}"))
        if can_retry and is_named and len(groups) > 1:
            parts.append(Command(_retry(report, group.trials), "retry these trials"))
    if can_retry:
        parts.append(Command(_retry(report), "retry all failed trials"))
    if groups:
        yield Section("failures", "What failed", "", parts)


def _retry(report: StudyReport, trials: Sequence[int] = ()) -> str:
    named = [word for number in trials for word in ("--trial", str(number))]
    words = ["prefect-tune", "retry", report.summary.study, *named, *report.summary.store_options]
    return shlex.join(words)


def trade_offs_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if a quantity was measured."""
    parts: list[Part] = []
    for name in dict.fromkeys([*report.summary.constraints, *report.trade_offs["quantity"]]):
        found = report.trade_offs[report.trade_offs["quantity"] == name]
        if not found.empty:
            parts += _trade_off(report, name, found)
    if parts:
        yield Section("constraints", "Constraints and trade-offs", "", parts)


def _trade_off(report: StudyReport, quantity: str, found: pd.DataFrame) -> Iterator[Part]:
    words, bound = report.summary.losses, report.summary.constraints.get(quantity, inf)
    kinds = {True: "within the bound" if bound < inf else "measured", False: "beyond the bound"}
    is_within = found["value"] >= bound if is_at_least(quantity) else found["value"] <= bound
    found = found.drop(columns="quantity").assign(kind=is_within.map(kinds))
    front = found[found["is_best"]].drop(columns="is_best")
    samples = sampled(found, "loss"), sampled(front, "loss", 300)
    shown, edge = (some.assign(loss=some["loss"].map(words.number)) for some in samples)
    is_wide = found["value"].min() > 0 and found["value"].max() > _WIDE * found["value"].min()
    labels = {"value": quantity, "loss": words.axis}
    axes = {"x": "value", "y": "loss", "labels": labels, "hover_data": ["trial"], **STYLE}
    drawn = px.scatter(shown, color="kind", symbol="kind", log_x=is_wide, **axes)
    line = px.line(edge.assign(line="Pareto front"), color="line", markers=True, **axes)
    style = {"color": "var(--c3)", "width": 2, "shape": "hv"}
    drawn.add_traces(line.update_traces(line=style, marker_size=8).data)
    drawn.update_yaxes(range=sorted(map(words.number, visible_losses(found["loss"]))))
    title, note = f"{words.name} and {quantity}", sample_note(shown, found, "full trial")
    if bound < inf:
        drawn.add_vline(x=bound, line_dash="dash", line_color="var(--ink)")
        note += "The dashed line is the bound."
    yield Figure(title, drawn, note=note, is_half=True)
    yield Table.of(f"Pareto front of {title}", front, {"loss": report.loss_text})
