"""The gate: whether subsets help to predict full evaluations.

Before each full evaluation its loss is predicted with all results, those on subsets included.
Subsets help if the loss is likelier by these predictions than by a plain guess from the full
evaluations before it; a process of full evaluations alone is one such guess once there are a few.
Subsets that do not help are given up, and taken up again when predictions improve.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.methods.fabolas.rules import RULES


@dataclass(frozen=True, slots=True)
class Prediction:
    """Of one full evaluation.

    Attributes:
        reason: Why it was asked for.
        mean: Of the outcome as it is learned, before it is standardised.
        deviation: Of the outcome, noise included.
        mean_alone: As predicted from full evaluations alone; None with fewer than two.
        deviation_alone: Likewise.
    """

    reason: str
    mean: float
    deviation: float
    mean_alone: float | None = None
    deviation_alone: float | None = None

    def to_json(self) -> list[Any]:
        """Return all fields in order, to nine digits: losses may be tiny, and deviations not 0."""
        return [
            self.reason,
            *(
                None if x is None else float(f"{x:.9g}")
                for x in (self.mean, self.deviation, self.mean_alone, self.deviation_alone)
            ),
        ]

    @classmethod
    def all_of(cls, memo: Mapping[str, Any]) -> "dict[int, Prediction]":
        """Return those kept in a memo, by number of the trial."""
        return {int(number): cls(*fields) for number, fields in memo.get("full", {}).items()}


Array = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Gate:
    """The verdict on subsets.

    Attributes:
        skills: Of each judged evaluation in the order of asking, ln of how much likelier its
            outcome was with subsets than without, within +-2.
    """

    skills: tuple[float, ...]

    @property
    def is_open(self) -> bool:
        """Whether subsets are asked for."""
        is_open = True
        for n in range(RULES.least_judged, len(self.skills) + 1):
            total = sum(self.skills[max(n - RULES.judged, 0) : n])
            needed = RULES.closes if n == RULES.least_judged else RULES.proves
            is_open = total >= (needed if is_open else RULES.opens)
        return is_open

    @property
    def is_proven(self) -> bool:
        """Whether subsets have been of help so far."""
        last = self.skills[-RULES.judged :]
        return len(last) >= RULES.least_judged and sum(last) >= RULES.proves

    @classmethod
    def of(
        cls, predictions: Mapping[int, Prediction], outcomes: Mapping[int, float], spread: float
    ) -> "Gate":
        """Judge predictions by what came out.

        Args:
            predictions: Of full evaluations by number of the trial.
            outcomes: Of full evaluations by number of the trial, in the unit of the predictions,
                those without a prediction included.
            spread: Standard deviation of all losses in that unit.
        """
        skills = []
        for number in sorted(predictions.keys() & outcomes.keys()):
            if number == min(outcomes):
                continue  # nothing to guess from
            before = np.array([y for other, y in outcomes.items() if other < number])
            skill = _skill(predictions[number], outcomes[number], before, spread)
            if predictions[number].deviation > RULES.vague * spread:
                skill = min(skill, 0.0)
            skills.append(min(max(skill, -RULES.most_skill), RULES.most_skill))
        return cls(tuple(skills))


def _skill(prediction: Prediction, outcome: float, before: Array, spread: float) -> float:
    """Return the log density with subsets over that of the better guess without."""
    with_subsets = _log_density(outcome, prediction.mean, prediction.deviation)
    middle = float(before.mean())
    scatter = float(((before - middle) ** 2).sum())
    guesses = [
        _log_density(outcome, middle, ((spread**2 + scatter) / (len(before) + 1)) ** 0.5),
    ]
    if len(before) >= RULES.many_full and prediction.mean_alone is not None:
        surest = max(prediction.deviation_alone or 0.0, RULES.surest * spread)
        guesses.append(_log_density(outcome, prediction.mean_alone, surest))
    return with_subsets - max(guesses)


def _log_density(x: float, mean: float, deviation: float) -> float:
    return -log(deviation) - 0.5 * ((x - mean) / deviation) ** 2
