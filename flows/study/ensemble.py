"""An ensemble of a study's trials, chosen by their held-out predictions after the search."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.record_ids import predictions_record
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import load_split
from prefect_tune.tasks.ensembling import blend, greedy_picks, shares, weights_of
from prefect_tune.tasks.objective.metric import Predictions

__all__ = ["ChosenEnsemble", "choose_ensemble"]

_CANDIDATES = 32
"""How many of the best trials may become members (Ram et al. 2020, appendix 8)."""


@dataclass(frozen=True)
class ChosenEnsemble:
    """Members, and the loss of their ensemble on the held-out rows.

    Attributes:
        members: Trials with their weights, the best one alone first.
        losses: Mean over the folds of the ensemble's loss at each size, from 1.
    """

    members: tuple[tuple[Trial, float], ...]
    losses: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Return trials, weights and losses as JSON values."""
        return {
            "members": [{"trial": t.number, "weight": weight} for t, weight in self.members],
            "losses": list(self.losses),
        }


def choose_ensemble(study: Study, size: int) -> ChosenEnsemble | None:
    """Select greedily, with replacement, among the best full trials that meet the constraints.

    Predictions come from the store; nothing is trained.

    Args:
        study: The study.
        size: How many to pick; at most as many as there are trials.

    Returns:
        The ensemble, or None when no trial qualifies, or none is better than the best full trial
        alone.
    """
    history = study.optimizer.history
    feasible = [t for t in history.complete if history.violation(t) <= 0]
    found, best = [], history.incumbent
    for trial in sorted(feasible, key=lambda t: (t.loss, t.number))[:_CANDIDATES]:
        contributed = _held_out(study, trial)
        if contributed is not None:
            found.append((trial, contributed))
    if not found or best is None or best.loss is None:
        return None
    loss = _Loss(study)
    picks, losses = greedy_picks([c for _, c in found], loss, min(size, len(feasible)))
    if losses[-1] >= best.loss:
        return None
    members = tuple((found[i][0], weight) for i, weight in weights_of(picks).items())
    return ChosenEnsemble(members, tuple(losses))


class _Loss:
    """Mean over the folds of the study's metric, of predictions of all held-out rows."""

    def __init__(self, study: Study) -> None:
        self._metric = study.problem.find_metric()
        self._dataset = load_dataset(study.store, study.problem.dataset)
        split = load_split(study.store, study.problem.split)
        self._rows = [split.held_out(fold) for fold in range(split.n_folds)]

    def __call__(self, mean: NDArray[np.float64]) -> float:
        n_classes, start, losses = len(self._dataset.classes), 0, []
        for rows in self._rows:
            predicted = blend(mean[start : start + len(rows)], n_classes)
            losses.append(self._metric.loss(self._dataset.y[rows], predicted, n_classes))
            start += len(rows)
        return float(np.mean(losses))


def _held_out(study: Study, trial: Trial) -> NDArray[np.float64] | None:
    """Return what a trial contributes on the held-out rows of all folds; None if it is gone."""
    n_classes = len(load_dataset(study.store, study.problem.dataset).classes)
    folds = []
    for key in trial.evaluation.predictions if trial.evaluation else ():
        try:
            parts = study.store.records.get(predictions_record(key))
        except RecordDamaged:
            return None
        folds.append(shares(Predictions(parts["label"], parts.get("score")), n_classes))
    return np.concatenate(folds) if folds else None
