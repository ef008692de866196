"""Why trials have failed, counted by reason."""

from dataclasses import dataclass, replace

from prefect_tune.flows.flow_run_page.trials_table import reason_of, shortened
from prefect_tune.flows.study.explanations import alike
from prefect_tune.optimizers.trials.trial import Trial

__all__ = ["FailureReason", "FailureReasons"]

_MOST_REASONS = 20
_OTHER = "other reasons"


@dataclass(frozen=True, slots=True)
class FailureReason:
    """A reason that trials have in common.

    Attributes:
        text: The reason, as the last of them has it.
        n_trials: How many they are.
        last: Number of the last one.
        url: Where Prefect shows the task run of that; empty where that is not known.
    """

    text: str
    n_trials: int
    last: int
    url: str


class FailureReasons:
    """The reasons of all failed trials; many different ones are counted together."""

    def __init__(self) -> None:
        self._reasons: dict[str, FailureReason] = {}
        self._of: dict[int, str] = {}

    def add(self, trial: Trial, url: str) -> None:
        """Take a trial that has ended; where it ended before, that failure counts no more."""
        if (former := self._of.pop(trial.number, None)) is not None:
            counted = self._reasons[former]
            self._reasons[former] = replace(counted, n_trials=counted.n_trials - 1)
        if trial.failure is None:
            return
        reason = reason_of(trial)
        key, text = alike(reason), shortened(reason)
        if key not in self._reasons and len(self._reasons) >= _MOST_REASONS:
            key = text = _OTHER
        n_before = self._reasons[key].n_trials if key in self._reasons else 0
        self._reasons[key] = FailureReason(text, n_before + 1, trial.number, url)
        self._of[trial.number] = key

    def all(self) -> list[FailureReason]:
        """Return the reasons, the most frequent first."""
        found = (reason for reason in self._reasons.values() if reason.n_trials)
        return sorted(found, key=lambda reason: (-reason.n_trials, reason.text))
