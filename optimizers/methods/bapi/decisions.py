"""Decisions of BAPI that people may want to see, as JSON values."""

from collections.abc import Mapping, Sequence
from typing import Any

from prefect_tune.optimizers.methods.bapi.curves import LearningCurve

__all__ = ["decisions_of"]


def decisions_of(
    curves: Sequence[LearningCurve], memo: Mapping[str, Any], t_max: int
) -> dict[str, Any]:
    """Return epochs trained and spared, how trainings ended, and notes.

    Spared are the epochs of what was ended for a reason; of what was left, as a budget ended or
    better ones went on from the start, nobody knows.

    Args:
        curves: All that were begun.
        memo: Of the last ask; empty before there is one.
        t_max: Epochs of a full training.
    """
    told = [c for c in curves if c.epochs and c.is_iterative]
    last = {str(c.trials[-1].number) for c in told if c.done < t_max}
    verdicts = [said for number, said in memo.get("verdicts", {}).items() if number in last]
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
