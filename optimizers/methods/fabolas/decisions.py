"""The gate on subsets, the ranking by predicted loss on all rows, and decisions for people.

The gate decides whether subsets help to predict full evaluations. The loss of each full evaluation
is predicted beforehand, from all results including subsets. Subsets help if the observed loss is
likelier under these predictions than under a guess from earlier full evaluations alone. The guess
is their distribution or, once there are a few, a process of them. If subsets do not help, they are
dropped until predictions improve.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import exp, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.methods.fabolas.belief import SubsetBelief
from prefect_tune.optimizers.methods.fabolas.observations import SubsetObservations
from prefect_tune.optimizers.methods.fabolas.recipe import Sizes
from prefect_tune.optimizers.methods.fabolas.rules import RULES
from prefect_tune.optimizers.space.candidate_space import Candidates
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.unit_interval import Array
from prefect_tune.optimizers.surrogates.pipeline_inputs import PipelineInputs
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.optimizers.trials.trial import Trial


@dataclass(frozen=True, slots=True)
class Prediction:
    """Prediction of one full evaluation before standardisation, noise included, and its reason."""

    reason: str
    mean: float
    deviation: float
    mean_alone: float | None = None
    deviation_alone: float | None = None

    def to_json(self) -> list[Any]:
        """Return all fields in order, with nine digits, so that tiny values do not become 0."""
        return [
            self.reason,
            *(
                None if x is None else float(f"{x:.9g}")
                for x in (self.mean, self.deviation, self.mean_alone, self.deviation_alone)
            ),
        ]

    @classmethod
    def all_of(cls, memo: Mapping[str, Any]) -> "dict[int, Prediction]":
        """Return the predictions in a memo, by number of the trial."""
        return {int(number): cls(*fields) for number, fields in memo.get("full", {}).items()}


@dataclass(frozen=True, slots=True)
class Gate:
    """The verdict on subsets.

    `skills` are log likelihood ratios of judged outcomes (with subsets over without), clipped to
    +-2.
    """

    skills: tuple[float, ...]

    @property
    def is_open(self) -> bool:
        """Whether subsets may be requested."""
        is_open = True
        for n in range(RULES.least_judged, len(self.skills) + 1):
            total = sum(self.skills[max(n - RULES.judged, 0) : n])
            needed = RULES.closes if n == RULES.least_judged else RULES.proves
            is_open = total >= (needed if is_open else RULES.opens)
        return is_open

    @property
    def is_proven(self) -> bool:
        """Whether subsets have helped so far."""
        last = self.skills[-RULES.judged :]
        return len(last) >= RULES.least_judged and sum(last) >= RULES.proves

    @classmethod
    def of(
        cls, predictions: Mapping[int, Prediction], outcomes: Mapping[int, float], spread: float
    ) -> "Gate":
        """Judge predictions of full evaluations by their outcomes, both by number of the trial.

        Outcomes, and the standard deviation `spread` of all losses, are in the unit of the
        predictions.
        """
        skills = []
        for number in sorted(predictions.keys() & outcomes.keys()):
            if number == min(outcomes):
                continue  # no earlier outcome to guess from
            before = np.array([y for other, y in outcomes.items() if other < number])
            skill = _skill(predictions[number], outcomes[number], before, spread)
            if predictions[number].deviation > RULES.vague * spread:
                skill = min(skill, 0.0)
            skills.append(min(max(skill, -RULES.most_skill), RULES.most_skill))
        return cls(tuple(skills))


def _skill(prediction: Prediction, outcome: float, before: Array, spread: float) -> float:
    with_subsets = _log_density(outcome, prediction.mean, prediction.deviation)
    middle = float(before.mean())
    scatter = float(((before - middle) ** 2).sum())
    guesses = [_log_density(outcome, middle, ((spread**2 + scatter) / (len(before) + 1)) ** 0.5)]
    if len(before) >= RULES.many_full and prediction.mean_alone is not None:
        surest = max(prediction.deviation_alone or 0.0, RULES.surest * spread)
        guesses.append(_log_density(outcome, prediction.mean_alone, surest))
    return with_subsets - max(guesses)


def _log_density(x: float, mean: float, deviation: float) -> float:
    return -log(deviation) - 0.5 * ((x - mean) / deviation) ** 2


@dataclass(frozen=True, slots=True)
class AnswerStanding:
    """Configurations with a loss that did not fail on all rows, the best first.

    Each has its trial on the most rows, the earliest among equals. Standardised predicted losses at
    s = 1, and deviations of the function there, have shape (n,).
    """

    trials: tuple[Trial, ...]
    candidates: Candidates
    mean: Array
    deviation: Array

    @classmethod
    def of(
        cls,
        belief: SubsetBelief,
        seen: SubsetObservations,
        inputs: PipelineInputs,
        history: History,
        kappa: float,
    ) -> "AnswerStanding":
        """Rank by predicted mean plus kappa deviations; the paper's kappa is 0 (section 3.2)."""
        rows = _of_each(seen, history)
        at_one = inputs.at(seen.candidates[rows], 1.0)
        known = belief.knows(at_one)
        rows, at_one = rows[known], at_one[known]
        mean, deviation = belief.predict(at_one)
        order = np.argsort(mean + kappa * deviation, kind="stable")
        rows = rows[order]
        return cls(
            tuple(seen.trials[i] for i in rows),
            seen.candidates[rows],
            mean[order],
            deviation[order],
        )

    def __len__(self) -> int:
        return len(self.trials)


