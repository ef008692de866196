"""The search: loss over time, paths, importance of choices, fidelities, and reasons."""

from collections.abc import Iterator

import pandas as pd
import plotly.express as px

from prefect_tune.deployments.report.page import (
    STYLE,
    Figure,
    Part,
    Section,
    Table,
    Text,
    bars,
    sample_note,
    sampled,
    visible_losses,
    with_labels,
)
from prefect_tune.deployments.report.study_report import StudyReport
from prefect_tune.flows.wording.text import counted, format_seconds
from prefect_tune.optimizers.importance import Input

_MOST_LEADS = 300
_MOST_BARS, _LEAST_DROP = 14, 0.002
"""Maximum number of choices in a figure, and their smallest drop."""
_MOST_CURVES, _MOST_EPOCHS = 120, 100


def progress_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if any trial has a loss."""
    known = report.progress.dropna(subset=["loss"])
    if not known.empty:
        texts = {"seconds": format_seconds, "loss": report.loss_text}
        table = Table.of("Incumbents", report.incumbents, texts)
        figures = [_progress(report, known, x) for x in ("seconds", "evaluations")]
        yield Section("progress", "Score over time", "", [*figures, table])


def _progress(report: StudyReport, known: pd.DataFrame, x: str) -> Figure:
    view, shown, end = report.summary, sampled(known, "loss"), known[x].iloc[-1]
    number = view.losses.number
    drawn = px.scatter(
        shown.assign(
            loss=shown["loss"].map(number),
            kind=shown["is_partial"].map({False: "complete", True: "partial"}),
        ),
        x=x,
        y="loss",
        color="kind",
        symbol="kind",
        opacity=0.75,
        hover_data=["trial", "fidelity", "cost_seconds", "phase"],
        labels={"loss": view.losses.axis},
        color_discrete_map={"complete": "var(--c0)", "partial": "var(--c4)"},
        **STYLE,
    )
    leads = sampled(report.incumbents, "loss", _MOST_LEADS)
    # Losses of different fidelities are not comparable, so each has a line of its own.
    runs = leads["fidelity"].ne(leads["fidelity"].shift()).cumsum()
    until = leads.assign(**{x: leads[x].shift(-1, fill_value=end)})
    for run, line in pd.concat([leads, until]).sort_index(kind="stable").groupby(runs):
        drawn.add_scatter(
            x=line[x],
            y=line["loss"].map(number),
            mode="lines",
            name="best so far",
            legendgroup="best so far",
            showlegend=run == 1,
            line={"color": "var(--c3)", "width": 2.5},
            hovertext=line["trial"].map("trial {}".format),
        )
    low, high = visible_losses(known["loss"])
    if view.chance_loss is not None and view.chance_loss <= high:
        style = {"line_dash": "dot", "line_color": "var(--muted)"}
        drawn.add_hline(y=number(view.chance_loss), annotation_text="baseline", **style)
    drawn.update_xaxes(rangemode="tozero").update_yaxes(range=sorted(map(number, (low, high))))
    note = sample_note(shown, known, "evaluation")
    note += "Partial trials are not comparable with complete ones." if view.n_stopped else ""
    return Figure(f"Over {'time' if x == 'seconds' else x}", drawn, note=note, is_half=True)


def paths_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if trials have run."""
    parts: list[Part] = []
    is_choice = report.algorithms.duplicated("step", keep=False)
    rows = report.algorithms[is_choice].dropna(subset=["best"]).head(60)
    if not rows.empty:
        rows = rows.assign(label=rows["algorithm"] + " (" + rows["step"] + ")")
        losses = rows.melt(["label", "configurations"], ["best", "median"], "loss of", "loss")
        axes = {"x": "loss", "y": "label", "color": "loss of", "symbol": "loss of"}
        symbols = ["circle", "line-ns-open"]
        words = report.summary.losses
        labels = {"loss": words.axis}
        numbers = losses.assign(loss=losses["loss"].map(words.number))
        drawn = px.scatter(numbers, symbol_sequence=symbols, labels=labels, **axes, **STYLE)
        drawn = with_labels(drawn.update_traces(marker_size=11), rows["label"])
        low, high = visible_losses(losses["loss"])
        high = max(high, rows["best"].max() + 0.04 * (high - low))
        drawn.update_xaxes(range=sorted(map(words.number, (low, high))))
        title = "Best and median score by algorithm"
        parts.append(Figure(title, drawn, 120 + 24 * len(rows)))
    texts = {"best": report.loss_text, "median": report.loss_text}
    parts.append(Table.of("Algorithms by step", report.algorithms, texts))
    parts.append(Table.of("Best paths", report.paths.head(15), texts))
    if not report.paths.empty:
        yield Section("paths", "Paths tried", "", parts)


