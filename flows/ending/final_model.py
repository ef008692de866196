"""Refits the chosen trials of a study on all training rows, and scores the final model."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from prefect_tune.flows.ending.ensemble import (
    MOST_REFITS,
    ChosenEnsemble,
    Members,
    choose_members,
    choosing_seconds,
    ensemble_rule,
    stored_predictions,
)
from prefect_tune.flows.ending.reevaluation import finalists_of, recheck_seconds
from prefect_tune.flows.ending.refitting import (
    OutOfTime,
    average_folds,
    can_average_folds,
    folds_of,
    member_of,
    refit_model,
    refit_seconds,
    score_model,
    scoring_seconds,
)
from prefect_tune.flows.options.values import EnsembleRule
from prefect_tune.flows.study.facts import (
    Ensemble,
    ModelCheck,
    ModelFacts,
    Replaced,
    WeightedTrial,
)
from prefect_tune.flows.study.progress import Observer
from prefect_tune.flows.study.study import Study, StudyFailed, picks_single_trial
from prefect_tune.flows.wording.text import (
    FailureGroups,
    LossWords,
    counted,
    format_seconds,
    number_text,
)
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.optimizers.documents import to_document
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.keys import model_record
from prefect_tune.storage.masking import masked
from prefect_tune.tasks.final.refit import RefitFailed
from prefect_tune.tasks.objective.comparison import is_useless, over_folds, rare_class, usefulness
from prefect_tune.tasks.problem import StudyContext

_AFTER_SECONDS = 2.0
"""Seconds reserved for the summary and the end of the process, after fitting and scoring."""
_GRACE_SECONDS = 3.0
"""Seconds by which a refit may delay the end of the command."""
_SHORT_REFIT_SECONDS, _SHORT_REFIT_SHARE = 5.0, 1 / 20
"""Longest refit, in seconds and as a share of the budget, that is always done."""
_CHOICE_SHARE, _LEAST_CHOICE_SECONDS = 0.5, 1.0
"""Largest share of the reserved time for re-evaluating finalists or choosing an ensemble, and the
seconds that a choice may take even after the end of the budget."""
_SCORED = 2
"""Number of members whose scoring time is reserved."""
_AVERAGING_SECONDS = 1.0
"""Seconds reserved for averaging the models of the folds, besides the start of a process if a refit
took too long."""
_HOPE = 1.25
"""Longest predicted refit that is started, as a multiple of the time left. A running refit is
stopped when the refit is about to exceed the time left."""
_MOST_OTHERS = 3
"""Number of further trials that are tried if the chosen trials cannot be refitted."""


def fit_final_model(
    study: Study,
    running: DaskTrials,
    context: StudyContext,
    observer: Observer,
    seconds_left: Callable[[], float] = lambda: inf,
) -> None:
    """Fit and store the incumbent or an ensemble, then score the model; skip finished work.

    If the chosen trials cannot be refitted, stored and read back, the next best trials are tried.
    If a refit would take too long, the fold models are averaged if possible (see
    `can_average_folds`); if not, the refit may exceed the budget. No choice depends on the test
    rows, so if scoring fails, the stored model stays. Raises `StudyFailed` if nothing was evaluated
    or no trial can be refitted, and `StoreLost` if the store becomes unusable.
    """
    best, left = study.incumbent, seconds_left()
    if best is None:
        if missed := nearest_miss(study):
            study.record(replace(study.facts, model=ModelFacts()))
            raise StudyFailed(f"study {study.name!r} ended without a model: {missed}")
        raise StudyFailed(
            f"study {study.name!r} ended without a model because no trial was evaluated: "
            f"{most_frequent_failure(study)}"
        )
    for_fit = (1 - _CHOICE_SHARE) * left  # a long refit must leave time for the choice
    after, most_refits = 0.0, MOST_REFITS
    if left < inf:
        after, most_refits = _fitting(study, running.n_slots, for_fit)
    seconds = max(left - after, _LEAST_CHOICE_SECONDS)
    choice = choose_members(study, best, seconds, most_refits)
    ending = _Ending(study, running, context, observer, seconds_left)
    if not _is_fitted(study, choice):
        study.record(replace(study.facts, model=ending.model(choice)))
    if not study.facts.model.is_scored:
        study.record(replace(study.facts, model=ending.score()))


def ending_seconds(study: Study, n_slots: int, most_seconds: float) -> float:
    """Predict the time needed after the search for re-evaluation, final model and scores.

    The refit of an ensemble is assumed to take a fixed multiple of the best trial's time. If a
    refit would exceed `most_seconds`, the fold models are assumed to be averaged.
    """
    plan, optimizer = study.plan, study.optimizer
    if picks_single_trial(plan, optimizer):
        choice = recheck_seconds(finalists_of(plan, optimizer, n_slots), n_slots)
    else:
        rule = ensemble_rule(study) or EnsembleRule("single")
        choice = choosing_seconds(study, rule.kind, rule.size)
    choice = min(choice, _CHOICE_SHARE * most_seconds)
    return choice + _fitting(study, n_slots, most_seconds - choice)[0]


def _fitting(study: Study, n_slots: int, most_seconds: float) -> tuple[float, int]:
    """Predict the time for the final model and its scores, at most `most_seconds`.

    The time of a short refit is always included, even beyond `most_seconds`. The second number is
    the time of the refit as a multiple of the best trial's time.
    """
    best, plan = study.incumbent, study.plan
    if best is None:
        return _AFTER_SECONDS, 1
    is_single = picks_single_trial(plan, study.optimizer) or not best.query.is_full
    members = [best] * (1 if is_single else MOST_REFITS)
    # In a series, the model is also compared with the champion.
    n_scorings = 1 if plan.options.series is None else 2
    scoring = n_scorings * scoring_seconds(study, members[:_SCORED])
    around = min(_AFTER_SECONDS + scoring, most_seconds)
    room = max(most_seconds - around, _short_seconds(study))
    for fitted in (members, [best]):
        needed = refit_seconds(study, fitted, n_slots)
        if needed <= room:
            return around + needed, len(fitted)
    return around + (_AVERAGING_SECONDS if can_average_folds(study, [best]) else room), 1


def _short_seconds(study: Study) -> float:
    """Return the seconds of the longest refit that is always done."""
    return max(_SHORT_REFIT_SECONDS, _SHORT_REFIT_SHARE * (study.plan.options.budget or 0.0))


def _is_fitted(study: Study, choice: ChosenEnsemble) -> bool:
    """Return whether the choice, or its replacement under the same limits, is fitted and stored."""
    model, trials = study.facts.model, tuple(trial.number for trial, _ in choice.members)
    is_same = model.members == _weights(choice.members)
    if model.instead_of is not None and model.limits == _limits(study):
        is_same = is_same or model.instead_of.trials == trials
    is_whole = study.store.records.is_whole(model_record(study.name))
    return is_same and not model.model_of_folds and is_whole


def _limits(study: Study) -> tuple[float, int | None]:
    limits = study.plan.trial_limits()
    return limits.seconds, limits.memory_bytes


def _weights(members: Members) -> tuple[WeightedTrial, ...]:
    return tuple(WeightedTrial(trial.number, weight) for trial, weight in members)


@dataclass(frozen=True)
class _Ending:
    """Work at the end of a study. The fields are the arguments of `fit_final_model`."""

    study: Study
    running: DaskTrials
    context: StudyContext
    observer: Observer
    seconds_left: Callable[[], float]

    def model(self, choice: ChosenEnsemble) -> ModelFacts:
        """Fit and store the choice or, on failure, the next best trial that can be refitted."""
        study, trial = self.study, choice.members[0][0]
        notes = list(choice.notes)
        if not trial.query.is_full and study.optimizer.history.incumbent is None:
            part = f"trial {trial.number} ({study.plan.whole.part(trial.query.to_json())})"
            notes.append(f"no full evaluation qualifies; the best partial evaluation is {part}")
        n = len(choice.members)
        what = counted(n, "member") if n > 1 else f"trial {trial.number}"
        for text in (*notes, f"fitting {what} on all training rows"):
            self.observer.note(text)
        failures: list[Replaced] = []
        for candidate in (choice, *map(ChosenEnsemble.alone, _others(self.study, choice))):
            numbers = tuple(trial.number for trial, _ in candidate.members)
            if failures:
                self.observer.note(f"{failures[-1].reason}; trying trial {numbers[0]} instead")
            try:
                seconds, is_of_folds = self._fit(candidate.members)
            except RefitFailed as failure:
                failures.append(Replaced(numbers, masked(str(failure))))
                continue
            done = "taken from the evaluation" if is_of_folds else "fitted"
            self.observer.note(f"final model saved ({done} in {format_seconds(seconds)})")
            weights = _weights(candidate.members)
            ensemble: Ensemble | None = None
            if len(weights) > 1 or candidate.losses:
                ensemble = Ensemble(candidate.kind, weights, candidate.losses, candidate.nested)
            return ModelFacts(
                members=weights,
                ensemble=ensemble,
                model_of_folds=is_of_folds,
                refit_seconds=seconds,
                instead_of=failures[0] if failures else None,
                limits=_limits(self.study),
            )
        raise StudyFailed(
            f"study {self.study.name!r} ended without a model: "
            f"{counted(len(failures), 'refit')} failed; {failures[0].reason}. Its trials are kept, "
            "and the same command tries again"
        )

    def _fit(self, members: Members) -> tuple[float, bool]:
        """Fit and store a model or, if time is too short, the mean of the fold models.

        Returns the time taken, and whether the model is the mean of the fold models. Raises
        `RefitFailed` or `StoreLost`.
        """
        study, trials = self.study, [trial for trial, _ in members]
        fit = partial(refit_model, study, self.running, self.context, members)
        if self.seconds_left() == inf:
            return fit(), False
        after_seconds = _AFTER_SECONDS + scoring_seconds(study, trials) - _GRACE_SECONDS
        needed, short = refit_seconds(study, trials, self.running.n_slots), _short_seconds(study)
        left = self.seconds_left()
        is_long = needed > max((left - after_seconds) * _HOPE, short)
        averaging = _AVERAGING_SECONDS + study.start_seconds
        most = max(left - after_seconds - averaging, short)
        reason = f"a refit takes about {format_seconds(needed)}"
        if not can_average_folds(study, trials):
            if is_long:
                self.observer.note(f"{reason}, more than the remaining budget")
            return fit(), False

        def check() -> None:
            if left - self.seconds_left() > most:
                raise OutOfTime

        if not is_long:
            reason = "the fit took longer than expected"
            with suppress(OutOfTime):
                return fit(check), False
        try:
            seconds = average_folds(study, self.running, self.context, members)
        except RefitFailed as failure:  # the cache no longer has a fold model
            self.observer.note(f"{failure}; fitting on all training rows instead, which is slower")
            return fit(), False
        self.observer.note(f"using the evaluated models instead, because {reason}")
        return seconds, True

    def score(self) -> ModelFacts:
        """Score the stored model on the test rows; for an ensemble, also the best trial alone."""
        study, facts, best = self.study, self.study.facts.model, self.study.incumbent
        model = alone = score_model(self.running, self.context)
        is_tested = model.loss is not None or model.undefined
        if len(facts.members) > 1 and best is not None and is_tested:
            member = folds_of(study, best) if facts.model_of_folds else member_of(study, best)
            alone = score_model(self.running, self.context, member)
        # The incumbent's held-out predictions are further evidence besides the test rows.
        _, held_out = stored_predictions(study, [] if best is None else [best])
        dataset, split, check = held_out.dataset, held_out.split, None
        folds = [
            usefulness(dataset, split, held_out.metric, rows, predictions)
            for of_trial in held_out.predictions
            for rows, predictions in zip(held_out.rows, of_trial, strict=True)
        ]
        over, rare = over_folds(folds, study.n_begun), rare_class(dataset, split)
        if (known := model.usefulness or over) is not None:
            check = ModelCheck(
                **to_document(known),
                rows="held-out" if model.usefulness is None else "test",
                is_useless=is_useless(model.usefulness, over),
                rare_class=None if rare is None else str(dataset.classes[rare]),
            )
        losses = LossWords(study.plan.metric)
        if is_tested:
            undefined = f"is undefined: {model.undefined}"
            found = undefined if model.loss is None else losses.of(model.loss)
            self.observer.note(f"{losses.name} on the test rows {found}")
        return replace(
            facts,
            is_scored=model.is_final and alone.is_final,
            usefulness=check,
            test_loss=model.loss,
            equal_rows=model.equal,
            test_loss_undefined=model.undefined or None,
            single_best_test_loss=alone.loss,
            single_best_test_loss_undefined=alone.undefined or None,
        )


def _others(study: Study, choice: ChosenEnsemble) -> list[Trial]:
    """Return the next best trials, one per configuration; trials on other paths come first."""
    history, is_single = study.optimizer.history, len(choice.members) == 1
    first = choice.members[0][0] if is_single else study.incumbent
    ranked = dict[Configuration, Trial]()
    for trial in (first, *history.best(len(history.complete)), *history.partial):
        if trial is not None:
            ranked.setdefault(trial.query.configuration, trial)
    firsts = {trial.query.configuration.path: trial for trial in reversed(ranked.values())}
    others = [*ranked.values()][is_single:]
    others.sort(key=lambda trial: firsts[trial.query.configuration.path] is not trial)
    return others[:_MOST_OTHERS]


def most_frequent_failure(study: Study) -> str:
    """Return a sentence that gives the most frequent reason for failed trials."""
    failures = FailureGroups()
    for trial in study.trials.values():
        failures.add(trial.number, trial.failure)
    if not len(failures):
        return "no trial finished; rerun the command with a larger --budget"
    largest = failures.found()[0]
    n = len(largest.trials)
    which = "all" if n == len(failures) else f"{n} of them"
    return (
        f"{counted(len(failures), 'trial')} failed, {which} with an error like that of "
        f"trial {largest.trials[0]}: {largest.text}; rerun failed trials with retry"
    )


def nearest_miss(study: Study) -> str:
    """Return a note if trials have losses but no trial meets all constraints; else empty."""
    history = study.optimizer.history
    nearest = history.nearest_infeasible
    if study.incumbent is not None or nearest is None or nearest.evaluation is None:
        return ""
    measured, limit = nearest.evaluation.constraints, ("at most", "at least")
    above = [
        f"{c.name} {number_text(measured[c.name])} of {limit[c.is_at_least]} {number_text(c.bound)}"
        if c.name in measured
        else f"{c.name} not measured"
        for c in history.constraints
        if c.excess(measured) > 0
    ]
    return (
        f"no trial meets all constraints; trial {nearest.number} is nearest, with "
        f"{'; '.join(above)}; extend the study, or start a study with looser constraints"
    )
