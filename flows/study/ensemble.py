"""An ensemble of a study's trials, chosen by held-out predictions after the search."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import monotonic, perf_counter
from types import MappingProxyType

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
    ChoiceCosts,
    FitLimit,
    Kind,
    best_kind,
    bootstraps_for,
    choose,
    nested_losses,
)
from prefect_tune.tasks.ensembling.held_out import HeldOut
from prefect_tune.tasks.objective.metric import Predictions
from prefect_tune.tasks.threads import one_thread

_STREAM = 0x656E7365
"""Random stream of the study's seed, separate from all other draws."""
MOST_REFITS = 3
_LITTLE_SECONDS = 1.0
"""Longest fit time of the members of an `auto` ensemble: this multiple of the best trial's time, or
a negligible time if that is longer."""
_TOO_FEW_ROWS = (
    "too few held-out rows to compare kinds of ensembles on rows that none was built on; using the "
    "best trial alone"
)
_FEW_ROWS = 30
"""Minimum number of held-out rows; with fewer, the winners of bootstraps mean little."""


@dataclass(frozen=True)
class ChosenEnsemble:
    """Members, and the loss of their ensemble on the held-out rows.

    Attributes:
        kind: Kind of the ensemble; single if greedy selection found nothing better.
        members: Trials with weights: the best trial alone, or several trials, heaviest first.
        losses: Mean loss over the folds; for greedy selection, one loss per size from 1.
        nested: Loss of each kind on rows it was not built on, if `auto` chose the kind.
    """

    kind: Kind
    members: tuple[tuple[Trial, float], ...]
    losses: tuple[float, ...]
    nested: Mapping[Kind, float] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=(), compare=False)


def choose_ensemble(
    study: Study,
    kind: EnsembleKind,
    size: int | None = None,
    restore: Callable[[Sequence[Trial]], None] = lambda _: None,
    seconds: float = inf,
) -> ChosenEnsemble | None:
    """Choose an ensemble of full trials that meet the constraints, by stored predictions.

    Returns None if no trial qualifies, and the incumbent alone if it is a partial evaluation, since
    ensembles consist of full trials.

    Args:
        study: The study.
        kind: `single` for the best trial; `greedy` for greedy selection with replacement, or the
            best trial if that is not better; `agnostic` for all trials by how often they win
            bootstraps; `auto` for the kind with the best nested estimate.
        size: Maximum picks of greedy selection, 32 by default, and at most the number of trials.
        restore: Recomputes missing predictions of trials, best first, as far as possible.
        seconds: Time for the choice. If a choice among all candidates is predicted to take longer,
            only half, a quarter, ... of them are considered, the best ones.

    Raises:
        TimeoutError: If the choice takes longer nevertheless.
    """
    feasible = study.optimizer.history.best(BEST_OF_ENSEMBLES)
    if not feasible:
        return None
    if (best := study.incumbent) is not None and not best.query.is_full:
        return _alone(best, [f"trial {best.number} is ahead of all full trials"])
    best, candidates = feasible[0], feasible[: CANDIDATES if kind == "greedy" else None]
    n = _affordable(study, kind, size, len(candidates), seconds)
    short = [f"too little time to choose from {len(candidates)} trials; using the best {n}"]
    short, candidates = short if n < len(candidates) else [], candidates[:n]
    if kind == "single" or (short and n == 1):
        return _alone(best, short)
    restore([trial for trial in candidates if _has_lost_predictions(study, trial)])
    until = monotonic() + seconds
    trials, held_out = stored_predictions(study, candidates)
    held_out = replace(held_out, until=until)
    notes = [*short, *_notes(kind, held_out, len(candidates) - len(trials))]
    if not trials:
        return _alone(best, notes)
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
    is_better = choice.losses[-1] < _loss(best)  # may have lost its predictions
    if choice.kind == "single" or (choice.kind == "greedy" and not is_better):
        return _alone(best, notes, nested)
    members = tuple((trials[i], weight) for i, weight in choice.weights.items())
    return ChosenEnsemble(choice.kind, members, choice.losses, nested, tuple(notes))


