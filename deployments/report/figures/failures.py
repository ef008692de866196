"""Reasons for failed trials (equal up to numbers), and how to retry the trials."""

import shlex
from collections.abc import Iterator, Sequence

from prefect_tune.deployments.report.page import Command, Details, Part, Section, Table, Text
from prefect_tune.deployments.report.wording import listed_trials
from prefect_tune.flows.reading.study_view import StudyView
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.text import FailureGroup, FailureGroups, counted, format_seconds
from prefect_tune.optimizers.trials.outcome import FailureKind, TrialState

_WHAT_HAPPENED = {
    FailureKind.ERROR: "raised an error",
    FailureKind.TIMEOUT: "timed out",
    FailureKind.MEMORY: "ran out of memory",
    FailureKind.CRASHED: "crashed",
}
_ADVICE = {
    FailureKind.TIMEOUT: "Allow more time, such as --trial-timeout 5m.",
    FailureKind.MEMORY: "Allow more memory, such as --trial-memory 8GB, or run fewer --workers.",
    FailureKind.CRASHED: "The process ended or was killed, often because memory ran out.",
}
_MOST_GROUPS = 20
_MOST_NAMED = 8


def reason_of(group: FailureGroup) -> str:
    """Return how, where and why the trials of a group failed, in one line."""
    where = f" in {group.step}" if group.step else ""
    return f"{_WHAT_HAPPENED[group.kind]}{where}: {_first_line(group)}"


def _first_line(group: FailureGroup) -> str:
    return next(iter(group.message.strip().splitlines()), "no message")


class FailuresPass:
    """Collector that groups failed trials."""

    def __init__(self) -> None:
        self._groups = FailureGroups(has_tracebacks=True)

    def add(self, trial: TrialView) -> None:
        """Take a trial."""
        if trial.state == TrialState.FAILED:
            self._groups.add(trial.number, trial.failure)

    def found(self) -> Sequence[FailureGroup]:
        """Return the groups, the largest first."""
        return self._groups.found()


def retry_command(summary: StudyView, trials: Sequence[int] = ()) -> str:
    """Return the command that retries failed trials, by default all."""
    named = [word for number in trials for word in ("--trial", str(number))]
    words = ["prefect-tune", "retry", summary.study, *named, *summary.store_options]
    return shlex.join(words)


def failures_section(
    groups: Sequence[FailureGroup], summary: StudyView, *, can_retry: bool
) -> Iterator[Section]:
    """Yield the section, if trials failed."""
    if groups:
        parts = [*_parts(groups, summary, can_retry=can_retry)]
        yield Section("failures", "What failed", _finding(groups, summary), parts)


def _finding(groups: Sequence[FailureGroup], summary: StudyView) -> str:
    lost = format_seconds(sum(group.seconds for group in groups))
    of = f"{summary.n_failed:,} of {counted(summary.n_trials, 'trial')} failed ({lost} lost)"
    if len(groups) == 1:
        return f"{of}: they {reason_of(groups[0])}."
    most = f"{len(groups[0].trials):,} {reason_of(groups[0])}"
    return f"{of}, for {counted(len(groups), 'reason')}. The most frequent: {most}."


def _parts(
    groups: Sequence[FailureGroup], summary: StudyView, *, can_retry: bool
) -> Iterator[Part]:
    yield Table.of(
        "Failures by reason",
        groups[:_MOST_GROUPS],
        {
            "kind": lambda group: group.kind,
            "step": lambda group: group.step or "-",
            "message": _first_line,
            "#trials": lambda group: f"{len(group.trials):,}",
            "#lost": lambda group: format_seconds(group.seconds),
        },
        is_open=True,
    )
    for group in groups[:_MOST_GROUPS]:
        is_named = can_retry and len(group.trials) <= _MOST_NAMED
        yield from _group_parts(group, retry_command(summary, group.trials) if is_named else "")
    if can_retry and (len(groups) > 1 or len(groups[0].trials) > _MOST_NAMED):
        yield Command(retry_command(summary), "Retry failed trials.")
    if rest := groups[_MOST_GROUPS:]:
        n = counted(sum(len(group.trials) for group in rest), "trial")
        yield Text([f"and {counted(len(rest), 'other reason')}, of {n} in all"])
        words = ["prefect-tune", "trials", summary.study, "--failed", *summary.store_options]
        yield Command(shlex.join(words), "List failed trials.")


def _group_parts(group: FailureGroup, retry: str) -> Iterator[Part]:
    first = f"{len(group.trials):,} {reason_of(group)}"
    rest = [f"  {line}" for line in group.message.strip().splitlines()[1:11]]
    lost = f"  {listed_trials(group.trials)}; {format_seconds(group.seconds)} lost"
    yield Text([first, *rest, lost])
    if group.traceback:
        yield Details(f"Traceback of trial {group.trials[0]}", group.traceback)
    advice = _ADVICE.get(group.kind, "")
    if retry:
        yield Command(retry, f"Retry them. {advice}")
    elif advice:
        yield Text([f"  {advice}"], is_quiet=True)
