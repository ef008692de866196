"""The gate, which decides whether subsets are used, and the decisions of a study.

Before each full evaluation, its loss is predicted from all results, including those on subsets. The
gate stays open if the observed losses are more likely under these predictions than under the
distribution of earlier full evaluations. After the gate has closed, the study learns from full
evaluations alone.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import exp, log
from typing import Any

import numpy as np

from prefect_tune.optimizers.methods.fabolas.rules import RULES
from prefect_tune.optimizers.methods.fabolas.subsets import Sizes
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.outcome import TrialState


@dataclass(frozen=True, slots=True)
class Prediction:
    """Prediction of the loss of one full evaluation, on the scale of `LossScale`.

    Attributes:
        reason: Reason for the evaluation: confirm, verify or search.
        mean: Mean of the prediction.
        deviation: Standard deviation of the prediction, including noise.
    """

    reason: str
    mean: float
    deviation: float

    def to_json(self) -> list[Any]:
        """Return all fields in order, with nine significant digits."""
        return [self.reason, *(float(f"{x:.9g}") for x in (self.mean, self.deviation))]

    @classmethod
    def all_of(cls, memo: Mapping[str, Any]) -> "dict[int, Prediction]":
        """Return the predictions in a memo, by trial number."""
        return {int(number): cls(*fields) for number, fields in memo.get("full", {}).items()}


def skills_of(
    predictions: Mapping[int, Prediction], outcomes: Mapping[int, float], spread: float
) -> list[float]:
    """Return the log likelihood ratio of each outcome, predicted with versus without subsets.

    `predictions` and `outcomes` of full evaluations are keyed by trial number. `spread` is the
    standard deviation of all losses.
    """
    found = []
    for number in sorted(predictions.keys() & outcomes.keys()):
        before = np.array([y for other, y in outcomes.items() if other < number])
        if len(before):
            y, predicted = outcomes[number], predictions[number]
            scatter = float(((before - before.mean()) ** 2).sum())
            deviation = ((spread**2 + scatter) / (len(before) + 1)) ** 0.5
            guess = _log_density(y, float(before.mean()), deviation)
            skill = _log_density(y, predicted.mean, predicted.deviation) - guess
            if predicted.deviation > RULES.vague * spread:
                skill = min(skill, 0.0)
            found.append(min(max(skill, -RULES.most_skill), RULES.most_skill))
    return found


def _log_density(x: float, mean: float, deviation: float) -> float:
    return -log(deviation) - 0.5 * ((x - mean) / deviation) ** 2


def is_open(skills: list[float]) -> bool:
    """Return whether subsets may be used; always true with fewer than two outcomes."""
    return len(skills) < 2 or sum(skills[-RULES.judged :]) >= RULES.least_skill


def decisions_of(
    history: History, sizes: Sizes, memo: Mapping[str, Any], floor: float | None
) -> dict[str, Any]:
    """Return the decisions of a study, as JSON values.

    The decisions are the evaluated sizes, the state of the gate, the probability of each model, the
    confirmations and the notes. `floor` is the floor of `LossScale`.
    """
    told = [(sizes.nearest(sizes.s(t.query.subset)), t.state) for t in history if t.is_told]
    runs = Counter(share for share, _ in told)
    confirmations = list(_confirmations(history, memo, floor))
    notes = [sizes.note] if sizes.note else []
    if history.stopped and not history.complete:
        notes.append("no trial was a full evaluation, so the best configuration is only predicted")
    elif history.stopped and memo.get("full") and all(c["loss"] is None for c in confirmations):
        notes.append("the budget ended before the best configurations were confirmed on all rows")
    state, reason = "open", ""
    if sizes.is_single:
        state, reason = "none", sizes.note
    elif memo.get("closed"):
        state, reason = "closed", "subsets did not help to predict full evaluations"
    return {
        "n_sizes": len(sizes.shares),
        "sizes": [
            {"share": s, "runs": runs[s], "failed": told.count((s, TrialState.FAILED))}
            for s in sizes.shares
            if runs[s]
        ],
        "gate": {"state": state, "reason": reason},
        "algorithms": dict(memo.get("models", {})),
        "confirmations": confirmations,
        "notes": notes,
    }


def _confirmations(
    history: History, memo: Mapping[str, Any], floor: float | None
) -> Iterator[dict[str, Any]]:
    for number, prediction in Prediction.all_of(memo).items():
        if prediction.reason != "confirm" or number not in history:
            continue
        mean, deviation = prediction.mean, prediction.deviation
        predicted = mean if floor is None else floor * exp(mean)
        loss = history[number].loss
        came = loss if loss is None or floor is None else log(max(loss, floor) / floor)
        yield {
            "trial": number,
            "predicted": predicted,
            "deviation": deviation if floor is None else predicted * deviation,
            "loss": loss,
            "state": str(history[number].state),
            "disagrees": came is not None and abs(came - mean) > 2 * deviation,
        }
