"""An ensemble of a study's trials, chosen by their held-out predictions after the search."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from prefect_tune.flows.options.values import EnsembleKind
from prefect_tune.flows.study.retention import BEST_OF_ENSEMBLES
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.text import counted
from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.key import predictions_record
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import load_split
from prefect_tune.tasks.ensembling.choosing import (
    CANDIDATES,
    MOST_PICKS,
    FitLimit,
    Kind,
    best_kind,
    bootstraps_for,
    choose,
    nested_losses,
)
from prefect_tune.tasks.ensembling.held_out import HeldOut
from prefect_tune.tasks.objective.metric import Predictions

_STREAM = 0x656E7365
"""Of the study's seed, apart from all other draws."""
MOST_REFITS = 3
_LITTLE_SECONDS = 1.0
"""What the members of an ensemble of kind `auto` may take to fit: as much as the best trial so many
times, or what nobody notices."""
_TOO_FEW_ROWS = (
    "too few rows are held out to compare kinds of ensembles on rows that none was built on; the "
    "best trial alone is taken"
)
_FEW_ROWS = 30
"""Bootstraps of fewer are so alike, or so wild, that which model wins them says little."""


@dataclass(frozen=True)
class ChosenEnsemble:
    """Members, and the loss of their ensemble on the held-out rows.

    Attributes:
        kind: What it is; single where greedy selection found nothing better than the best trial.
        members: Trials with their weights, the best one alone or the heaviest first.
        losses: Mean over the folds of the loss; of greedy selection, at each size from 1.
        nested: If the kind was chosen, the loss of each kind on rows that it was not built on.
        notes: Notes for the user.
    """

    kind: Kind
    members: tuple[tuple[Trial, float], ...]
    losses: tuple[float, ...]
    nested: Mapping[Kind, float] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=(), compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return all fields but the notes as JSON values, trials by number."""
        return {
            "kind": self.kind,
            "members": [{"trial": t.number, "weight": weight} for t, weight in self.members],
            "losses": list(self.losses),
            "nested": dict(self.nested),
        }


def choose_ensemble(
    study: Study,
    kind: EnsembleKind,
    size: int | None = None,
    restore: Callable[[Sequence[Trial]], None] = lambda _: None,
) -> ChosenEnsemble | None:
    """Choose an ensemble of full trials that meet the constraints.

    Predictions come from the store.

    Args:
        study: The study.
        kind: The best trial alone (`single`); what is picked one by one with replacement among the
            best (`greedy`), or the best alone if that is not better; all of them by how often each
            is the best in bootstraps (`agnostic`); or whichever of these a nested estimate finds
            the best (`auto`).
        size: How many greedy selection picks at most, and never more than there are trials; by
            default 32.
        restore: Makes the predictions of trials again, best first, as far as it can.

    Returns:
        The ensemble, or None when no trial qualifies. The incumbent alone if it is ahead of the
        full trials, of which ensembles are made.
    """
    history = study.optimizer.history
    feasible = sorted(
        (t for t in history.complete if history.violation(t) <= 0),
        key=lambda t: (t.loss, t.number),
    )
    if not feasible:
        return None
    if kind == "single":
        return _alone(feasible[0])
    if (best := study.incumbent) is not None and not best.query.is_full:
        return _alone(best, [f"trial {best.number} is ahead of all full trials"])
    candidates = feasible[: CANDIDATES if kind == "greedy" else BEST_OF_ENSEMBLES]
    restore([trial for trial in candidates if _has_lost_predictions(study, trial)])
    trials, held_out = _held_out(study, candidates)
    notes = _notes(kind, held_out, len(candidates) - len(trials))
    if not trials:
        return _alone(feasible[0], notes)
    picks, bootstraps = min(size or MOST_PICKS, len(feasible)), _bootstraps(study)
    limit = _fit_limit(trials) if kind == "auto" else None
    nested: Mapping[Kind, float] = {}
    built: Kind = "single"
    if kind != "auto":
        built = kind
    elif nested := nested_losses(held_out, picks, bootstraps, _sequence(study, 1), limit=limit):
        built = best_kind(nested)
    else:
        notes.append(_TOO_FEW_ROWS)
    rng = np.random.default_rng(_sequence(study, 0))
    choice = choose(built, held_out, picks, bootstraps, rng, limit=limit)
    is_better = choice.losses[-1] < _loss(feasible[0])  # whose predictions may be gone
    if choice.kind == "single" or (choice.kind == "greedy" and not is_better):
        return _alone(feasible[0], notes, nested)
    members = tuple((trials[i], weight) for i, weight in choice.weights.items())
    return ChosenEnsemble(choice.kind, members, choice.losses, nested, tuple(notes))


def _fit_limit(trials: Sequence[Trial]) -> FitLimit:
    """Return the limit on what members take to fit, each as it took on a fold.

    Args:
        trials: The best one first.
    """
    seconds = np.array([_fold_seconds(trial) for trial in trials])
    return FitLimit(seconds, max(MOST_REFITS * seconds[0], _LITTLE_SECONDS))


def _fold_seconds(trial: Trial) -> float:
    """Return what making all steps of a trial takes on one fold, on average."""
    assert trial.evaluation is not None  # noqa: S101 - it is complete
    steps = trial.evaluation.steps
    return sum(cost.seconds for cost in steps) / max(1, len({cost.fold for cost in steps}))


def _alone(
    best: Trial, notes: Sequence[str] = (), nested: Mapping[Kind, float] = MappingProxyType({})
) -> ChosenEnsemble:
    """Return the best trial alone, whether its predictions are there or not."""
    return ChosenEnsemble("single", ((best, 1.0),), (_loss(best),), nested, tuple(notes))


def _loss(trial: Trial) -> float:
    assert trial.evaluation is not None  # noqa: S101 - it is complete
    return trial.evaluation.loss


def _sequence(study: Study, use: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(study.problem.seed, spawn_key=(_STREAM, use))


def _bootstraps(study: Study) -> Bootstraps:
    """Return the bootstraps of the agnostic ensemble, as large as those of the search."""
    wanted, searched = bootstraps_for(study.problem.find_metric()), study.optimizer.bootstraps
    return wanted if searched is None else Bootstraps(wanted.n, searched.share)


def _notes(kind: EnsembleKind, held_out: HeldOut, n_gone: int) -> list[str]:
    notes, n_rows = [], sum(map(len, held_out.rows))
    if n_gone:
        notes.append(
            f"{counted(n_gone, 'trial')} left out of the ensemble: held-out predictions are gone "
            "or damaged"
        )
    if kind != "greedy" and n_rows < _FEW_ROWS:
        notes.append(
            f"{counted(n_rows, 'row')} held out: bootstraps of fewer than {_FEW_ROWS} say little "
            "about which trial is the best"
        )
    return notes


def _held_out(study: Study, trials: Sequence[Trial]) -> tuple[list[Trial], HeldOut]:
    """Return the trials whose predictions of the held-out rows are there, and these."""
    dataset = load_dataset(study.store, study.problem.dataset)
    split = load_split(study.store, study.problem.split)
    n = len(dataset.classes)
    sizes = [len(split.held_out(fold)) for fold in range(split.n_folds)]
    found = [(t, predictions) for t in trials if (predictions := _predictions(study, t, sizes, n))]
    held_out = HeldOut(
        dataset, split, study.problem.find_metric(), tuple(predictions for _, predictions in found)
    )
    return [trial for trial, _ in found], held_out


def _has_lost_predictions(study: Study, trial: Trial) -> bool:
    assert trial.evaluation is not None  # noqa: S101 - it is complete
    records = study.store.records
    return not all(records.exists(predictions_record(key)) for key in trial.evaluation.predictions)


def _predictions(
    study: Study, trial: Trial, sizes: Sequence[int], n_classes: int
) -> tuple[Predictions, ...]:
    """Return a trial's predictions of the rows of all folds; none if one is gone or damaged."""
    assert trial.evaluation is not None  # noqa: S101 - it is complete
    found = []
    for key in trial.evaluation.predictions:
        try:
            parts = study.store.records.get(predictions_record(key))
        except RecordDamaged:
            return ()
        found.append(Predictions(parts["label"], parts.get("score")))
    is_whole = len(found) == len(sizes) and all(
        predicted.belong_to(size, n_classes) for predicted, size in zip(found, sizes, strict=True)
    )
    return tuple(found) if is_whole else ()
