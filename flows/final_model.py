"""The final model of a study: what the search has chosen, fitted on all training rows and stored.

Only then it is scored on the test rows.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import inf
from typing import Any

from prefect_tune.flows.options.values import EnsembleRule
from prefect_tune.flows.progress import Observer
from prefect_tune.flows.reevaluation import restore_predictions
from prefect_tune.flows.refitting import (
    OutOfTime,
    Weighted,
    average_folds,
    can_average_folds,
    folds_of,
    member_of,
    refit_model,
    refit_seconds,
    score_model,
    scoring_seconds,
    subset_in_time,
)
from prefect_tune.flows.study.ensemble import MOST_REFITS, ChosenEnsemble, choose_ensemble
from prefect_tune.flows.study.explanations import most_frequent_failure, nearest_miss
from prefect_tune.flows.study.finalists import ends_in_one, finalists_of, look_seconds
from prefect_tune.flows.study.next_best import NextBest, ranked_trials
from prefect_tune.flows.study.study import Study, StudyFailed
from prefect_tune.flows.text import LossWords, counted, format_seconds
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.files import StoreRefused
from prefect_tune.storage.key import model_record
from prefect_tune.storage.masking import masked
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.final_model import RefitFailed
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.threads import one_thread

_LOGGER = logging.getLogger(__name__)


def fit_final_model(
    study: Study,
    running: DaskTrials,
    context: StudyContext,
    observer: Observer,
    seconds_left: Callable[[], float] = lambda: inf,
) -> None:
    """Fit and store the incumbent or an ensemble, then score it; skip what is done already.

    If that cannot be refitted, kept and read back, the next best trial is used (see `next_best`).
    If the time does not suffice for a refit, a trial that ran on a part of the rows is fitted on as
    large a part as the time allows. Else the model is the mean of the models of the folds where
    there may be one (see `can_average_folds`), and elsewhere the refit takes its time, on as many
    rows as the trial ran on.
    No choice depends on the test rows: whatever goes wrong there leaves the stored model in place.

    Args:
        study: A study whose search has ended.
        running: Workers to fit on.
        context: The study, for the workers.
        observer: Follows the study.
        seconds_left: Says how many seconds are left for it.

    Raises:
        StudyFailed: If nothing was evaluated, or no trial can be refitted.
        StoreLost: If the store cannot go on.
    """
    incumbent = _incumbent(study)
    restore = partial(restore_predictions, study, running, context, observer)
    choice = _choice(study, incumbent, restore)
    is_short = study.result.get("of_folds") or study.result.get("fitted_subset", 1.0) < 1
    if not is_short and _is_replaced(study, choice):
        if not _is_scored(study):
            _score(study, running, context, observer)
        return
    if not is_short and _is_fitted(study, choice, incumbent):
        study.set_result(ensemble=choice.ensemble)
        if not _is_scored(study):
            _score(study, running, context, observer)
        return
    for text in _notes(study, choice):
        observer.note(text)
    refits = _Refits(study, running, context, observer, seconds_left)
    fitted, seconds, failures = _fitted(refits, choice)
    study.set_result(
        members=fitted.members,
        of_folds=refits.are_of_folds,
        fitted_subset=refits.subset,
        single_best=fitted.single_best(incumbent).number,
        ensemble=fitted.ensemble,
        refit_seconds=seconds,
        instead_of={**_attempt(study, choice), "failures": failures} if failures else None,
        is_scored=False,
        **_NOT_TESTED,
    )
    done = "averaged" if refits.are_of_folds else "fitted"
    observer.note(f"final model saved ({done} in {format_seconds(seconds)})")
    _score(study, running, context, observer)


def ending_seconds(study: Study, n_slots: int, most_seconds: float) -> float:
    """Return the seconds that follow the search: a second look, the final model, and its scores.

    An ensemble of kind `auto` takes as long to fit as the best trial several times at most, and so
    is any other taken to. Where that is more than there may be, fewer rows are fitted, or the mean
    of the folds is made.

    Args:
        study: A study whose search is under way.
        n_slots: How many trials run at once.
        most_seconds: The most that may follow.
    """
    best, plan, optimizer = study.incumbent, study.plan, study.optimizer
    if best is None:
        return _AFTER_SECONDS
    few = finalists_of(plan, optimizer, n_slots)
    members = [best] * (1 if ends_in_one(plan, optimizer) else MOST_REFITS)
    scored = members[:_SCORED]
    around = look_seconds(few, n_slots) + _AFTER_SECONDS + scoring_seconds(study, scored)
    subset = subset_in_time(study, members, n_slots, most_seconds - around)
    if not subset and can_average_folds(study, [best]):
        return min(around + _AVERAGING_SECONDS, most_seconds)
    return min(around + refit_seconds(study, members, n_slots, subset or 1.0), most_seconds)


_NOT_TESTED = {
    "test_loss": None,
    "test_loss_undefined": None,
    "single_best_test_loss": None,
    "single_best_test_loss_undefined": None,
}


def _is_scored(study: Study) -> bool:
    """Return whether the stored model was scored; earlier versions scored before they stored."""
    return bool(study.result.get("is_scored", True))


def _score(study: Study, running: DaskTrials, context: StudyContext, observer: Observer) -> None:
    """Score the stored model on the test rows, and the best trial alone beside an ensemble."""
    members, number = study.result["members"], study.result["single_best"]
    model = alone = score_model(running, context)
    is_compared = [member["trial"] for member in members] != [number]
    if is_compared and (model.loss is not None or model.undefined):
        best = study.trials[number]
        is_of_folds = study.result.get("of_folds")
        member = folds_of(best) if is_of_folds else member_of(study, best)
        alone = score_model(running, context, member)
    study.set_result(
        is_scored=model.is_final and alone.is_final,
        test_loss=model.loss,
        test_loss_undefined=model.undefined or None,
        single_best_test_loss=alone.loss,
        single_best_test_loss_undefined=alone.undefined or None,
    )
    tested = [("", model), *([(f"trial {number} alone: ", alone)] if is_compared else [])]
    for whose, test in tested:
        losses = LossWords(study.plan.metric)
        if test.loss is not None:
            observer.note(f"{whose}{losses.name} on the test rows {losses.of(test.loss)}")
        elif test.undefined:
            observer.note(f"{whose}{losses.name} on the test rows is undefined: {test.undefined}")


@dataclass(frozen=True)
class _Choice:
    """Members of the final model, and how they were chosen.

    Attributes:
        weighted: Trials and their weights.
        rule: How they were chosen; None if the method itself said them.
        chosen: What the rule has chosen; None where it had nothing to choose from.
    """

    weighted: tuple[tuple[Trial, float], ...]
    rule: EnsembleRule | None = None
    chosen: ChosenEnsemble | None = None

    @property
    def members(self) -> list[dict[str, Any]]:
        """Trials and weights as JSON values."""
        return [{"trial": trial.number, "weight": weight} for trial, weight in self.weighted]

    @property
    def is_ensemble(self) -> bool:
        """Whether there are several members."""
        return len(self.weighted) > 1

    def single_best(self, incumbent: Trial) -> Trial:
        """Return the trial that is tested alone beside it."""
        return incumbent if self.is_ensemble else self.weighted[0][0]

    @property
    def ensemble(self) -> dict[str, Any] | None:
        """The ensemble as JSON values, and a trial that was preferred to one; None otherwise."""
        is_compared = self.rule is not None and self.rule.kind in {"auto", "greedy"}
        if self.chosen is not None and (self.chosen.kind != "single" or is_compared):
            return {**self.chosen.to_json(), "members": self.members}
        return {"kind": "method", "members": self.members} if self.is_ensemble else None


def _choice(study: Study, incumbent: Trial, restore: Callable[[Sequence[Trial]], None]) -> _Choice:
    """Choose what the final model is made of, as the user says, or else the method."""
    declared, options = study.optimizer.method.ensemble, study.plan.options
    if declared == "auto" and options.bounds:  # an ensemble would be slower and larger
        declared = None
    rule = options.ensemble or (EnsembleRule(declared) if declared else None)
    if ends_in_one(study.plan, study.optimizer):
        return _Choice(((incumbent, 1.0),), rule)
    if rule is None:
        weights = study.optimizer.weights or {incumbent.number: 1.0}
        numbers = sorted(weights, key=lambda number: (-weights[number], number))
        return _Choice(tuple((study.trials[number], weights[number]) for number in numbers))
    chosen = None if rule.kind == "single" else _ensemble(study, incumbent, rule, restore)
    if chosen is None or chosen.kind == "single":
        return _Choice(((incumbent, 1.0),), rule, chosen)
    return _Choice(chosen.members, rule, chosen)


def _ensemble(
    study: Study,
    incumbent: Trial,
    rule: EnsembleRule,
    restore: Callable[[Sequence[Trial]], None],
) -> ChosenEnsemble | None:
    """Choose an ensemble; whatever goes wrong, a study that has a best trial has a model."""
    try:
        with one_thread():
            return choose_ensemble(study, rule.kind, rule.size, restore)
    except (StoreLost, StoreRefused):
        raise
    except Exception as error:  # of any kind, as from memory that does not suffice
        _LOGGER.warning("no ensemble could be chosen", exc_info=True)
        assert incumbent.evaluation is not None  # noqa: S101 - it is the incumbent
        reason = masked(f"{type(error).__name__}: {error}".split("\n", 1)[0])
        note = f"no ensemble could be chosen: {reason}"
        loss = incumbent.evaluation.loss
        return ChosenEnsemble("single", ((incumbent, 1.0),), (loss,), notes=(note,))


_AFTER_SECONDS = 2.0
"""For what follows a fit besides the scores: the summary, the end of the process."""
_SCORED = 2
"""Members for whose scores time is held back."""
_AVERAGING_SECONDS = 1.0
"""To make a model of the folds' models, once a refit has taken too long."""
_HOPE = 1.25
"""A refit is begun if it is predicted to take at most so many times the time left. If it does take
longer, it is ended in time."""


