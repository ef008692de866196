"""Why trials failed, by reason, and how to run them again."""

import shlex
from collections.abc import Iterator

from prefect_tune.deployments.report.page import Command, Fold, Part, Section, Table, Text
from prefect_tune.deployments.report.wording import listed_trials
from prefect_tune.flows.reporting.failures import FailureGroup
from prefect_tune.flows.reporting.study_report import StudyReport
from prefect_tune.flows.units import counted, format_seconds

__all__ = ["KINDS", "failures_section", "reason_text", "retry_command"]

KINDS = {
    "error": "an error",
    "timeout": "the time limit",
    "memory": "the memory limit",
    "crashed": "a dead worker",
}
"""Kinds of failures, as people say them."""
_ADVICE = {
    "timeout": "With more time: add --trial-timeout 5m, for instance.",
    "memory": "With more memory: add --trial-memory 8GB, for instance, or take fewer --workers.",
    "crashed": "Its worker's process ended by itself, often for lack of memory.",
}
_MOST_GROUPS = 20
_MOST_NAMED = 8


def failures_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if trials failed."""
    groups, study = report.failures, report.summary["study"]
    if not groups:
        return
    parts: list[Part] = [_table(report)]
    for group in groups[:_MOST_GROUPS]:
        parts += _parts(group, study)
    if len(groups) > 1 or len(groups[0].trials) > _MOST_NAMED:
        parts.append(Command(retry_command(study), "Runs all failed trials again."))
    if len(groups) > _MOST_GROUPS:
        rest = sum(len(group.trials) for group in groups[_MOST_GROUPS:])
        others = counted(len(groups) - _MOST_GROUPS, "other reason")
        parts.append(Text([f"and {others}, of {counted(rest, 'trial')} in all"]))
        parts.append(Command(f"prefect-tune trials {study} --failed", "Lists all that failed."))
    yield Section("failures", "What failed", _finding(report), parts)


def reason_text(group: FailureGroup) -> str:
    """Return where and why trials of a group failed, in one line."""
    where = f"{group.step}: " if group.step else ""
    message = group.message.strip().splitlines() or ["no message"]
    return f"{where}{message[0]}"


def retry_command(study: str, group: FailureGroup | None = None) -> str:
    """Return the command that runs failed trials again, those of a small group or all of them."""
    words = ["prefect-tune", "retry", study]
    if group is not None and len(group.trials) <= _MOST_NAMED:
        words += [word for number in group.trials for word in ("--trial", str(number))]
    return shlex.join(words)


def _finding(report: StudyReport) -> str:
    groups, summary = report.failures, report.summary
    n, seconds = summary["n_failed"], sum(group.seconds for group in groups)
    first = groups[0]
    of = f"{counted(n, 'trial')} of {summary['n_trials']:,}"
    said = f"{of} failed and took {format_seconds(seconds)}"
    if len(groups) == 1:
        return f"{said}, by {KINDS.get(first.kind, first.kind)}: {reason_text(first)}."
    return (
        f"{said}, for {counted(len(groups), 'reason')}; {len(first.trials):,} of them by "
        f"{KINDS.get(first.kind, first.kind)}: {reason_text(first)}."
    )


def _parts(group: FailureGroup, study: str) -> Iterator[Part]:
    lines = [f"{reason_text(group)}"]
    rest = group.message.strip().splitlines()[1:]
    lines += [f"  {line}" for line in rest[:10]]
    lines.append(f"  {listed_trials(group.trials)}; {format_seconds(group.seconds)} lost")
    yield Text(lines)
    if group.traceback:
        yield Fold(f"Traceback of trial {group.trials[0]}", group.traceback)
    advice = _ADVICE.get(group.kind, "")
    if len(group.trials) <= _MOST_NAMED:
        yield Command(retry_command(study, group), f"Runs them again. {advice}")
    elif advice:
        yield Text([f"  {advice}"], is_quiet=True)


def _table(report: StudyReport) -> Table:
    rows = [
        [
            KINDS.get(group.kind, group.kind),
            group.step or "-",
            reason_text(group) if not group.step else reason_text(group).partition(": ")[2],
            f"{len(group.trials):,}",
            format_seconds(group.seconds),
        ]
        for group in report.failures[:_MOST_GROUPS]
    ]
    columns = ["by", "step", "reason", "#trials", "#lost"]
    return Table("Failures by reason", columns, rows, is_open=True)
