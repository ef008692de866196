"""Sections on the search (loss, importance, paths, costs, decisions) and on its operation."""

import shlex
from collections.abc import Iterator
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
    with_labels,
)
from prefect_tune.deployments.report.study_report import COST, StudyReport
from prefect_tune.flows.wording.text import counted, format_seconds, saved_text
from prefect_tune.optimizers.importance import Input
from prefect_tune.optimizers.trials.outcome import FailureKind
from prefect_tune.tasks.objective.metric import is_at_least

_MOST_LEADS = 300
_MOST_BARS, _LEAST_DROP = 14, 0.002
"""Maximum number of choices in a figure, and smallest importance of a choice."""
_WIDE = 30.0
"""Ratio of largest to smallest value above which an axis is logarithmic."""

_ADVICE = {
    FailureKind.TIMEOUT: "more time, such as --trial-timeout 5m",
    FailureKind.MEMORY: "more memory, such as --trial-memory 8GB, or fewer --workers",
    FailureKind.CRASHED: "more memory; the process ended or was killed",
}
_MOST_GROUPS = 20
"""Maximum number of failure reasons shown in full."""


def search_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section on the search, if any trial has ended."""
    makers = (_progress, _importance, _paths, _trade_offs)
    parts = [part for make in makers for part in make(report)]
    if lines := [*report.summary.decision_lines(), *report.summary.method_notes]:
        parts.append(Text(lines))
    if parts:
        yield Section("search", "The search", "", parts)


def _progress(report: StudyReport) -> Iterator[Part]:
    known = report.progress.dropna(subset=["loss"])
    if known.empty:
        return
    view, words = report.summary, report.summary.losses
    shown, end = sampled(known, "loss"), known["seconds"].iloc[-1]
    kinds = shown["is_partial"].map({False: "full", True: "partial"})
    axes = {"x": "seconds", "y": "loss", "labels": {"loss": words.axis}, **STYLE}
    drawn = px.scatter(
        shown.assign(kind=kinds, loss=shown["loss"].map(words.number)),
        color="kind",
        symbol="kind",
        opacity=0.75,
        hover_data=["trial", "evaluations", "fidelity", "cost_seconds", "phase"],
        color_discrete_map={"full": "var(--c0)", "partial": "var(--c4)"},
        **axes,
    )
    leads = sampled(report.incumbents, "loss", _MOST_LEADS)
    # Losses of different fidelities are not comparable, so each fidelity has its own line.
    runs = leads["fidelity"].ne(leads["fidelity"].shift()).cumsum()
    until = leads.assign(seconds=leads["seconds"].shift(-1, fill_value=end))
    steps = pd.concat([leads, until]).sort_index(kind="stable")
    steps = steps.assign(loss=steps["loss"].map(words.number), line="best so far", run=runs)
    line = px.line(steps, color="line", line_group="run", hover_data=["trial"], **axes)
    drawn.add_traces(line.update_traces(line={"color": "var(--c3)", "width": 2.5}).data)
    low, high = visible_losses(known["loss"], words)
    baseline = None if view.chance_loss is None else words.number(view.chance_loss)
    if baseline is not None and low <= baseline <= high:
        style = {"line_dash": "dot", "line_color": "var(--muted)"}
        drawn.add_hline(y=baseline, annotation_text="baseline on the training rows", **style)
    drawn.update_yaxes(range=[low, high])
    note = sample_note(shown, known, "evaluation")
    note += "Partial trials are not comparable with full ones." if view.n_partial else ""
    yield Figure(f"{words.name} over time", drawn, note=note)
    texts = {"seconds": format_seconds, words.name: words.of}
    yield Table.of("Incumbents", report.incumbents.rename(columns={"loss": words.name}), texts)


def _importance(report: StudyReport) -> Iterator[Part]:
    """Yield the importance of choices, or the reason why no importance can be given."""
    found, title = report.importance, "Importance of choices"
    learned = counted(found.n_configurations, "configuration")
    predicted = f"{100 * max(found.r2 or 0.0, 0.0):.0f}% of the variance of unseen configurations"
    if found.effects:
        note = (
            f"The drop in the R2 of a random forest when the values of a choice are permuted. The "
            f"forest learned from {learned} and predicts {predicted}. The search samples mostly "
            "where results are good; estimates elsewhere are weak."
        )
        rows = [(input_name(of.input), of.drop, of.deviation) for of in found.effects]
        drops = pd.DataFrame(rows, columns=["choice", "drop in R2", "±"])
        shown = drops[drops["drop in R2"] >= _LEAST_DROP].head(_MOST_BARS)
        drawn = bars(shown, "choice", x="drop in R2", error_x="±")
        drawn.update_xaxes(rangemode="nonnegative")
        yield Figure(title, drawn, 120 + 26 * len(shown), note)
        yield Table.of(title, drops)
    elif found.n_configurations:
        reason = f"{title} is unknown: {learned} with comparable results, and {found.reason}."
        weak = "" if found.r2 is None else f" A random forest predicts only {predicted}."
        yield Text([reason + weak])


def input_name(of: Input) -> str:
    """Return the name of a choice, which is a step's algorithm or a hyperparameter."""
    if of.hyperparameter is None:
        return f"{of.step}: algorithm"
    return f"{of.step}: {of.hyperparameter} of {of.algorithm}"


