"""How well the final model predicts the test rows of two classes: AUROC and calibration."""

from collections.abc import Iterator

from prefect_tune.deployments.report.page import Figure, Part, Section, Table, Text
from prefect_tune.deployments.report.plots import axis, plot, points
from prefect_tune.flows.reporting.model_report import ModelReport
from prefect_tune.flows.reporting.study_report import StudyReport
from prefect_tune.flows.text import counted
from prefect_tune.tasks.objective.two_classes import Auroc, Calibration, CalibrationBin


def quality_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if scores of two classes are judged, or could not be."""
    model = report.model
    if model.problem:
        finding = f"The model could not be judged on the test rows: {model.problem}."
        yield Section("quality", "How well it predicts", finding)
    elif model.auroc is not None or model.calibration is not None:
        yield Section(
            "quality", "How well it predicts", " ".join(_findings(model)), [*_parts(model)]
        )


def auroc_text(auroc: Auroc) -> str:
    """Return an AUROC with its interval."""
    if auroc.low is None or auroc.high is None:
        return f"AUROC {auroc.value:.3f}"
    return f"AUROC {auroc.value:.3f} (95 %: {auroc.low:.3f} to {auroc.high:.3f})"


def _findings(model: ModelReport) -> Iterator[str]:
    rows = counted(model.n_rows, "test row")
    if (auroc := model.auroc) is not None:
        drawn = counted(auroc.n_units, model.units.removesuffix("s"))
        if auroc.low is None:
            yield f"{auroc_text(auroc)} on {rows} of {drawn}, too few of one class for an interval."
        else:
            yield f"{auroc_text(auroc)} on {rows}, from {auroc.n_draws:,} bootstraps of {drawn}."
    if (found := model.calibration) is not None:
        yield (
            f"Predicted probabilities of {model.classes[1]} are off by "
            f"{100 * found.expected_error:.1f} points on average, and their Brier score is "
            f"{found.brier:.4f} ({found.brier_of_share:.4f} if all rows had the same probability)."
        )


def _parts(model: ModelReport) -> Iterator[Part]:
    found = model.calibration
    if found is None:
        yield Text(["The model gives scores but no probabilities, so there is no calibration."])
        return
    if model.is_balanced:
        warning = (
            "Classes were weighted for balance in training, so probabilities are too high for the "
            "rarer class. Calibrate them before you read them as risks."
        )
        yield Text([warning])
    yield _figure(found, model.classes[1])
    rows = [
        [
            f"{b.n:,}",
            f"{100 * b.predicted:.1f}",
            f"{100 * b.observed:.1f}",
            f"{100 * b.low:.1f} to {100 * b.high:.1f}",
        ]
        for b in found.bins
    ]
    columns = ["#rows", "#predicted, %", "#observed, %", "#95 % interval"]
    yield Table(f"Predicted and observed shares of {model.classes[1]}", columns, rows)


def _figure(found: Calibration, positive: str) -> Figure:
    predicted, observed = ([100 * getattr(b, of) for b in found.bins] for of in _OF_BIN)
    whiskers = {
        "type": "data", "symmetric": False,
        "array": [100 * (b.high - b.observed) for b in found.bins],
        "arrayminus": [100 * (b.observed - b.low) for b in found.bins],
        "color": "var(--c0)", "thickness": 1.2, "width": 3,
    }  # fmt: skip
    model = points(
        "model",
        predicted,
        observed,
        "var(--c0)",
        size=8,
        opacity=1,
        labels=list(map(_label, found.bins)),
    ) | {"mode": "lines+markers", "error_y": whiskers, "line": {"color": "var(--c0)", "width": 2}}
    end = min(100.0, 1.05 * max(*predicted, *(100 * b.high for b in found.bins)))
    ideal = points("perfect", [0, end], [0, end], "var(--muted)") | {
        "mode": "lines",
        "line": {"color": "var(--muted)", "dash": "dash", "width": 1.5},
        "hoverinfo": "skip",
    }
    layout = {
        "xaxis": axis(f"predicted probability of {positive}, %", range=[0, end]),
        "yaxis": axis(f"share of {positive}, %", range=[0, end]),
    }
    note = (
        "Bins of equally many test rows by predicted probability, with Wilson's 95 % intervals. "
        "Below the dashed line, probabilities are too high."
    )
    return Figure("calibration", "Calibration", plot([ideal, model], **layout), 400, note)


_OF_BIN = ("predicted", "observed")


def _label(of: CalibrationBin) -> str:
    return (
        f"{counted(of.n, 'row')}: {100 * of.predicted:.1f} % predicted, {100 * of.observed:.1f} % "
        f"observed ({100 * of.low:.1f} to {100 * of.high:.1f})"
    )
