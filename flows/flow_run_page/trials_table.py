"""Table of trials: the newest, the best and the latest failures."""

from bisect import insort
from collections import deque
from collections.abc import Sequence
from typing import Any

from prefect_tune.flows.flow_run_page.plain_text import cell
from prefect_tune.flows.text import Whole, failure_text, format_seconds, number_text
from prefect_tune.optimizers.trials.objective import Constraint, violation
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.optimizers.trials.trial import Trial

_NEWEST, _BEST, _FAILED = 100, 50, 50
_MESSAGE = 120
"""Maximum characters of a reason."""


class TrialsTable:
    """Trials that have ended, one row each; only trials that meet the constraints count as best."""

    def __init__(self, whole: Whole, constraints: Sequence[Constraint] = ()) -> None:
        self._whole, self._constraints = whole, constraints
        self._newest: deque[int] = deque()
        self._best: list[tuple[float, int]] = []
        self._failed: deque[int] = deque()
        self._rows: dict[int, dict[str, Any]] = {}

    def add(self, trial: Trial, url: str) -> None:
        """Add or update a trial that has ended; `url` of its task run is empty if unknown."""
        if trial.number in self._rows:
            self._best = [(loss, n) for loss, n in self._best if n != trial.number]
            for numbers in (self._newest, self._failed):
                if trial.number in numbers:
                    numbers.remove(trial.number)
        self._rows[trial.number] = self._row(trial, url)
        self._newest.append(trial.number)
        if trial.failure is not None:
            self._failed.append(trial.number)
        elif self._may_lead(trial) and trial.loss is not None:
            insort(self._best, (trial.loss, trial.number))
        self._drop()

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows, newest trials first."""
        return [self._rows[number] for number in sorted(self._rows, reverse=True)]

    def _may_lead(self, trial: Trial) -> bool:
        measured = trial.evaluation.constraints if trial.evaluation else {}
        is_full = trial.state == TrialState.COMPLETE
        return is_full and violation(self._constraints, measured) <= 0

    def _drop(self) -> None:
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

    def _row(self, trial: Trial, url: str) -> dict[str, Any]:
        steps = trial.evaluation.steps if trial.evaluation else ()
        part = self._whole.part(trial.query.to_json())
        state = f"partial ({part})" if trial.state == TrialState.STOPPED else str(trial.state)
        path = [algorithm for algorithm in trial.query.configuration.path if algorithm != "none"]
        failure = shortened(failure_text(trial.failure)) if trial.failure else ""
        return {
            "trial": trial.number,
            "state": state,
            "loss": "" if trial.loss is None else number_text(trial.loss),
            "took": format_seconds(trial.cost_seconds),
            "cached": f"{sum(step.hit for step in steps)}/{len(steps)}" if steps else "",
            "pipeline": cell(" > ".join(path)),
            "failure": cell(failure) if failure else "",
            "task run": url if failure else "",
        }


def shortened(text: str) -> str:
    """Return a reason, truncated to the length of a cell."""
    return text if len(text) <= _MESSAGE else text[: _MESSAGE - 1] + "…"