def importance_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section; without an importance, it gives the reason."""
    found, parts = report.importance, list[Part]()
    learned = counted(found.n_configurations, "configuration")
    predicted = f"{100 * max(found.r2 or 0.0, 0.0):.0f}% of the variance of unseen configurations"
    note = f"Not known yet: {learned} with a comparable result, and {found.reason}."
    if found.r2 is not None:
        note += f" A random forest predicts only {predicted}."
    if found.effects:
        note = (
            f"The drop in the R2 of a random forest when the values of a choice are permuted. The "
            f"forest learned from {learned} and predicts {predicted}. The search samples mostly "
            "where results are good; estimates elsewhere are weak."
        )
        rows = [(input_name(of.input), of.drop, of.deviation) for of in found.effects]
        drops = pd.DataFrame(rows, columns=["choice", "drop in R2", "±"])
        shown = drops[drops["drop in R2"] >= _LEAST_DROP].head(_MOST_BARS)
        title, height = "Importance of choices", 120 + 26 * len(shown)
        drawn = bars(shown, "choice", x="drop in R2", error_x="±")
        drawn.update_xaxes(rangemode="nonnegative")
        parts = [Figure(title, drawn, height), Table.of(title, drops)]
    if found.n_configurations:
        yield Section("importance", "What mattered", note, parts)


def input_name(of: Input) -> str:
    """Return the name of a choice: of the algorithm of a step, or of a hyperparameter."""
    if of.hyperparameter is None:
        return f"{of.step}: algorithm"
    return f"{of.step}: {of.hyperparameter} of {of.algorithm}"


def fidelities_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if trials were partial or trained in epochs."""
    parts: list[Part] = []
    if set(report.levels["fidelity"]) - {"full"}:
        texts = dict.fromkeys(("seconds", "first_after", "last_after"), format_seconds)
        parts.append(Table.of("Fidelities", report.levels, texts, is_open=True))
    if not report.curves.empty:
        parts += _curves(report)
    if parts:
        yield Section("fidelities", "Partial evaluations", "", parts)


def _curves(report: StudyReport) -> Iterator[Part]:
    curves, shown = report.curves, report.curves.head(_MOST_CURVES)
    words, points = report.summary.losses, shown.explode("losses").astype({"losses": "float64"})
    low_high = visible_losses(points["losses"])
    points["losses"] = points["losses"].map(words.number)
    points["epoch"] = points.groupby("trial").cumcount() + 1
    is_last = points["epoch"] == points["epochs"]
    points = points[is_last | (points["epoch"] % -(-points["epochs"] // _MOST_EPOCHS) == 0)]
    axes = {"x": "epoch", "y": "losses", "color": "model", "line_group": "trial"}
    labels = {"losses": words.axis}
    drawn = px.line(points, hover_data=["trial"], labels=labels, markers=True, **axes, **STYLE)
    drawn.update_traces(line_width=1.4, marker_size=4, opacity=0.8)
    drawn.update_yaxes(range=sorted(map(words.number, low_high)))
    note = sample_note(shown, curves, "training")
    yield Figure("Score after each epoch, by model", drawn, 420, note)
    table = shown.drop(columns=["losses", "configuration"])
    yield Table.of("Trainings", table, {"best": report.loss_text})


def decisions_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if the method reports decisions."""
    lines = [*report.summary.decision_lines(), *report.summary.method_notes]
    parts: list[Part] = [Text(lines)] if lines else []
    phases = report.progress.groupby("phase", sort=False)["loss"].agg(["size", "min"])
    if not phases.empty:
        phases = phases.set_axis(["trials", "least_loss"], axis="columns").reset_index()
        title = "Reasons for proposing trials"
        parts.append(Table.of(title, phases, {"least_loss": report.loss_text}, is_open=True))
    if parts:
        yield Section("decisions", "Decisions of the method", "", parts)
