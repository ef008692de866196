"""Choice of the trials in the final model: a single trial, or an ensemble."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import monotonic, perf_counter

import numpy as np

from prefect_tune.flows.options.values import EnsembleKind, EnsembleRule
from prefect_tune.flows.study.retention import BEST_OF_ENSEMBLES
from prefect_tune.flows.study.study import Study, picks_single_trial
from prefect_tune.flows.wording.text import counted
from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.files import StoreRefused
from prefect_tune.storage.keys import predictions_record
from prefect_tune.storage.masking import masked
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import load_split
from prefect_tune.tasks.final.ensemble import (
    CANDIDATES,
    MOST_PICKS,
    ChoiceCosts,
    FitLimit,
    HeldOut,
    Kind,
    best_kind,
    bootstraps_for,
    choose,
    nested_losses,
    predict_held_out,
    sample,
)
from prefect_tune.tasks.objective.predictions import Predictions
from prefect_tune.tasks.threads import one_thread

_LOGGER = logging.getLogger(__name__)
_STREAM = 0x656E7365
"""Key of the random stream for ensembles, separate from all other streams of the study's seed."""
MOST_REFITS = 3
_LITTLE_SECONDS = 1.0
"""Longest fit time of the members of an `auto` ensemble: this multiple of the best trial's time if
time allows, or a negligible time if that is longer."""

Members = Sequence[tuple[Trial, float]]
"""Trials of a model, and their weights."""


@dataclass(frozen=True)
class ChosenEnsemble:
    """Chosen members of the final model, and the losses of the ensemble on held-out rows.

    Attributes:
        kind: Kind of the ensemble; `method` if the method chose the weights.
        members: Trials with their weights: the best trial alone, or several trials by decreasing
            weight.
        losses: Mean loss of the ensemble over the folds; for greedy selection, one loss for each
            size from 1; empty if no ensemble was considered. If the ensemble was chosen on a sample
            of the held-out rows, all losses but the last are estimates.
        nested: Loss of each kind of ensemble on rows that were not used to build the ensemble, if
            `auto` chose the kind.
        notes: Notes for the user on the choice.
    """

    kind: str
    members: tuple[tuple[Trial, float], ...]
    losses: tuple[float, ...] = ()
    nested: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def alone(cls, best: Trial, *notes: str) -> "ChosenEnsemble":
        """Return the choice of a single trial, which needs no stored predictions."""
        return cls("single", ((best, 1.0),), notes=notes)


def ensemble_rule(study: Study) -> EnsembleRule | None:
    """Return the user's ensemble rule; if the user gave none, the rule that the method declares."""
    declared, options = study.optimizer.method.ensemble, study.plan.options
    # An ensemble could be too slow or too large for the constraints.
    if declared == "auto" and options.bounds:
        declared = None
    return options.ensemble or (EnsembleRule(declared) if declared else None)


def choose_members(
    study: Study, best: Trial, seconds: float, most_refits: int = MOST_REFITS
) -> ChosenEnsemble:
    """Choose the members of the final model. If the choice fails, use the best trial alone."""
    rule = ensemble_rule(study)
    if picks_single_trial(study.plan, study.optimizer):
        return ChosenEnsemble.alone(best)
    if rule is None:
        weights = study.optimizer.weights or {best.number: 1.0}
        numbers = sorted(weights, key=lambda number: (-weights[number], number))
        members = tuple((study.trials[number], weights[number]) for number in numbers)
        return ChosenEnsemble("method" if len(members) > 1 else "single", members)
    try:
        with one_thread():
            return choose_ensemble(
                study, best, rule.kind, rule.size, seconds, most_refits=most_refits
            )
    except (StoreLost, StoreRefused):
        raise
    except Exception as error:  # any class, for example too little memory
        _LOGGER.warning("no ensemble could be chosen", exc_info=True)
        reason = masked(f"{type(error).__name__}: {error}".split("\n", 1)[0])
        return ChosenEnsemble.alone(best, f"no ensemble could be chosen: {reason}")


