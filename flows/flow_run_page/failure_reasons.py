"""Why trials have failed, counted by reason."""

from dataclasses import dataclass

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
        self._failed: dict[str, dict[int, tuple[str, str]]] = {}
        self._of: dict[int, str] = {}

    def add(self, trial: Trial, url: str) -> None:
        """Take a trial that has ended; where it ended before, that failure counts no more."""
        if (former := self._of.pop(trial.number, None)) is not None:
            del self._failed[former][trial.number]
            if not self._failed[former]:
                del self._failed[former]
        if trial.failure is None:
            return
        reason = reason_of(trial)
        key, text = alike(reason), shortened(reason)
        if key not in self._failed and len(self._failed.keys() - {_OTHER}) >= _MOST_REASONS:
            key = text = _OTHER
        self._failed.setdefault(key, {})[trial.number] = text, url
        self._of[trial.number] = key

    def all(self) -> list[FailureReason]:
        """Return the reasons, the most frequent first."""
        found = []
        for trials in self._failed.values():
            last = next(reversed(trials))
            text, url = trials[last]
            found.append(FailureReason(text, len(trials), last, url))
        return sorted(found, key=lambda reason: (-reason.n_trials, reason.text))
