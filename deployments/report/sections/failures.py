"""Why trials failed, by reason, and how to run them again."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from prefect_tune.deployments.report.page import Command, Details, Part, Section, Table, Text
from prefect_tune.deployments.report.wording import listed_trials
from prefect_tune.flows.reporting.failures import FailureGroup
from prefect_tune.flows.reporting.study_report import StudyReport
from prefect_tune.flows.text import counted, format_seconds
from prefect_tune.optimizers.trials.outcome import FailureKind

_WHAT_HAPPENED = {
    FailureKind.ERROR: "raised an error",
    FailureKind.TIMEOUT: "timed out",
    FailureKind.MEMORY: "ran out of memory",
    FailureKind.CRASHED: "lost the worker",
}
_ADVICE = {
    FailureKind.TIMEOUT: "Allow more time, such as --trial-timeout 5m.",
    FailureKind.MEMORY: "Allow more memory, such as --trial-memory 8GB, or run fewer --workers.",
    FailureKind.CRASHED: "The worker's process died, often for lack of memory.",
}
_MOST_GROUPS = 20
_MOST_NAMED = 8


def failures_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if trials failed."""
    groups, summary = report.failures, report.summary
    if not groups:
        return
    parts: list[Part] = [_table(report)]
    for group in groups[:_MOST_GROUPS]:
        parts += _parts(group, summary)
    if len(groups) > 1 or len(groups[0].trials) > _MOST_NAMED:
        parts.append(Command(retry_command(summary), "Retry all failed trials."))
    if len(groups) > _MOST_GROUPS:
        rest = sum(len(group.trials) for group in groups[_MOST_GROUPS:])
        others = counted(len(groups) - _MOST_GROUPS, "other reason")
        parts.append(Text([f"and {others}, of {counted(rest, 'trial')} in all"]))
        words = ["prefect-tune", "trials", summary["study"], "--failed", *summary["store_options"]]
        parts.append(Command(shlex.join(words), "List all failed trials."))
    yield Section("failures", "What failed", _finding(report), parts)


def reason_text(group: FailureGroup) -> str:
    """Return how, where and why trials of a group failed, in one line."""
    what = _WHAT_HAPPENED[group.kind]
    where = f" in {group.step}" if group.step else ""
    return f"{what}{where}: {_message(group)}"


def _message(group: FailureGroup) -> str:
    """Return the first line of the message."""
    lines = group.message.strip().splitlines()
    return lines[0] if lines else "no message"


def retry_command(summary: Mapping[str, Any], group: FailureGroup | None = None) -> str:
    """Return the command that runs failed trials again, those of a small group or all of them."""
    words = ["prefect-tune", "retry", summary["study"]]
    if group is not None and len(group.trials) <= _MOST_NAMED:
        words += [word for number in group.trials for word in ("--trial", str(number))]
    return shlex.join([*words, *summary["store_options"]])


def _finding(report: StudyReport) -> str:
    groups, summary = report.failures, report.summary
    lost = format_seconds(sum(group.seconds for group in groups))
    of = f"{summary['n_failed']:,} of {counted(summary['n_trials'], 'trial')} failed ({lost} lost)"
    if len(groups) == 1:
        return f"{of}: they {reason_text(groups[0])}."
    most = f"{len(groups[0].trials):,} {reason_text(groups[0])}"
    return f"{of}, for {counted(len(groups), 'reason')}. The most frequent: {most}."


def _parts(group: FailureGroup, summary: Mapping[str, Any]) -> Iterator[Part]:
    lines = [f"{len(group.trials):,} {reason_text(group)}"]
    rest = group.message.strip().splitlines()[1:]
    lines += [f"  {line}" for line in rest[:10]]
    lines.append(f"  {listed_trials(group.trials)}; {format_seconds(group.seconds)} lost")
    yield Text(lines)
    if group.traceback:
        yield Details(f"Traceback of trial {group.trials[0]}", group.traceback)
    advice = _ADVICE.get(group.kind, "")
    if len(group.trials) <= _MOST_NAMED:
        yield Command(retry_command(summary, group), f"Retry them. {advice}")
    elif advice:
        yield Text([f"  {advice}"], is_quiet=True)


def _table(report: StudyReport) -> Table:
    rows = [
        [
            group.kind,
            group.step or "-",
            _message(group),
            f"{len(group.trials):,}",
            format_seconds(group.seconds),
        ]
        for group in report.failures[:_MOST_GROUPS]
    ]
    columns = ["kind", "step", "message", "#trials", "#lost"]
    return Table("Failures by reason", columns, rows, is_open=True)