def choose_ensemble(
    study: Study,
    best: Trial,
    kind: EnsembleKind,
    size: int | None = None,
    seconds: float = inf,
    *,
    most_refits: int = MOST_REFITS,
) -> ChosenEnsemble:
    """Choose an ensemble of full trials that meet the constraints, from stored predictions.

    Args:
        study: The study that has ended its search.
        best: The incumbent. A partial trial is used alone, because ensembles consist of full
            trials.
        kind: Kind of ensemble: `single` for the best trial; `greedy` for greedy selection with
            replacement, or the best trial if the selection is not better; `agnostic` for trials
            weighted by how often each is best in bootstrap samples; `auto` for the kind with the
            best nested estimate.
        size: Maximum number of picks in greedy selection; by default 32, or the number of trials if
            smaller.
        seconds: Time limit of the choice. If choosing among all candidates would take longer, only
            the best half, quarter, and so on is considered.
        most_refits: Longest fit time of the members of an `auto` ensemble, as a multiple of the
            best trial's time.

    Raises:
        TimeoutError: If the choice exceeds its time limit.
    """
    feasible = study.optimizer.history.best(BEST_OF_ENSEMBLES)
    if kind == "single":
        return ChosenEnsemble.alone(best)
    if not feasible or not best.query.is_full:
        return ChosenEnsemble.alone(best, f"no ensemble: the best trial, {best.number}, is partial")
    notes, candidates = [], feasible[: CANDIDATES if kind == "greedy" else None]
    n = len(candidates)
    while seconds < inf and n > 1 and choosing_seconds(study, kind, size, n) > seconds:
        n //= 2
    if n < len(candidates):
        notes.append(f"too little time to choose from {len(candidates)} trials; using the best {n}")
        if n == 1:
            return ChosenEnsemble.alone(best, *notes)
    until = monotonic() + seconds
    trials, whole = stored_predictions(study, candidates[:n])
    few = _sample(study, whole)
    held_out = replace(few, until=until)
    if n_gone := n - len(trials):
        notes.append(
            f"{counted(n_gone, 'trial')} excluded from the ensemble: held-out predictions are "
            "missing or damaged"
        )
    if not trials:
        return ChosenEnsemble.alone(best, *notes)
    picks, bootstraps = min(size or MOST_PICKS, len(feasible)), _bootstraps(study)
    limit: FitLimit | None = None
    nested: Mapping[Kind, float] = {}
    built: Kind = "single"
    if kind != "auto":
        built = kind
    else:
        fits = np.array([fold_seconds(trial) for trial in trials])
        limit = FitLimit(fits, max(most_refits * fits[0], _LITTLE_SECONDS))
        nested = nested_losses(held_out, picks, bootstraps, _seeds(study, 1), limit=limit)
        if nested:
            built = best_kind(nested)
        else:
            notes.append(
                "too few held-out rows to compare ensembles on rows not used to build them; using "
                "the best trial alone"
            )
    rng = np.random.default_rng(_seeds(study, 0))
    choice = choose(built, held_out, picks, bootstraps, rng, limit=limit)
    first = feasible[0].loss  # the trial's predictions may be lost
    losses = choice.losses
    if few is not whole:  # the last loss is of all held-out rows
        loss = float(whole.fold_losses(predict_held_out(choice, whole)).mean())
        losses = tuple(other + loss - losses[-1] for other in losses)
    is_better = first is None or losses[-1] < first
    found = ChosenEnsemble.alone(best)
    if choice.kind != "single" and (choice.kind != "greedy" or is_better):
        found = ChosenEnsemble(
            choice.kind, tuple((trials[i], w) for i, w in choice.weights.items())
        )
    losses = losses if found.kind != "single" or first is None else (first,)
    return replace(
        found, losses=losses, nested=dict[str, float](nested.items()), notes=tuple(notes)
    )


def choosing_seconds(
    study: Study, kind: EnsembleKind, size: int | None, n: int | None = None
) -> float:
    """Predict the time to choose an ensemble among n trials, by default all trials.

    The estimate is based on one measurement with the predictions of the best trial.
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
                held_out = _sample(study, stored_predictions(study, candidates[:1])[1])
                seconds = perf_counter() - begun
                study.choice_costs = ChoiceCosts.measured(held_out, bootstraps, seconds)
        except Exception:  # any class; the choice itself reports the error
            study.choice_costs = ChoiceCosts(0.0, 0.0, 0.0)
    picks = min(size or MOST_PICKS, len(candidates))
    n = len(candidates) if n is None else n
    return study.choice_costs.seconds(kind, n, picks, bootstraps.n)


def fold_seconds(trial: Trial) -> float:
    """Estimate the time that one fold of a trial would take on all rows."""
    if trial.evaluation is None:
        return 0.0
    n_folds = max(1, len(trial.evaluation.fold_losses))
    return trial.evaluation.cost_uncached_seconds / n_folds / trial.query.subset


def _sample(study: Study, held_out: HeldOut) -> HeldOut:
    return sample(held_out, np.random.default_rng(_seeds(study, 2)))


def _seeds(study: Study, use: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(study.problem.seed, spawn_key=(_STREAM, use))


def _bootstraps(study: Study) -> Bootstraps:
    """Return the bootstraps of the agnostic ensemble, with the search's sample size, if any."""
    wanted, searched = bootstraps_for(study.problem.find_metric()), study.optimizer.bootstraps
    return wanted if searched is None else Bootstraps(wanted.n, searched.share)


def stored_predictions(study: Study, trials: Sequence[Trial]) -> tuple[list[Trial], HeldOut]:
    """Return the trials that have stored held-out predictions, and these predictions."""
    dataset = load_dataset(study.store, study.problem.dataset)
    split = load_split(study.store, study.problem.split)
    found: list[tuple[Trial, tuple[Predictions, ...]]] = []
    for trial in trials:
        keys = () if trial.evaluation is None else trial.evaluation.predictions
        try:
            parts = [study.store.records.get(predictions_record(key)) for key in keys]
        except RecordDamaged:
            continue
        held_out = tuple(Predictions(part["label"], part.get("score")) for part in parts)
        if len(held_out) == split.n_folds:
            found.append((trial, held_out))
    metric = study.problem.find_metric()
    of_trials = tuple(predictions for _, predictions in found)
    return [trial for trial, _ in found], HeldOut(dataset, split, metric, of_trials)
