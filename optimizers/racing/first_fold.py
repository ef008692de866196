"""Whether a configuration is clearly behind after its first fold.

Bergman, Purucker and Hutter, "Don't Waste Your Time: Early Stopping Cross-Validation" (AutoML 2024,
arXiv 2405.03389).
"""

from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.trial import Evaluation

__all__ = ["is_behind"]


def is_behind(first: Evaluation, incumbent: Evaluation, history: History) -> bool:  # noqa: ARG001
    """Return whether it is worse on its first fold than the incumbent on its worst one.

    Args:
        first: Of the first fold.
        incumbent: Of the best configuration, on all folds.
        history: The trials so far.
    """
    return first.fold_losses[0] > max(incumbent.fold_losses)