@dataclass
class _Refits:
    """Refits within the time that is left; the first fields are arguments of `fit_final_model`.

    Attributes:
        are_of_folds: Whether the last model is the mean of the models of the folds.
        subset: Share of the training rows that it was fitted on, or its trial.
        after_seconds: For what follows once it is fitted.
    """

    study: Study
    running: DaskTrials
    context: StudyContext
    observer: Observer
    seconds_left: Callable[[], float]
    are_of_folds: bool = False
    subset: float = 1.0
    after_seconds: float = 0.0

    def fit(self, weighted: Weighted) -> float:
        """Fit and keep a model; return the seconds that it took.

        Raises:
            RefitFailed: If it cannot be fitted or kept; names the trial.
            StoreLost: If the store cannot go on.
        """
        trials = [trial for trial, _ in weighted]
        self.are_of_folds, self.subset = False, 1.0
        if self.seconds_left() == inf:
            return refit_model(self.study, self.running, self.context, weighted)
        n_slots, most = self.running.n_slots, max(trial.query.subset for trial in trials)
        needed = format_seconds(refit_seconds(self.study, trials, n_slots))
        self.after_seconds = _AFTER_SECONDS + scoring_seconds(self.study, trials)
        left = (self.seconds_left() - self.after_seconds) * (_HOPE if most == 1 else 1.0)
        self.subset = subset_in_time(self.study, trials, n_slots, left)
        can_average = can_average_folds(self.study, trials)
        if not self.subset and can_average:
            return self._average(weighted, f"a refit takes about {needed}")
        self.subset = self.subset or most
        try:
            seconds = refit_model(
                self.study,
                self.running,
                self.context,
                weighted,
                check=self._check if can_average else lambda: None,
                subset=self.subset,
            )
        except OutOfTime as reason:
            return self._average(weighted, str(reason))
        if self.subset < 1:
            self.observer.note(
                f"no time is left to fit on all training rows (a refit takes about {needed}): the "
                f"model is fitted on {self.subset:.2g} of them; the next run of study "
                f"{self.study.name} refits it on all"
            )
        return seconds

    def _average(self, weighted: Weighted, reason: str) -> float:
        """Keep the mean of the folds' models; refit where the cache has lost one."""
        self.subset = 1.0
        try:
            seconds = average_folds(self.running, self.context, weighted)
        except RefitFailed as failure:
            self.observer.note(
                f"{failure}; fitted on all training rows instead, which takes longer"
            )
            return refit_model(self.study, self.running, self.context, weighted)
        self.are_of_folds = True
        self.subset = max(trial.query.subset for trial, _ in weighted)
        self.observer.note(
            f"no time is left to fit on all training rows ({reason}): the model is the mean of the "
            f"models of the folds; the next run of study {self.study.name} refits it on all rows"
        )
        return seconds

    def _check(self) -> None:
        if self.seconds_left() < self.after_seconds + _AVERAGING_SECONDS:
            raise OutOfTime("it took longer than expected")