def _of_each(seen: SubsetObservations, history: History) -> NDArray[np.intp]:
    failed = {t.query.configuration for t in history.failed if t.query.is_full}
    best: dict[Configuration, int] = {}
    for i, trial in enumerate(seen.trials):
        configuration = trial.query.configuration
        if trial.loss is None or configuration in failed or history.violation(trial) > 0:
            continue
        before = best.get(configuration)
        if before is None or trial.query.subset > seen.trials[before].query.subset:
            best[configuration] = i
    return np.array(list(best.values()), dtype=np.intp)


_HELPLESS = "they did not help to predict full evaluations"


def decisions_of(
    history: History, sizes: Sizes, memo: Mapping[str, Any], *, is_log: bool
) -> dict[str, Any]:
    """Return sizes evaluated, the gate, models by probability, confirmations and notes."""
    told = [(t.query.subset, t.state) for t in history if t.is_told]
    shares = [share for share in sizes.shares if any(share == at for at, _ in told)]
    confirmations = list(_confirmations(history, memo, is_log=is_log))
    notes = [sizes.note] if sizes.note else []
    if history.stopped and not history.complete:
        notes.append("no configuration was evaluated on all rows: the best one is a prediction")
    elif history.stopped and "full" in memo and all(c["loss"] is None for c in confirmations):
        notes.append("the budget ended before the predicted best was confirmed on all rows")
    failures = [t.failure for t in history.failed if t.query.is_full]
    n_cut = sum(f is not None and f.kind.grows_with_rows for f in failures)
    if history.stopped and n_cut:
        notes.append(
            f"{n_cut} of the full evaluations exceeded a limit of the trial: "
            "a larger --trial-timeout or --trial-memory would confirm more of the best"
        )
    is_closed = bool(memo.get("closed"))
    return {
        "n_sizes": len(sizes.shares),
        "sizes": [
            {
                "share": share,
                "runs": sum(at == share for at, _ in told),
                "failed": told.count((share, TrialState.FAILED)),
            }
            for share in shares
        ],
        "gate": {
            "state": "none" if sizes.is_single else "closed" if is_closed else "open",
            "reason": _HELPLESS if is_closed else sizes.note if sizes.is_single else "",
        },
        "algorithms": dict(memo.get("models", {})),
        "confirmations": confirmations,
        "notes": notes,
    }


def _confirmations(
    history: History, memo: Mapping[str, Any], *, is_log: bool
) -> Iterator[dict[str, Any]]:
    def learned(loss: float) -> float:
        return log(max(loss, RULES.least_loss)) if is_log else loss

    for number, prediction in Prediction.all_of(memo).items():
        if prediction.reason != "confirm" or number not in history:
            continue
        mean, deviation = prediction.mean, prediction.deviation
        predicted = exp(mean) if is_log else mean
        width = predicted * deviation if is_log else deviation
        loss = history[number].loss
        yield {
            "trial": number,
            "predicted": predicted,
            "deviation": width,
            "loss": loss,
            "state": str(history[number].state),
            "disagrees": loss is not None
            and abs(learned(loss) - mean) > RULES.unlikely * deviation,
        }
