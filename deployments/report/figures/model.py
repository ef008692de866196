"""The final model: its members, its quality on the test rows, and the codes that it uses."""

from collections.abc import Iterator
from math import isnan, sqrt

import pandas as pd
import plotly.express as px

from prefect_tune.deployments.report.judged_model import ModelReport
from prefect_tune.deployments.report.page import STYLE, Figure, Part, Section, Table, bars, clipped
from prefect_tune.deployments.report.study_report import StudyReport
from prefect_tune.flows.wording.text import LossWords, counted
from prefect_tune.tasks.final.figures import CodeEffect, ColumnEffect

_MOST_CODES, _MOST_COLUMNS = 20, 4
_NO_EFFECT = 5e-5
"""Rise of the loss below which a column gets no line."""


def model_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if the model has several members or was compared with others."""
    view, parts, text = report.summary, list[Part](), report.loss_text
    if len(report.members) > 1:
        texts = {"loss": text, "weight": _percent}
        parts.append(Table.of("Members of the ensemble", report.members, texts, is_open=True))
    if view.ensemble and view.ensemble.nested:
        nested = pd.DataFrame(view.ensemble.nested.items(), columns=["kind", "loss"])
        title = "Kinds of models, on rows not used to build them"
        parts.append(Table.of(title, nested, {"loss": text}))
    if view.finalists:
        finalists = pd.DataFrame(view.finalists).astype({"recheck_loss": "float"})
        finalists["mean"] = finalists[["loss", "recheck_loss"]].mean(axis=1, skipna=False)
        texts = dict.fromkeys(("loss", "recheck_loss", "mean"), text)
        parts.append(Table.of("Finalists on a second split", finalists, texts, is_open=True))
    if parts:
        yield Section("model", "The final model", "", parts)


def _percent(share: float) -> str:
    return "-" if isnan(share) else f"{share:.1%}"


def quality_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if scores of two classes exist or could not be judged."""
    model, title = report.model, "Quality on the test rows"
    if model.is_judged:
        note = "" if model.calibration else "The model has no probabilities to be calibrated."
        if model.is_balanced:
            note += (
                "Training gave both classes equal weight, so probabilities are too high for the "
                "rarer class. Calibrate them before you read them as risks."
            )
        yield Section("quality", title, note, [*_quality(model)])
    elif model.problem:
        yield Section("quality", title, f"The model could not be judged: {model.problem}.")


def _quality(model: ModelReport) -> Iterator[Part]:
    rows = [["test rows", f"{model.n_rows:,}"]]
    if (auroc := model.auroc) is not None:
        units = counted(auroc.n_units, model.units.removesuffix("s"))
        interval = f"none, as {units} have too few of one class"
        if auroc.low is not None:
            drawn = f"{auroc.n_draws:,} bootstraps of {units}"
            interval = f"{auroc.low:.3f} to {auroc.high:.3f} ({drawn})"
        rows += [["AUROC", f"{auroc.value:.3f}"], ["95% interval", interval]]
    if (found := model.calibration) is not None:
        brier = f"{found.brier:.4f} ({found.brier_of_share:.4f} with one probability for all rows)"
        error = f"{100 * found.expected_error:.1f} points"
        rows += [["expected calibration error", error], ["Brier score", brier]]
    yield Table("Measures", ["measure", "value"], rows, is_open=True)
    if model.calibration is None:
        return
    bins, positive = pd.DataFrame(model.calibration.bins), model.classes[1]
    above, below = bins["high"] - bins["observed"], bins["observed"] - bins["low"]
    end = min(1.0, 1.05 * float(bins[["predicted", "high"]].max().max()))
    labels = {"x": f"predicted probability of {positive}", "y": f"share of {positive}"}
    axes = {"x": bins["predicted"], "y": bins["observed"], "labels": labels}
    drawn = px.line(error_y=above, error_y_minus=below, markers=True, **axes, **STYLE)
    drawn.update_traces(name="model", showlegend=True)
    dashed = {"color": "var(--muted)", "dash": "dash"}
    drawn.add_scatter(x=[0, end], y=[0, end], mode="lines", name="perfect", line=dashed)
    shares = {"range": [0, end], "tickformat": ".0%"}
    drawn.update_xaxes(**shares).update_yaxes(**shares)
    note = "Equally many test rows in each bin, with Wilson's 95% intervals."
    yield Figure("Calibration", drawn, 400, note)
    texts = dict.fromkeys(("predicted", "observed", "low", "high"), _percent)
    yield Table.of(f"Predicted and observed shares of {positive}", bins, texts)