def _affordable(study: Study, kind: EnsembleKind, size: int | None, n: int, seconds: float) -> int:
    """Return n, half of n and so on: the first number of candidates the time suffices for."""
    while seconds < inf and n > 1 and choosing_seconds(study, kind, size, n) > seconds:
        n //= 2
    return n


def choosing_seconds(
    study: Study, kind: EnsembleKind, size: int | None, n: int | None = None
) -> float:
    """Return the predicted seconds of choosing an ensemble of n trials, by default all.

    The prediction is based on times measured once, on the predictions of the best trial.
    """
    candidates = study.optimizer.history.best(BEST_OF_ENSEMBLES)
    if kind == "single" or not candidates:
        return 0.0
    bootstraps = _bootstraps(study)
    if study.choice_costs is None:
        try:
            with one_thread():
                stored_predictions(study, candidates[:1])  # loads the data
                begun = perf_counter()
                _, held_out = stored_predictions(study, candidates[:1])
                seconds = perf_counter() - begun
                study.choice_costs = ChoiceCosts.measured(held_out, bootstraps, seconds)
        except Exception:  # of any kind, such as too little memory; the choice reports it
            study.choice_costs = ChoiceCosts(0.0, 0.0, 0.0, 0.0)
    n = len(candidates) if n is None else n
    return study.choice_costs.seconds(kind, n, size or MOST_PICKS, bootstraps.n)


def _fit_limit(trials: Sequence[Trial]) -> FitLimit:
    """Return the limit on the fit time of members; `trials` are ordered best first."""
    seconds = np.array([_fold_seconds(trial) for trial in trials])
    return FitLimit(seconds, max(MOST_REFITS * seconds[0], _LITTLE_SECONDS))


def _fold_seconds(trial: Trial) -> float:
    """Return the mean seconds of all steps of a trial on one fold."""
    assert trial.evaluation is not None  # noqa: S101 - it is complete
    steps = trial.evaluation.steps
    return sum(cost.seconds for cost in steps) / max(1, len({cost.fold for cost in steps}))


def _alone(
    best: Trial, notes: Sequence[str] = (), nested: Mapping[Kind, float] = MappingProxyType({})
) -> ChosenEnsemble:
    """Return the best trial alone, with or without stored predictions."""
    return ChosenEnsemble("single", ((best, 1.0),), (_loss(best),), nested, tuple(notes))


def _loss(trial: Trial) -> float:
    assert trial.evaluation is not None  # noqa: S101 - it is complete
    return trial.evaluation.loss


def _sequence(study: Study, use: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(study.problem.seed, spawn_key=(_STREAM, use))


def _bootstraps(study: Study) -> Bootstraps:
    """Return the bootstraps of the agnostic ensemble, with the size used in the search."""
    wanted, searched = bootstraps_for(study.problem.find_metric()), study.optimizer.bootstraps
    return wanted if searched is None else Bootstraps(wanted.n, searched.share)


def _notes(kind: EnsembleKind, held_out: HeldOut, n_gone: int) -> list[str]:
    notes, n_rows = [], sum(map(len, held_out.rows))
    if n_gone:
        notes.append(
            f"{counted(n_gone, 'trial')} excluded from the ensemble: held-out predictions are "
            "missing or damaged"
        )
    if kind != "greedy" and n_rows < _FEW_ROWS:
        notes.append(
            f"only {counted(n_rows, 'row')} held out: bootstraps need at least {_FEW_ROWS} to "
            "tell which trial is the best"
        )
    return notes


def stored_predictions(study: Study, trials: Sequence[Trial]) -> tuple[list[Trial], HeldOut]:
    """Return the trials that have stored held-out predictions, and these predictions."""
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
    """Return a trial's held-out predictions for all folds; none if any is missing or damaged."""
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
