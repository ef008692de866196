"""Sections on the final model: quality on the test rows, columns used, data and members."""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from math import isnan, nan, sqrt
from typing import Any

import pandas as pd
import plotly.express as px

from prefect_tune.deployments.report.judged_model import ModelReport
from prefect_tune.deployments.report.page import (
    DASHED,
    STYLE,
    Command,
    Figure,
    Part,
    Section,
    Table,
    Text,
    Texts,
    Threshold,
    bars,
    clipped,
)
from prefect_tune.deployments.report.study_report import StudyReport
from prefect_tune.flows.wording.text import LossWords, counted
from prefect_tune.tasks.final.figures import FEWEST_ROWS

_MOST_CODES, _MOST_COLUMNS = 20, 4
_NO_EFFECT = 1e-3
"""Share of the largest effect below which a column gets no line."""
_COLORS = {1.0: "var(--c0)", -1.0: "var(--c3)", 0.0: "var(--c1)", nan: "var(--muted)"}
"""Colors by direction of an effect."""
_UNEQUAL = 1.2
"""Ratio of class sizes above which balanced weights shift the probabilities noticeably."""
_SHARES = {"range": [-0.02, 1.02], "tickformat": ".0%"}


def percent(share: float) -> str:
    """Return a share as a percentage, or as a dash if the share is nan."""
    return "-" if isnan(share) else f"{share:.1%}"


