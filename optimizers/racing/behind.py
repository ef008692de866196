"""Whether a configuration is clearly behind after a stretch.

What is compared is its loss in that stretch with the incumbent's in the same one: rows that are
hard are so for both. How much of a difference is chance, those that ran on have shown.
"""

from collections.abc import Sequence
from math import sqrt

import numpy as np

from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.outcome import Evaluation

__all__ = ["is_behind", "is_behind_on_part", "margin"]

_LEAST_COMPARED = 3
"""So many besides the incumbent must have run all folds before their spread is trusted."""


def is_behind(first: Evaluation, incumbent: Evaluation, history: History) -> bool:
    """Return whether a configuration is worse on its first fold by more than a margin.

    Before the margin is known, whether it is worse there than the incumbent on its worst fold
    (Bergman, Purucker and Hutter 2024, "Don't Waste Your Time: Early Stopping Cross-Validation",
    arXiv 2405.03389: the forgiving rule, after one fold).

    Args:
        first: Of the first fold.
        incumbent: Of the best configuration, on all folds.
        history: The trials so far.
    """
    known = margin(incumbent, history)
    if known is None:
        return first.fold_losses[0] > max(incumbent.fold_losses)
    return first.fold_losses[0] - incumbent.fold_losses[0] > known


def margin(incumbent: Evaluation, history: History) -> float | None:
    """Return the difference on one fold that is not clearly one; None where too few are known.

    With s the spread over K folds of a configuration's differences to the incumbent, pooled over
    all that ran them, a difference on one fold lies around their mean with standard deviation
    s sqrt(1 - 1/K): that is the margin.

    Args:
        incumbent: Of the best configuration, on all folds.
        history: The trials so far.
    """
    n_folds = len(incumbent.fold_losses)
    others = [
        trial.evaluation.fold_losses
        for trial in history.complete
        if trial.evaluation is not None
        and trial.evaluation is not incumbent
        and len(trial.evaluation.fold_losses) == n_folds
    ]
    if n_folds < 2 or len(others) < _LEAST_COMPARED:
        return None
    differences = np.array(others) - np.array(incumbent.fold_losses)
    spread = sqrt(float(np.mean(np.var(differences, axis=1, ddof=1))))
    return spread * sqrt(1 - 1 / n_folds)


def is_behind_on_part(
    difference: float, incumbent: Evaluation, known: Sequence[tuple[float, float]]
) -> bool:
    """Return whether a configuration is worse on a part of the rows by more than a margin.

    The margin is the root mean square of what a look is off, over those of which both are known:
    it has in it what more rows change. Before three are known, how much worse the incumbent's worst
    fold is than its best; with one fold then nothing is behind.

    Args:
        difference: Of its loss on the part to the incumbent's on the same.
        incumbent: Of the best configuration, on all rows and folds.
        known: The difference to the incumbent on the part, and in all, of each other one that ran
            both.
    """
    if len(known) >= _LEAST_COMPARED:
        looks, wholes = np.array(known).T
        return difference > sqrt(float(np.mean((looks - wholes) ** 2)))
    if len(incumbent.fold_losses) < 2:
        return False
    return difference > max(incumbent.fold_losses) - min(incumbent.fold_losses)
