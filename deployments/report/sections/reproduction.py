"""How to have the study again."""

import shlex
from collections.abc import Iterator

from prefect_tune.deployments.report.page import Command, Part, Section, Table, Text
from prefect_tune.flows.reporting.reproduction import Reproduction
from prefect_tune.flows.reporting.study_report import StudyReport

__all__ = ["reproduction_section"]


def reproduction_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section."""
    of, again = report.reproduction, f"The same command and seed ({report.reproduction.seed})"
    command = Command(shlex.join(of.command), "Use an empty store, or another --study name.")
    if of.repeats_itself:
        finding = f"{again} repeat these trials on one worker with a budget of trials."
    else:
        finding = (
            f"{again} search the same way, but {report.summary['method']} also looks at the "
            "seconds that trials take, so some trials will differ."
        )
    parts: list[Part] = [Text([_obstacle(of)]) if _obstacle(of) else command]
    parts += [
        Table("What determines the result", ["", ""], _facts(report), is_open=True),
    ]
    if of.versions:
        rows = [[package, version] for package, version in of.versions.items()]
        parts.append(Table("Versions of the last session", ["package", "version"], rows))
    yield Section("again", "How to reproduce it", finding, parts)


def _obstacle(of: Reproduction) -> str:
    """Return why no command has the study again; empty if one does."""
    if of.removed_option:
        return (
            f"It was started with {of.removed_option}, an option that this version no longer has: "
            "it cannot be extended, and no command repeats it."
        )
    if of.is_of_frame:
        return "The data was a DataFrame in Python: pass it to `tune` or PipelineSearch again."
    return ""


def _facts(report: StudyReport) -> list[list[str]]:
    of, summary = report.reproduction, report.summary
    facts = [
        ("data", of.data),
        ("digest of the data", of.dataset),
        ("digest of the split", of.split),
        ("space", of.space),
        ("digest of the space", of.space_digest),
        ("method", summary["method"]),
        ("metric", summary["metric"]),
        ("seed", str(of.seed)),
        ("Prefect flow run", of.flow_run_id or "none"),
    ]
    return [list(fact) for fact in facts]