def _fitted(refits: _Refits, choice: _Choice) -> tuple[_Choice, float, list[dict[str, Any]]]:
    """Fit what was chosen, or else the best trial that can be refitted.

    Returns:
        What was fitted, the seconds that it took, and what failed before.

    Raises:
        StudyFailed: If no trial can be refitted.
    """
    study, failures = refits.study, list[dict[str, Any]]()
    next_best = NextBest(_others(study, choice), study.seconds())
    singles = (_Choice(((trial, 1.0),)) for trial in next_best)
    for candidate in chain([choice], singles):
        if failures:
            number = candidate.weighted[0][0].number
            refits.observer.note(f"{failures[-1]['reason']}; trial {number} is tried instead")
        try:
            seconds = refits.fit(candidate.weighted)
        except RefitFailed as failure:
            numbers = [trial.number for trial, _ in candidate.weighted]
            failures.append({"trials": numbers, "reason": masked(str(failure))})
            if not candidate.is_ensemble:
                next_best.note_failure(candidate.weighted[0][0], failure)
        else:
            return candidate, seconds, failures
    tried = counted(len(failures), "refit")
    raise StudyFailed(
        f"study {study.name!r} ended without a model: {tried} failed; {failures[0]['reason']}"
    )


def _others(study: Study, choice: _Choice) -> list[Trial]:
    """Return the trials that may take the place of a choice, the best first."""
    best, ranked = study.incumbent, ranked_trials(study.optimizer.history)
    if choice.is_ensemble:
        return [*([best] if best else []), *(t for t in ranked if t != best)]
    configuration = choice.weighted[0][0].query.configuration
    return [trial for trial in ranked if trial.query.configuration != configuration]


