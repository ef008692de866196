"""When a training has done enough: the epoch near its plateau, and when it will not win."""

from typing import Literal

from prefect_tune.optimizers.surrogates.kernel import Array

__all__ = ["Verdict", "enough_epochs", "verdict"]

Verdict = Literal["goes on", "finished", "stopped"]


def enough_epochs(curve: Array, epsilon: float, done: int = 0) -> int:
    """Return t_opt: the least epoch within epsilon of the loss at the last one (eq. 8).

    Args:
        curve: Expected loss after each epoch, never rising, shape (t_max,).
        epsilon: In the unit of the losses.
        done: Epochs done, which it is not below.
    """
    near = curve <= curve[-1] + epsilon
    return max(int(near.argmax()) + 1, done)


def verdict(
    *,
    done: int,
    target: int,
    mean: float,
    deviation: float,
    deviation_now: float,
    best: float,
    tau: float,
    sure: float,
) -> Verdict:
    """Return whether a training goes on (Belakaria et al., algorithm 5).

    It is stopped if it is not expected to beat the best, and that is certain enough: deviations
    are of predicted observations. The paper's rule, by tau alone, goes on with what is hopeless
    where curves have little noise: nothing to come is then as certain as what was seen.

    Args:
        done: Epochs done.
        target: t_opt.
        mean: Of the score after as many epochs.
        deviation: Likewise.
        deviation_now: Of the score after the epochs done.
        best: Best score of all trials.
        tau: Times `deviation_now` that `deviation` may be at most,
        sure: or deviations that `mean` is behind the best.
    """
    if done >= target:
        return "finished"
    is_certain = deviation <= tau * deviation_now or best - mean >= sure * deviation
    if mean <= best and is_certain:
        return "stopped"
    return "goes on"