def quality_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section on quality or, without test rows or a model, the reason for its absence."""
    model, note, parts = report.model, "", list[Part]()
    if model.is_judged:
        parts = [*_measures(report), *_classes(model), *_numbers(model)]
    elif model.problem:
        note = f"The model could not be judged: {model.problem}."
    elif not model.n_rows:
        note = "The study has no test rows (see --test and --test-size) to judge the model on."
    else:
        note = f"There is no final model: {report.summary.no_model or 'the search has not ended'}."
    yield Section("quality", "Quality on the test rows", note, parts)


def _measures(report: StudyReport) -> Iterator[Part]:
    model, rows, lines = report.model, list[list[str]](), list[str]()
    known = {name: found for name, found in model.intervals.items() if found is not None}
    for name, found in known.items():
        words, is_known = LossWords(name), found.low is not None
        ends = words.interval(found.low, found.high) if is_known else "too few to estimate it"
        rows.append([words.name, words.of(found.loss), ends])
    if why := report.summary.test_loss_undefined:
        lines.append(f"{report.summary.losses.name} is undefined on the test rows: {why}.")
    n_rows = model.tables.get("classes", pd.DataFrame({"training_rows": [1]}))["training_rows"]
    if model.is_balanced and n_rows.max() > _UNEQUAL * n_rows.min():
        lines.append(
            "Training gave all classes equal weight, so probabilities are too high for rarer "
            "classes. Calibrate them before you read them as risks."
        )
    if (bins := model.tables.get("calibration")) is not None:
        error = ((bins["predicted"] - bins["observed"]).abs() * bins["n"]).sum() / model.n_rows
        rows.append(["expected calibration error", percent(error), "-"])
    elif model.classes:
        lines.append("The model predicts no probabilities, so there is no calibration.")
    if lines:
        yield Text(lines)
    note = f"{counted(model.n_rows, 'test row')}."
    if drawn := [found for found in known.values() if found.n_draws]:
        units = counted(drawn[0].n_units, model.units.removesuffix("s"))
        note += f" Intervals are bootstrap intervals over {units}, or Wilson's for shares of rows."
    yield Table("Measures", ["measure", "value", "95% interval"], rows, is_open=True, note=note)


def _classes(model: ModelReport) -> Iterator[Part]:
    tables, curves = model.tables, model.tables.get("curves", pd.DataFrame())
    if "confusion" not in tables:
        return
    table, n_shown = tables["classes"], tables["confusion"]["actual"].nunique()
    n_classes = len(table) + model.n_rare_classes
    if model.classes and not curves.empty:
        totals = table.set_index("label")["test_rows"].loc[[*model.classes]].tolist()
        start = int(curves["threshold"].searchsorted(0.5 if "calibration" in tables else 0.0))
        rows, note = curves[["threshold", "found", "false"]].to_numpy().tolist(), ""
        if not any(rows[start][1:]):  # no row reaches the threshold
            start = int((curves["recall"] - curves["false_positive_rate"]).argmax())
            note = f"The model predicts {model.classes[0]} for all test rows, so the slider "
            note += "starts at the best balanced accuracy."
        yield Threshold("Confusion matrix", model.classes, totals, rows, start, note)
    elif n_shown:
        counts = tables["confusion"].pivot_table("rows", "actual", "predicted", fill_value=0)
        style = {"text_auto": True, "aspect": "auto", "template": "none"}
        style["color_continuous_scale"] = ["var(--card)", "var(--c4)"]
        drawn = px.imshow(counts, **style).update_coloraxes(showscale=False)
        drawn.update_xaxes(type="category").update_yaxes(type="category")
        note = f"The {n_shown} most frequent of {n_classes} classes." * (n_shown < n_classes)
        yield Figure("Confusion matrix", drawn, 400, note, is_half=True)
    if not curves.empty:
        names = {"false_positive_rate": "false positive rate", "label": "class"}
        axes = {"color": "label", "labels": names, "hover_data": ["threshold"], **STYLE}
        roc = px.line(curves, x="false_positive_rate", y="recall", **axes)
        roc.add_scatter(x=[0, 1], y=[0, 1], name="baseline", **DASHED)
        found = px.line(curves[curves["found"] > 0], x="recall", y="precision", **axes)
        note = f"The {curves['label'].nunique()} most frequent of {n_classes} classes."
        for title, drawn in {"ROC curve": roc, "Precision and recall": found}.items():
            drawn.update_xaxes(**_SHARES).update_yaxes(**_SHARES)
            yield Figure(title, drawn, note="" if model.classes else note, is_half=True)
        table = table.merge(curves.drop_duplicates("label")[["label", "auroc"]], how="left")
    if "calibration" in tables:
        drawn = _against_perfect(tables["calibration"], "predicted", "observed", "model")
        drawn.update_xaxes(title=f"predicted probability of {model.classes[1]}", tickformat=".0%")
        drawn.update_yaxes(title=f"share of {model.classes[1]}", tickformat=".0%")
        note = (
            "The bins have about the same number of test rows. The bars are 95% Wilson intervals."
        )
        yield Figure("Calibration", drawn, note=note, is_half=True)
    texts: Texts = dict.fromkeys(("recall", "precision"), lambda value: percent(value / 100))
    table = table.rename(columns={"label": "class", "auroc": "AUROC"})
    yield Table.of(f"Recall and precision by class{_unlisted(model)}", table, texts, is_open=True)


def _unlisted(model: ModelReport) -> str:
    n_rare = model.n_rare_classes
    return f" (not listed: {n_rare:,} with fewer than {FEWEST_ROWS} rows)" if n_rare else ""


def _against_perfect(bins: pd.DataFrame, x: str, y: str, name: str) -> Any:
    """Return a plot of bins with intervals, and the diagonal on which a perfect model lies."""
    ends = {"error_y": bins["high"] - bins[y], "error_y_minus": bins[y] - bins["low"]}
    drawn = px.line(bins, x=x, y=y, markers=True, **ends, **STYLE)
    line = [bins[x].min(), bins[x].max()]
    drawn.update_traces(name=name, showlegend=True)
    return drawn.add_scatter(x=line, y=line, name="perfect", **DASHED)


def _numbers(model: ModelReport) -> Iterator[Part]:
    if "residuals" not in model.tables:
        return
    bins, by_actual = model.tables["by_predicted"], model.tables["by_actual"]
    drawn = _against_perfect(bins, "predicted", "actual", "mean and middle 80%")
    note = "The bins of predicted numbers have about the same number of test rows."
    yield Figure("Predicted against actual", drawn, note=note, is_half=True)
    drawn = px.line(model.tables["residuals"], x="residual", y="rows", line_shape="hvh", **STYLE)
    drawn.update_traces(fill="tozeroy").update_xaxes(title="actual minus predicted")
    yield Figure("Residuals", drawn, note="Without 0.5% of the rows at each end.", is_half=True)
    labels = {"error": "mean absolute error", "n": "rows", "low": "10% below", "high": "10% above"}
    drawn = px.line(by_actual, x="actual", y="error", markers=True, labels=labels, **STYLE)
    drawn.update_yaxes(rangemode="tozero")
    yield Figure("Error by actual number", drawn, is_half=True)
    yield Table.of("Errors by actual number", by_actual.rename(columns=labels))


def uses_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section on the effects of columns or codes: strength, direction, dependence."""
    model, title, words = report.model, "What the model uses", LossWords(report.model.measure)
    what = "code" if report.summary.is_of_events else "column"
    if "effects" not in model.tables:
        why = model.problem or "this needs a final model and test rows"
        yield Section("uses", title, f"The effects of {what}s could not be measured: {why}.")
        return
    effects = model.tables["effects"]
    least = _NO_EFFECT * max(effects["strength"].max(), 0.0)
    n_measured, effects = effects["code"].nunique(), effects[effects["strength"] > least]
    if effects.empty:
        yield Section("uses", title, f"No single {what} affects the score of the model.")
        return
    strength = f"drop in {words.name}" if words.is_score else f"rise in {words.axis}"
    meaning = effects["direction"].map(lambda value: _meaning(model, value))
    columns = {"strength": strength, "spread": "±", "meaning": "higher values mean"}
    table = effects.assign(meaning=meaning).rename(columns=columns)
    first = table.drop_duplicates("code").head(_MOST_CODES)
    # Two codes may have the same description.
    is_named = (first["description"] != "") & ~first["description"].duplicated(keep=False)
    labels = first["description"].map(lambda text: clipped(text, 60)).where(is_named, first["code"])
    axes: dict[str, Any] = {"x": strength, "color": "higher values mean", "error_x": "±"}
    axes["color_discrete_map"] = {_meaning(model, k): color for k, color in _COLORS.items()}
    drawn = bars(first.assign(label=labels), "label", **axes)
    one_fold = " (one fold)" if report.summary.model_of_folds else ""
    note = (
        f"The strength of a {what} is the mean {strength} when its values are permuted among "
        f"{counted(model.n_sample, 'test row')}, three times. It was measured for {n_measured} of "
        f"{counted(model.n_codes, what)} with the model of trial {model.effects_of}{one_fold}. A "
        f"{what} that matters to the model need not cause the outcome."
    )
    figure = Figure(f"Strength by {what}", drawn, 110 + 26 * len(first))
    listed = table.groupby("code", sort=False).head(_MOST_COLUMNS)
    shown = ["description"] if what == "code" else []
    listed = listed[["code", "column", *shown, strength, "±", "higher values mean"]]
    listed = listed.rename(columns={"code": what, "column": "feature"})
    strengths = Table.of(f"Strength by {what}", listed, is_open=what == "code")
    yield Section("uses", title, note, [figure, *_dependence(model), strengths])


