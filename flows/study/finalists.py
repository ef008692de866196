"""Finalists: the best few trials, one of which is chosen by another split of the folds too.

The least of hundreds of noisy losses flatters. Where a study ends in one trial's model, a second
look at the best few tells luck from merit. Light to import: `show` says what came of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefect_tune.flows.study.plan import StudyPlan
    from prefect_tune.optimizers.optimizer import Optimizer
    from prefect_tune.optimizers.trials.trial import Trial


@dataclass(frozen=True, slots=True)
class Look:
    """A finalist, with its losses on two splits.

    Attributes:
        trial: Number of the trial.
        loss: Loss on the split of the search.
        again: Loss on another split; None if the trial failed there.
    """

    trial: int
    loss: float
    again: float | None = None

    @property
    def mean(self) -> float:
        """Mean of both losses; infinite after a failure."""
        return inf if self.again is None else (self.loss + self.again) / 2


_FEW = 5
_CANDIDATES = 20
"""Of the best trials, from which finalists are taken."""
_MOST_SHARE = 0.1
"""Of the seconds of a study, or of its full trials, what looking again may take."""
_SLACK = 1.25
"""Of the time that a second look should take."""
_START_SECONDS = 0.5
"""That a task may take to begin and to end."""


def ends_in_one(plan: "StudyPlan", optimizer: "Optimizer") -> bool:
    """Return whether the final model is that of the trial with the least loss, as it stands.

    Args:
        plan: Has what the user says of ensembles, and the constraints: within them there is none.
        optimizer: May predict losses, and then chooses by itself.
    """
    best, declared = optimizer.history.incumbent, optimizer.method.ensemble
    if plan.options.ensemble is not None:
        return plan.options.ensemble.kind == "single" and optimizer.incumbent == best
    is_single = declared is None or (declared == "auto" and bool(plan.options.bounds))
    return is_single and best is not None and set(optimizer.weights) == {best.number}


def finalists_of(plan: "StudyPlan", optimizer: "Optimizer", n_slots: int) -> "list[Trial]":
    """Return at most five trials to look at again, the best first; none if there are not two.

    Looking again may take a tenth of the seconds of the study; where those are not bounded, there
    are no more finalists than a tenth of the full trials. Of trials with the same losses one does.

    Args:
        plan: Of the study.
        optimizer: Knows the trials.
        n_slots: How many trials run at once.
    """
    if not ends_in_one(plan, optimizer):
        return []
    history, seconds = optimizer.history, plan.options.budget
    most = _FEW if seconds is not None else min(_FEW, int(_MOST_SHARE * len(history.complete)))
    few: list[Trial] = []
    for trial in history.best(_CANDIDATES) if most else ():
        is_dear = seconds is not None and (
            look_seconds([*few, trial], n_slots) > _MOST_SHARE * seconds
        )
        if not few and is_dear:
            return []
        if not is_dear and all(_fold_losses(trial) != _fold_losses(other) for other in few):
            few.append(trial)
        if len(few) == most:
            break
    return few if len(few) > 1 else []


def look_seconds(few: "Sequence[Trial]", n_slots: int) -> float:
    """Return how long looking again at some trials should take at most.

    Args:
        few: The trials, which run in batches.
        n_slots: How many of them run at once.
    """
    costs = [t.evaluation.cost_uncached_seconds for t in few if t.evaluation is not None]
    batches = [costs[start : start + n_slots] for start in range(0, len(costs), n_slots)]
    return sum(_SLACK * max(batch) + _START_SECONDS for batch in batches)


def _fold_losses(trial: "Trial") -> Sequence[float]:
    return () if trial.evaluation is None else trial.evaluation.fold_losses


def chosen_look(looks: Sequence[Look]) -> Look:
    """Return the finalist with the least mean of both losses; the first if that one failed again.

    A failure there, for instance over a limit, is no reason to think less of the best.
    """
    return looks[0] if looks[0].again is None else min(looks, key=lambda look: look.mean)
