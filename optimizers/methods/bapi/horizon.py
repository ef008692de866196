"""The plan of the remaining budget: which configurations to train, and which of them next."""

from collections.abc import Callable
from dataclasses import dataclass
from math import floor, inf

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.acquisitions.expected_improvement import log_expected_improvement
from prefect_tune.optimizers.acquisitions.joint_improvement import JointImprovement
from prefect_tune.optimizers.methods.bapi.options import Choice
from prefect_tune.optimizers.surrogates.kernel import Array

__all__ = ["Entry", "Horizon", "chosen_entry"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One configuration of a plan.

    Attributes:
        number: Of the candidate.
        epochs: That it is to be trained for, from its start.
        seconds: That the new ones of them take.
    """

    number: int
    epochs: int
    seconds: float


@dataclass(frozen=True)
class Horizon:
    """A plan as far as the budget reaches (Belakaria et al., algorithms 2 and 4).

    Attributes:
        done: Epochs that each candidate was trained for, shape (m,).
        allowed: Which of them may be planned, shape (m,).
        enough: From a candidate's number to its t_opt, at least its epochs done; None if it cannot
            be trained.
        rates: Seconds of an epoch, shape (m,).
        overheads: From a candidate's number to seconds besides those of epochs.
        least_step: Epochs that are trained at least, unless fewer are left.
        is_divisible: Which of them can be trained for fewer than all epochs, shape (m,).
        t_max: Epochs of a full training.
        most: Entries at most.
        longest: Seconds that one training may take.
    """

    done: NDArray[np.intp]
    allowed: NDArray[np.bool_]
    enough: Callable[[int], int | None]
    rates: Array
    overheads: Callable[[int], float]
    least_step: int
    is_divisible: NDArray[np.bool_]
    t_max: int
    most: int
    longest: float = inf

    def plan(self, improvement: JointImprovement, fallback: Array, budget: float) -> list[Entry]:
        """Return the entries in the order of choosing.

        Args:
            improvement: In which pending trials are chosen already.
            fallback: Ranks candidates where improvements are all 0, shape (m,).
            budget: Seconds that may be spent.
        """
        if budget <= 0:
            return []
        entries: list[Entry] = []
        allowed, can_begin = self.allowed.copy(), self._can_begin(budget)
        left = budget
        while len(entries) < self.most and left > 0:
            eligible = allowed if entries else allowed & can_begin
            if not eligible.any():
                break
            gains = improvement.gains()
            scores = gains if gains[eligible].max() > 0 else fallback
            j = int(np.argmax(np.where(eligible, scores, -inf)))
            allowed[j] = False
            entry = self._entry(j)
            if entry is not None and entry.seconds > self.longest:
                entry = self._clipped(j, self.longest)
            if entry is None:
                continue
            if entry.seconds > left:
                if entries:
                    break
                clipped = self._clipped(j, left)
                if clipped is None:
                    continue
                return [clipped]
            entries.append(entry)
            left -= entry.seconds
            if len(entries) < self.most:
                improvement.choose(j)
        return entries

    def _can_begin(self, budget: float) -> NDArray[np.bool_]:
        """Return which candidates the budget may hold the least of, shape (m,).

        Near its end that is few of them, and t_opt of all others need not be known.
        """
        least = np.where(self.is_divisible, 1, self.t_max - self.done)
        fits: NDArray[np.bool_] = self.rates * least <= min(budget, self.longest)
        return fits

    def _entry(self, j: int) -> Entry | None:
        """Return what to train of a candidate; None if it has had enough."""
        done, enough = int(self.done[j]), self.enough(j)
        if enough is None or (done and enough <= done):
            return None
        epochs = max(enough, min(self.t_max, done + self.least_step))
        if not self.is_divisible[j]:
            epochs = self.t_max
        return Entry(j, epochs, float(self.rates[j]) * (epochs - done) + self.overheads(j))

    def _clipped(self, j: int, left: float) -> Entry | None:
        """Return as many epochs as can be afforded; None if that is not one."""
        done = int(self.done[j])
        n = floor((left - self.overheads(j)) / float(self.rates[j]))
        if n < 1 or not self.is_divisible[j]:
            return None
        return Entry(j, min(done + n, self.t_max), left)


def chosen_entry(
    entries: list[Entry],
    means: Array,
    deviations: Array,
    best: float,
    *,
    choice: Choice,
    spent: float,
) -> int:
    """Return the place of the entry that is run next (sheet, 7.3).

    Args:
        entries: The plan, not empty.
        means: Expected scores after their epochs, shape (k,).
        deviations: Likewise.
        best: Score to improve on.
        choice: By improvement per cost, or cooled by the budget spent (Lee et al. 2020).
        spent: Share of the budget that is spent, which cools the costs.
    """
    power = 1.0 if choice == "per_cost" else 1.0 - spent
    costs = np.maximum([e.seconds for e in entries], 1e-9)
    # Scores are the higher the better, which improvement is the lower the better.
    worth = log_expected_improvement(-means, np.maximum(deviations, 1e-12), -best)
    return int(np.argmax(worth - power * np.log(costs)))
