"""Why trials failed, by reason, and how to retry them.

The same failure with other numbers in its message is the same reason.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from prefect_tune.deployments.report.page import Command, Details, Part, Section, Table, Text
from prefect_tune.deployments.report.wording import Summary, listed_trials
from prefect_tune.flows.study.documents import TrialDocument
from prefect_tune.flows.study.explanations import alike
from prefect_tune.flows.text import counted, format_seconds
from prefect_tune.optimizers.converter import from_document
from prefect_tune.optimizers.trials.outcome import Failure, FailureKind, TrialState
from prefect_tune.storage.privacy.masking import masked

_LONGEST_MESSAGE = 2_000
"""Characters; `show` has the whole of a longer one."""
_LONGEST_TRACEBACK = 20_000
"""Characters; of a longer one the end is kept, where the reason is."""
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


@dataclass(slots=True)
class FailureGroup:
    """Trials that failed for the same reason.

    Attributes:
        kind: Kind of the failure.
        step: Step that failed, if known.
        message: First message, truncated and with passwords masked.
        traceback: Its traceback, truncated and with passwords masked; empty if there is none.
        trials: Numbers of the trials.
        seconds: Seconds that they took in all.
    """

    kind: FailureKind
    step: str | None
    message: str
    traceback: str
    trials: list[int] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def first_line(self) -> str:
        """The first line of the message."""
        return next(iter(self.message.strip().splitlines()), "no message")

    @property
    def reason(self) -> str:
        """How, where and why the trials failed, in one line."""
        where = f" in {self.step}" if self.step else ""
        return f"{_WHAT_HAPPENED[self.kind]}{where}: {self.first_line}"


class FailuresPass:
    """Takes trials, and groups those that failed."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str | None, str], FailureGroup] = {}

    def add(self, trial: TrialDocument) -> None:
        """Take a trial."""
        if trial.state != TrialState.FAILED:
            return
        failure = from_document(Failure, trial.document["failure"])
        message = masked(failure.message)
        message = message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}…"
        reason = failure.kind, failure.step, alike(message)
        if (group := self._groups.get(reason)) is None:
            traceback = masked(failure.traceback)[-_LONGEST_TRACEBACK:]
            group = FailureGroup(failure.kind, failure.step, message, traceback)
            self._groups[reason] = group
        group.trials.append(trial.number)
        group.seconds += trial.cost_seconds

    def found(self) -> Sequence[FailureGroup]:
        """Return the groups, the largest first."""
        return sorted(self._groups.values(), key=lambda group: -len(group.trials))


def retry_command(summary: Summary, trials: Sequence[int] = ()) -> str:
    """Return the command that retries failed trials, some of them or all."""
    named = [word for number in trials for word in ("--trial", str(number))]
    words = ["prefect-tune", "retry", summary["study"], *named, *summary["store_options"]]
    return shlex.join(words)


def failures_section(
    groups: Sequence[FailureGroup], summary: Summary, *, can_retry: bool
) -> Iterator[Section]:
    """Yield the section, if trials failed."""
    if groups:
        parts = [*_parts(groups, summary, can_retry=can_retry)]
        yield Section("failures", "What failed", _finding(groups, summary), parts)


def _finding(groups: Sequence[FailureGroup], summary: Summary) -> str:
    lost = format_seconds(sum(group.seconds for group in groups))
    of = f"{summary['n_failed']:,} of {counted(summary['n_trials'], 'trial')} failed ({lost} lost)"
    if len(groups) == 1:
        return f"{of}: they {groups[0].reason}."
    most = f"{len(groups[0].trials):,} {groups[0].reason}"
    return f"{of}, for {counted(len(groups), 'reason')}. The most frequent: {most}."


def _parts(groups: Sequence[FailureGroup], summary: Summary, *, can_retry: bool) -> Iterator[Part]:
    yield Table.of(
        "Failures by reason",
        groups[:_MOST_GROUPS],
        {
            "kind": lambda group: group.kind,
            "step": lambda group: group.step or "-",
            "message": lambda group: group.first_line,
            "#trials": lambda group: f"{len(group.trials):,}",
            "#lost": lambda group: format_seconds(group.seconds),
        },
        is_open=True,
    )
    for group in groups[:_MOST_GROUPS]:
        is_named = can_retry and len(group.trials) <= _MOST_NAMED
        yield from _group_parts(group, retry_command(summary, group.trials) if is_named else "")
    if can_retry and (len(groups) > 1 or len(groups[0].trials) > _MOST_NAMED):
        yield Command(retry_command(summary), "Retry all failed trials.")
    if rest := groups[_MOST_GROUPS:]:
        n = counted(sum(len(group.trials) for group in rest), "trial")
        yield Text([f"and {counted(len(rest), 'other reason')}, of {n} in all"])
        words = ["prefect-tune", "trials", summary["study"], "--failed", *summary["store_options"]]
        yield Command(shlex.join(words), "List all failed trials.")


def _group_parts(group: FailureGroup, retry: str) -> Iterator[Part]:
    first = f"{len(group.trials):,} {group.reason}"
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
