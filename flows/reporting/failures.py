"""Why trials failed, by reason: the same failure with other numbers is the same reason."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from prefect_tune.flows.study.documents import TrialDocument
from prefect_tune.flows.study.explanations import alike
from prefect_tune.optimizers.trials.outcome import FailureKind, TrialState
from prefect_tune.storage.masking import masked

_LONGEST_MESSAGE = 2_000
"""Characters; `show` has the whole of a longer one."""
_LONGEST_TRACEBACK = 20_000
"""Characters; of a longer one the end is kept, where the reason is."""


@dataclass(slots=True)
class FailureGroup:
    """Trials that failed for the same reason.

    Attributes:
        kind: How they failed.
        step: The step that failed, if known.
        message: Of the first of them, without passwords; of a long one the beginning.
        traceback: Likewise, of a long one the end; empty where there is none.
        trials: Their numbers.
        seconds: What they took in all.
    """

    kind: FailureKind
    step: str | None
    message: str
    traceback: str
    trials: list[int] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(slots=True)
class FailuresPass:
    """Takes trials, and groups those that failed."""

    _groups: dict[tuple[str, str | None, str], FailureGroup] = field(default_factory=dict)

    def add(self, trial: TrialDocument) -> None:
        """Take a trial."""
        if trial.state != TrialState.FAILED:
            return
        failure = trial.document["failure"]
        kind, step = FailureKind(failure["kind"]), failure["step"]
        message = masked(failure["message"])
        message = message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}…"
        reason = kind, step, alike(message)
        if reason not in self._groups:
            traceback = masked(failure.get("traceback", ""))[-_LONGEST_TRACEBACK:]
            self._groups[reason] = FailureGroup(kind, step, message, traceback)
        self._groups[reason].trials.append(trial.number)
        self._groups[reason].seconds += trial.cost_seconds

    def found(self) -> Sequence[FailureGroup]:
        """Return the groups, the largest first."""
        return sorted(self._groups.values(), key=lambda group: -len(group.trials))