def _meaning(model: ModelReport, direction: float) -> str:
    if isnan(direction):
        return "no direction"
    if abs(direction) < 2 / sqrt(model.n_sample):
        return "unclear"
    if model.classes:
        return f"{'↑' if direction > 0 else '↓ less'} {model.classes[1]}"
    return "↑ larger" if direction > 0 else "↓ smaller"


def _dependence(model: ModelReport) -> Iterator[Part]:
    curves = model.tables.get("dependence", pd.DataFrame({"column": []}))
    score = f"mean score of {model.classes[1]}" if model.classes else "mean prediction"
    for name, points in curves.groupby("column", sort=False):
        kind = points["kind"].iloc[0]
        if kind == "date":
            points["value"] = pd.to_datetime(points["value"].astype(float), unit="D").astype(str)
        style = {"type": "scatter", "mode": "markers" if kind == "category" else "lines+markers"}
        data = [
            {**style, "name": label, "x": line["value"].tolist(), "y": line["score"].tolist(),
             "marker": {"size": 9, "color": f"var(--c{k})"}, "line": {"color": f"var(--c{k})"}}
            for k, (label, line) in enumerate(points.groupby("label", sort=False))
        ]  # fmt: skip
        axes = {"xaxis": {"title": {"text": name}}, "yaxis": {"title": {"text": score}}}
        plot = {"data": data, "layout": axes}  # Plotly Express is slow for many figures
        yield Figure(f"Mean prediction by {name}", plot, 260, is_half=True)


def data_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section on the data."""
    model, parts = report.model, list[Part]()
    note = (
        f"{counted(model.n_training, 'training row')} and {counted(model.n_rows, 'test row')}. "
        f"Values of fewer than {FEWEST_ROWS} rows or patients are not named unless the report is "
        "made with --rare-values."
    )
    if not model.n_training:
        note = f"The data cannot be read: {model.problem}."
    if report.notes:
        parts.append(Text(report.notes))
    if "classes" in model.tables:
        counts = model.tables["classes"][["label", "training_rows"]]
        counts = counts.rename(columns={"label": "class"})
        parts.append(Table.of(f"Classes{_unlisted(model)}", counts))
    if "columns" in model.tables:
        texts = {"missing": lambda share: percent(share) if share else "-"}
        parts.append(Table.of("Columns", model.tables["columns"], texts, is_open=True))
    if "coverage" in model.tables:
        parts.append(_coverage(model))
    yield Section("data", "The data", note, parts)


def _coverage(model: ModelReport) -> Table:
    coverage = model.tables["coverage"]
    names = {f"patients_of_{k}": f"patients of {label}" for k, label in enumerate(model.classes)}
    table = coverage.head(_MOST_CODES).drop(columns="n_patients").rename(columns=names)
    rare = f" and {counted(model.n_hidden, 'rare code')}" if model.n_hidden else ""
    note = (
        "Patients of the training rows, with events up to their latest prediction time; events are "
        f"per patient with the code. The first {len(table)} of {counted(len(coverage), 'code')}"
        f"{rare}; `report --json` lists all."
    )
    texts = dict.fromkeys(("patients", *names.values()), percent)
    return replace(Table.of("Coverage by code", table, texts, is_open=True), note=note)


def model_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section on the members and the code of the final model."""
    view, parts = report.summary, list[Part]()
    if len(report.members) > 1:
        words = report.summary.losses
        members = report.members.rename(columns={"loss": words.name})
        texts = {words.name: words.of, "weight": percent}
        parts.append(Table.of("Members of the ensemble", members, texts, is_open=True))
    if (best := view.model_trial or view.incumbent) is not None:
        options = [view.study, "--trial", str(best.trial), "--code", *view.store_options]
        purpose = f"print Python code that builds the pipeline of trial {best.trial}"
        parts.append(Command(shlex.join(["prefect-tune", "show", *options]), purpose))
    if parts:
        yield Section("model", "The model", "", parts)
