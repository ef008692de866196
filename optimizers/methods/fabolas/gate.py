"""Predictions of full evaluations, made before they ran, to be held against what came out.

Whether subsets tell anything of the full data, judged by what was predicted with them.

Before each full evaluation its outcome is predicted with all that is known, subsets included. Their
predictions are worth something if the outcome is likelier by them than by a plain guess from the
full evaluations before it; a process of full evaluations alone is one such guess once there are
a few. Subsets that were no help are given up, and taken up again when predictions get better.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray


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

_LAST = 4
"""Full evaluations that are looked at, the newest."""
_LEAST_JUDGED = 2
_MOST_SKILL = 2.0
"""Of one outcome, in nats, so that none decides alone."""
_CLOSES, _OPENS, _PROVES = 0.5, 2.0, 1.0
_MANY_FULL = 4
"""With so many full evaluations a process of them alone is a guess to be beaten."""
VAGUE = 0.7
"""Deviation of a prediction, in that of all losses, with which it has told nothing."""
_LEAST_SHARE = 0.1
"""Of the spread of losses, that no guess is surer than."""


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
        for n in range(_LEAST_JUDGED, len(self.skills) + 1):
            total = sum(self.skills[max(n - _LAST, 0) : n])
            needed = _CLOSES if n == _LEAST_JUDGED else _PROVES
            is_open = total >= (needed if is_open else _OPENS)
        return is_open

    @property
    def is_proven(self) -> bool:
        """Whether subsets have been of help so far."""
        last = self.skills[-_LAST:]
        return len(last) >= _LEAST_JUDGED and sum(last) >= _PROVES

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
            if predictions[number].deviation > VAGUE * spread:
                skill = min(skill, 0.0)
            skills.append(min(max(skill, -_MOST_SKILL), _MOST_SKILL))
        return cls(tuple(skills))


def _skill(prediction: Prediction, outcome: float, before: Array, spread: float) -> float:
    """Return the log density with subsets over that of the better guess without."""
    with_subsets = _log_density(outcome, prediction.mean, prediction.deviation)
    middle = float(before.mean())
    scatter = float(((before - middle) ** 2).sum())
    guesses = [
        _log_density(outcome, middle, ((spread**2 + scatter) / (len(before) + 1)) ** 0.5),
    ]
    if len(before) >= _MANY_FULL and prediction.mean_alone is not None:
        surest = max(prediction.deviation_alone or 0.0, _LEAST_SHARE * spread)
        guesses.append(_log_density(outcome, prediction.mean_alone, surest))
    return with_subsets - max(guesses)


def _log_density(x: float, mean: float, deviation: float) -> float:
    return -log(deviation) - 0.5 * ((x - mean) / deviation) ** 2