def _is_replaced(study: Study, choice: _Choice) -> bool:
    """Return whether the study's model was taken instead of this, within the same limits."""
    replaced = study.result.get("instead_of") or {}
    is_same = {**replaced, **_attempt(study, choice)} == replaced
    return is_same and study.store.records.is_whole(model_record(study.name))


def _attempt(study: Study, choice: _Choice) -> dict[str, Any]:
    """Return what could not be fitted within which limits, as JSON values."""
    limits = study.plan.trial_limits()
    return {"members": choice.members, "limits": [limits.seconds, limits.memory_bytes]}


def _is_fitted(study: Study, choice: _Choice, incumbent: Trial) -> bool:
    """Return whether the study's model is made of this, and was tested beside the incumbent."""
    result = study.result
    is_alone = [trial.number for trial, _ in choice.weighted] == [incumbent.number]
    is_tested = is_alone or result.get("single_best") == incumbent.number
    is_same = result.get("members") == choice.members and is_tested
    return is_same and study.store.records.is_whole(model_record(study.name))


def _incumbent(study: Study) -> Trial:
    """Return the incumbent.

    Raises:
        StudyFailed: If there is none; says why.
    """
    if study.incumbent is not None:
        return study.incumbent
    if missed := nearest_miss(study):
        study.set_result(members=None, ensemble=None, instead_of=None, **_NOT_TESTED)
        raise StudyFailed(f"study {study.name!r} ended without a model: {missed}")
    raise StudyFailed(
        f"study {study.name!r} ended without a model, as no trial was evaluated: "
        f"{most_frequent_failure(study)}"
    )


def _notes(study: Study, choice: _Choice) -> Iterator[str]:
    """Yield what a user should know of the model before it is fitted."""
    rule, chosen = choice.rule, choice.chosen
    number = choice.weighted[0][0].number
    yield from chosen.notes if chosen else ()
    is_single = chosen is None or chosen.kind == "single"
    if rule is not None and rule.kind != "single" and is_single:
        is_compared = chosen is not None and bool(chosen.nested or rule.kind == "greedy")
        why = (
            "is better on the held-out rows than the best full trial"
            if is_compared
            else ("can be made of the trials")
        )
        yield f"no ensemble {why}; trial {number} is taken"
    if rule is not None and rule.size and chosen and 1 < len(chosen.losses) < rule.size:
        yield f"the ensemble has {len(chosen.losses)} picks; adding more does not help"
    if choice.is_ensemble and study.plan.options.bounds:
        yield "each member meets the constraints; the ensemble is slower and larger"
    if choice.is_ensemble and not study.plan.options.use_cache:
        yield "without a cache, members are fitted one after the other"
    trial, history = choice.weighted[0][0], study.optimizer.history
    if not trial.query.is_full and history.incumbent is None:
        fidelity = study.plan.whole.part(trial.query.to_json())
        yield f"no full evaluation qualifies; trial {number} is the best partial one ({fidelity})"
    what = counted(len(choice.weighted), "member") if choice.is_ensemble else f"trial {number}"
    yield f"fitting {what} on all training rows"
