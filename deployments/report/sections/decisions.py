"""The method's own decisions, as it renders them itself."""

from collections.abc import Iterator

from prefect_tune.deployments.report.page import Section, Table, Text
from prefect_tune.flows.reporting.study_report import StudyReport
from prefect_tune.flows.text import counted
from prefect_tune.optimizers.registry import METHODS

__all__ = ["decisions_section"]


def decisions_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if the method has something to say."""
    summary = report.summary
    method, decisions = METHODS.get(summary["method"]), summary["decisions"]
    lines = list(method.render_decisions(decisions)) if method is not None else []
    lines += _race(decisions.get("race"))
    lines += [f"{note}" for note in decisions.get("notes", ())]
    phases = _phases(report)
    purpose = f"{summary['method']}: {method.purpose}." if method is not None else ""
    if lines or phases:
        parts = [*([Text(lines)] if lines else ()), *phases]
        yield Section("decisions", "How the method decided", purpose or summary["method"], parts)


def _race(race: dict[str, int] | None) -> list[str]:
    if race is None:
        return []
    begun = counted(race["begun"], "configuration")
    return [f"race: of {begun} {race['stopped']:,} ended early, clearly behind"]


def _phases(report: StudyReport) -> list[Table]:
    counts: dict[str, list[float | None]] = {}
    for phase, loss in zip(report.progress.phase, report.progress.loss, strict=True):
        if phase:
            counts.setdefault(phase, []).append(loss)
    rows = [
        [phase, f"{len(losses):,}", f"{min(known):.4g}" if known else "-"]
        for phase, losses in counts.items()
        for known in [[loss for loss in losses if loss is not None]]
    ]
    return (
        [Table("Why trials were asked for", ["phase", "#trials", "#least loss"], rows)]
        if rows
        else []
    )
