"""Finalists: the best few trials, which are compared again on a second split into folds.

The lowest of hundreds of noisy losses is optimistic. If the model is a single trial, re-evaluating
the best few on a second split corrects for luck.
"""

from collections.abc import Sequence

from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.trials.trial import Trial

_FEW = 5
_CANDIDATES = 20
"""Number of best trials that finalists are selected from."""
_MOST_SHARE = 0.1
"""Largest share of the time budget, or of the full trials, for the re-evaluation."""
_SLACK = 1.25
"""Safety factor of the predicted time."""
_START_SECONDS = 0.5
"""Seconds of overhead per task."""


def picks_single_trial(plan: StudyPlan, optimizer: Optimizer) -> bool:
    """Return whether the final model is the single trial with the lowest loss.

    Constraints rule out `auto` ensembles, and a method that predicts losses chooses by itself.
    """
    best, declared = optimizer.history.incumbent, optimizer.method.ensemble
    if plan.options.ensemble is not None:
        return plan.options.ensemble.kind == "single" and optimizer.incumbent == best
    is_single = declared is None or (declared == "auto" and bool(plan.options.bounds))
    return is_single and best is not None and set(optimizer.weights) == {best.number}


def finalists_of(plan: StudyPlan, optimizer: Optimizer, n_slots: int) -> list[Trial]:
    """Return two to five trials to re-evaluate, best first; none if fewer qualify.

    Re-evaluation may take a tenth of the time budget. Without a time budget, there are at most a
    tenth as many finalists as full trials. Trials with equal fold losses count once.
    """
    if not picks_single_trial(plan, optimizer):
        return []
    history, seconds = optimizer.history, plan.options.budget
    most = _FEW if seconds is not None else min(_FEW, int(_MOST_SHARE * len(history.complete)))
    distinct: dict[tuple[float, ...], Trial] = {}
    for trial in history.best(_CANDIDATES):
        if trial.evaluation is not None:
            distinct.setdefault(tuple(trial.evaluation.fold_losses), trial)
    few: list[Trial] = []
    for trial in distinct.values():
        needed = 0.0 if seconds is None else recheck_seconds([*few, trial], n_slots) / seconds
        if needed <= _MOST_SHARE and len(few) < most:
            few.append(trial)
        elif not few:
            break
    return few if len(few) > 1 else []


def recheck_seconds(few: Sequence[Trial], n_slots: int) -> float:
    """Return the predicted seconds to re-evaluate trials, which run in batches of `n_slots`."""
    costs = [t.evaluation.cost_uncached_seconds for t in few if t.evaluation is not None]
    batches = [costs[start : start + n_slots] for start in range(0, len(costs), n_slots)]
    return sum(_SLACK * max(batch) + _START_SECONDS for batch in batches)