def codes_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section on strength and direction of codes, for patient events."""
    model, title, effects = report.model, "What the model uses", report.model.effects
    if effects is None:
        if model.problem and model.is_judged:
            yield Section("codes", title, f"They could not be measured: {model.problem}.")
        return
    codes = [code for code in effects.codes if code.strength > _NO_EFFECT][:_MOST_CODES]
    if not codes:
        yield Section("codes", title, "No single code affects the score of the model.")
        return
    words = LossWords(model.measure)
    change = f"drop in {words.name}" if words.is_score else f"rise in {words.axis}"
    meaning = "higher values mean"
    columns = ["code and columns", "description", change, meaning]
    rows = [row for code in codes for row in _code_rows(model, code, effects.n_rows)]
    table = pd.DataFrame(rows, columns=columns).astype({change: "float"})
    # A code may have the description of another one.
    strengths = table[~table[columns[0]].str.startswith("  ")]
    named = strengths["description"].where(~strengths["description"].duplicated(keep=False), "")
    labels = named.map(lambda name: clipped(name, 60)).where(named != "", strengths[columns[0]])
    drawn = bars(strengths.assign(code=labels), "code", x=change, color=meaning)
    one_fold = " (one fold)" if report.summary.model_of_folds else ""
    note = (
        f"Measured with the model of trial {model.effects_of}{one_fold} on "
        f"{counted(effects.n_rows, 'test row')}, for {len(effects.codes)} of {effects.n_codes:,} "
        "codes: the values of the columns of a code are permuted among rows, three times. A code "
        "that matters to the model need not cause the outcome."
    )
    figure = Figure("Strength by code", drawn, 110 + 26 * len(codes))
    parts: list[Part] = [figure, Table.of("Codes and their columns", table, is_open=True)]
    yield Section("codes", title, note, parts)


def _code_rows(model: ModelReport, code: CodeEffect, n_rows: int) -> Iterator[tuple[object, ...]]:
    def direction(column: ColumnEffect) -> str:
        if column.direction is None or abs(column.direction) < 2 / sqrt(n_rows):
            return "unclear"
        is_up = column.direction > 0
        if model.classes:
            return f"{'↑' if is_up else '↓'} {model.classes[1]} {'' if is_up else 'less '}likely"
        return "↑ larger" if is_up else "↓ smaller"

    description = model.descriptions.get(code.code, "")
    yield code.code, description, code.strength, direction(code.columns[0])
    for column in code.columns[: _MOST_COLUMNS if code.n_columns > 1 else 0]:
        yield f"  {column.column}", "", None, direction(column)


def coverage_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section on coverage by code, for patient events."""
    coverage, classes = report.model.coverage, report.model.classes
    if not coverage:
        return
    table, shares = pd.DataFrame(coverage[:_MOST_CODES]), ["patients"]
    by_class = table.pop("by_class")
    for k, label in enumerate(classes if coverage[0].by_class else ()):
        shares.append(f"patients of {label}")
        table[shares[-1]] = by_class.str[k].astype("float")
    texts = dict.fromkeys(shares, _percent)
    note = (
        "Patients of the training rows, with events up to their latest prediction time; events are "
        "per patient with the code. The first "
        f"{len(table)} of {counted(len(coverage), 'code')}; `report --json` lists all."
    )
    parts = [Table.of("Coverage by code", table, texts, is_open=True)]
    yield Section("coverage", "Codes in the data", note, parts)
