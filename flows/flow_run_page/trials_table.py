"""The table of trials, with the newest, the best and the last failed, and the failure counts."""

from bisect import insort
from collections import deque
from dataclasses import dataclass
from typing import Any

from prefect_tune.flows.flow_run_page.plain_text import cell
from prefect_tune.flows.study.explanations import alike
from prefect_tune.flows.text import format_seconds
from prefect_tune.optimizers.space.wording import fidelity_text
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.optimizers.trials.trial import Trial

_NEWEST, _BEST, _FAILED = 100, 50, 50
_MESSAGE = 120
"""Characters of a reason, at most."""


class TrialsTable:
    """Trials that have ended, one row each."""

    def __init__(self) -> None:
        self._newest: deque[int] = deque()
        self._best: list[tuple[float, int]] = []
        self._failed: deque[int] = deque()
        self._rows: dict[int, dict[str, Any]] = {}

    def add(self, trial: Trial, url: str) -> None:
        """Take a trial that has ended, perhaps once more.

        Args:
            trial: The trial.
            url: Where Prefect shows its task run; empty where that is not known.
        """
        if trial.number in self._rows:
            self._best = [(loss, n) for loss, n in self._best if n != trial.number]
            for numbers in (self._newest, self._failed):
                if trial.number in numbers:
                    numbers.remove(trial.number)
        self._rows[trial.number] = _row(trial, url)
        self._newest.append(trial.number)
        if trial.failure is not None:
            self._failed.append(trial.number)
        elif trial.state == TrialState.COMPLETE and trial.loss is not None:
            insort(self._best, (trial.loss, trial.number))
        self._drop()

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows, the newest trials first."""
        return [self._rows[number] for number in sorted(self._rows, reverse=True)]

    def _drop(self) -> None:
        """Forget the rows of trials that are neither new nor good nor failed of late."""
        dropped = []
        if len(self._newest) > _NEWEST:
            dropped.append(self._newest.popleft())
        if len(self._best) > _BEST:
            dropped.append(self._best.pop()[1])
        if len(self._failed) > _FAILED:
            dropped.append(self._failed.popleft())
        best = {number for _, number in self._best}
        for number in dropped:
            if number not in best and number not in self._newest and number not in self._failed:
                self._rows.pop(number, None)


def reason_of(trial: Trial) -> str:
    """Return why a trial failed; empty if it has not."""
    if trial.failure is None:
        return ""
    where = f"{trial.failure.step}: " if trial.failure.step else ""
    return where + trial.failure.message


def shortened(text: str) -> str:
    """Return as much of a reason as has room in a row."""
    return text if len(text) <= _MESSAGE else text[: _MESSAGE - 1] + "…"


def _row(trial: Trial, url: str) -> dict[str, Any]:
    steps = trial.evaluation.steps if trial.evaluation else ()
    fidelity = fidelity_text(trial.query.to_json())
    state = f"in part ({fidelity})" if trial.state == TrialState.STOPPED else str(trial.state)
    path = [algorithm for algorithm in trial.query.configuration.path if algorithm != "none"]
    return {
        "trial": trial.number,
        "state": state,
        "loss": "" if trial.loss is None else f"{trial.loss:.4g}",
        "took": format_seconds(trial.cost_seconds),
        "cached": f"{sum(step.hit for step in steps)}/{len(steps)}" if steps else "",
        "pipeline": cell(" > ".join(path)),
        "failure": cell(shortened(reason_of(trial))) if trial.failure else "",
        "task run": url if trial.failure else "",
    }


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
