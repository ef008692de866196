"""The decisions of BAPI for people: its answer, how trainings ended, and advice."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.methods.bapi.curves import LearningCurve
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.trial import Trial

_LEAST_PLANS = 5
_LEAST_RATES = 3


def advice_of(
    curves: Sequence[LearningCurve],
    budget: Budget,
    t_max: int,
    *,
    n_plans: int,
    earlier: Mapping[str, str],
) -> dict[str, str]:
    """Return notes by topic; notes in `earlier` are not changed."""
    notes = dict(earlier)
    rates = [c.rate for c in curves if c.is_iterative and c.rate is not None]
    if len(rates) < _LEAST_RATES:
        return notes
    epoch = median(rates)
    if "dear" not in notes and n_plans >= _LEAST_PLANS and budget.last_ask_seconds:
        look = median(budget.last_ask_seconds)
        if epoch < look:
            notes["dear"] = (
                f"an epoch takes {_milliseconds(epoch)}, less than a look of the planner "
                f"({_milliseconds(look)}): --method hyperband would spend that time on training"
            )
    if "small" not in notes and budget.seconds_left is not None:
        total = budget.seconds_spent + max(budget.seconds_left, 0.0)
        if total < epoch * t_max:
            notes["small"] = (
                f"the budget is less than one full training, which takes about "
                f"{epoch * t_max:.3g} s: no model is trained to its last epoch"
            )
    return notes


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"


def decisions_of(
    curves: Sequence[LearningCurve], memo: Mapping[str, Any], t_max: int
) -> dict[str, Any]:
    """Return epochs trained and spared, how trainings ended, and notes, given the last memo.

    Only trainings ended by a decision spare epochs. Trainings left behind when the budget ended, or
    when better ones were promoted, do not.
    """
    told = [c for c in curves if c.epochs and c.is_iterative]
    last = {str(c.trials[-1].number) for c in told if c.done < t_max}
    verdicts = [verdict for number, verdict in memo.get("verdicts", {}).items() if number in last]
    decided = [c for c in told if str(c.trials[-1].number) in last & set(memo.get("verdicts", {}))]
    spared = sum(t_max - c.done for c in decided)
    ended = len(decided) + sum(c.done >= t_max or bool(c.trouble) for c in told)
    return {
        "t_max": t_max,
        "configurations": len(told),
        "at_once": sum(bool(c.epochs) for c in curves) - len(told),
        "epochs": sum(c.done for c in told),
        "spared": spared,
        "ends": {
            "full": sum(c.done >= t_max for c in told),
            "finished": verdicts.count("finished"),
            "stopped": verdicts.count("stopped"),
            "diverged": sum(bool(c.trouble) for c in told),
            "left": len(told) - ended,
            "failed": sum(c.has_failed for c in curves),
        },
        "thawed": memo.get("thawed", 0),
        "notes": list(memo.get("notes", {}).values()),
    }


_SHARE = 0.18
"""Share of a full training over which losses are averaged."""


def steady_loss(losses: Sequence[float], t_max: int) -> float:
    """Return the least mean of losses over a window of epochs, 18 % of a full training.

    The least of hundreds of losses is optimistic; averaging neighbours reduces that bias. If a
    curve is shorter than the window, the mean of all its losses counts.
    """
    width = min(max(1, round(_SHARE * t_max)), len(losses))
    return float(np.lib.stride_tricks.sliding_window_view(losses, width).mean(axis=1).min())


def best_training(
    curves: Sequence[LearningCurve], history: History, *, is_steady: bool
) -> Trial | None:
    """Return the best trial, by steady losses or by the least loss at any epoch."""
    best: tuple[float, float, int] | None = None
    for curve in curves:
        feasible = [t for t in curve.trials if t.loss is not None and history.violation(t) <= 0]
        if not feasible:
            continue
        trial = min(feasible, key=lambda t: (t.loss, t.number))
        least = trial.loss or 0.0
        longest = max((t.evaluation.curve for t in feasible if t.evaluation), key=len)
        compared = steady_loss(longest or (least,), curve.t_max) if is_steady else least
        ranked = (compared, least, trial.number)
        best = ranked if best is None else min(best, ranked)
    return None if best is None else history[best[2]]