def _paths(report: StudyReport) -> Iterator[Part]:
    words, is_choice = report.summary.losses, report.algorithms.duplicated("step", keep=False)
    rows = report.algorithms[is_choice].dropna(subset=["best"]).head(60)
    if not rows.empty and rows["best"].max() > rows["best"].min():
        rows = rows.assign(label=rows["algorithm"] + " (" + rows["step"] + ")")
        losses = rows.melt(["label", "configurations"], ["best", "median"], "value of", "loss")
        ends = [*visible_losses(losses["loss"], words), *rows["best"].map(words.number)]
        losses["loss"] = losses["loss"].map(words.number)
        axes = {"x": "loss", "y": "label", "color": "value of", "symbol": "value of"}
        style = {"symbol_sequence": ["circle", "line-ns-open"], "labels": {"loss": words.axis}}
        drawn = px.scatter(losses, **axes, **style, **STYLE).update_traces(marker_size=11)
        drawn = with_labels(drawn, rows["label"])
        drawn.update_xaxes(range=[min(ends), max(ends)])
        yield Figure(f"Best and median {words.name} by algorithm", drawn, 120 + 24 * len(rows))
    if not report.paths.empty:
        texts = {"best": words.of, "median": words.of}
        yield Table.of("Algorithms by step", report.algorithms, texts)
        yield Table.of("Best paths", report.paths.head(15), texts)


def _trade_offs(report: StudyReport) -> Iterator[Part]:
    """Yield plots of loss against cost and against each measured quantity."""
    for name in dict.fromkeys([*report.trade_offs["quantity"], *report.summary.constraints]):
        found = report.trade_offs[report.trade_offs["quantity"] == name]
        if len(found) > 1:
            yield from _trade_off(report, name, found)


def _trade_off(report: StudyReport, quantity: str, found: pd.DataFrame) -> Iterator[Part]:
    words, bound = report.summary.losses, report.summary.constraints.get(quantity, inf)
    kinds = {True: "within the bound" if bound < inf else "measured", False: "beyond the bound"}
    is_within = found["value"] >= bound if is_at_least(quantity) else found["value"] <= bound
    found = found.drop(columns="quantity").assign(kind=is_within.map(kinds))
    front = found[found["is_best"]].drop(columns="is_best")
    samples = sampled(found, "loss"), sampled(front, "loss", 300)
    shown, edge = (some.assign(loss=some["loss"].map(words.number)) for some in samples)
    is_wide = found["value"].min() > 0 and found["value"].max() > _WIDE * found["value"].min()
    name = "seconds of evaluation, without the cache" if quantity == COST else quantity
    labels = {"value": name, "loss": words.axis}
    axes = {"x": "value", "y": "loss", "labels": labels, "hover_data": ["trial"], **STYLE}
    drawn = px.scatter(shown, color="kind", symbol="kind", log_x=is_wide, **axes)
    line = px.line(edge.assign(line="Pareto front"), color="line", markers=True, **axes)
    style = {"color": "var(--c3)", "width": 2, "shape": "hv"}
    drawn.add_traces(line.update_traces(line=style, marker_size=8).data)
    drawn.update_yaxes(range=visible_losses(found["loss"], words))
    title = f"{words.name} and {'cost' if quantity == COST else quantity}"
    note = sample_note(shown, found, "full trial")
    if bound < inf:
        drawn.add_vline(x=bound, line_dash="dash", line_color="var(--ink)")
        note += "The dashed line is the bound."
    yield Figure(title, drawn, note=note, is_half=True)
    front = front.rename(columns={"loss": words.name, "value": name})
    yield Table.of(f"Pareto front of {title}", front, {words.name: words.of})


def operations_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section on times of steps and failures, if any step ran or failed."""
    parts = [*_step_times(report), *_failures(report)]
    if parts:
        asking = format_seconds(report.summary.seconds.asking)
        note = f"Choosing configurations took {asking}."
        yield Section("operations", "Time, cache and failures", note, parts)


def _step_times(report: StudyReport) -> Iterator[Part]:
    times = report.step_times
    if times.empty:
        return
    kinds = {"made_seconds": "made", "saved_seconds": "saved by the cache"}
    seconds = times[["step", *kinds]].rename(columns=kinds).melt("step", None, "kind", "seconds")
    seconds["seconds"] = seconds["seconds"].clip(lower=0)
    drawn = bars(seconds, "step", x="seconds", color="kind")
    texts: Texts = dict.fromkeys(("made_seconds", "load_seconds"), format_seconds)
    texts = {**texts, "saved_seconds": saved_text}
    note = "Seconds saved by the cache are those that rerunning the steps would have taken."
    yield Figure("Seconds by step, all trials together", drawn, 120 + 32 * len(times), note)
    yield Table.of("Steps of all folds of all trials", times, texts)


def _failures(report: StudyReport) -> Iterator[Part]:
    groups = report.failures
    if not groups:
        return
    rows = [
        (
            str(group.kind),
            group.step or "-",
            group.message.strip().partition("\n")[0],
            len(group.trials),
            group.seconds,
            _ADVICE.get(group.kind, "-"),
        )
        for group in groups
    ]
    columns = ["kind", "step", "message", "trials", "lost", "what may help"]
    table = pd.DataFrame(rows, columns=columns)
    yield Table.of("Failures by reason", table, {"lost": format_seconds}, is_open=True)
    for group in groups[:_MOST_GROUPS]:
        lines = [*group.message.strip().split("\n")[1:], *group.traceback.splitlines()]
        if lines:
            yield Text(lines, f"Traceback of trial {group.trials[0]}")
    if not report.reproduction.obstacle:
        words = ["prefect-tune", "retry", report.summary.study, *report.summary.store_options]
        yield Command(shlex.join(words), "retry all failed trials")
