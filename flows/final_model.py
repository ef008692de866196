"""Final model of a study: refits the chosen trials on all training rows and scores the result."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import inf

from prefect_tune.flows.options.values import EnsembleKind, EnsembleRule
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
from prefect_tune.flows.study.ensemble import (
    MOST_REFITS,
    ChosenEnsemble,
    choose_ensemble,
    choosing_seconds,
    stored_predictions,
)
from prefect_tune.flows.study.explanations import most_frequent_failure, nearest_miss
from prefect_tune.flows.study.facts import (
    Ensemble,
    FailedRefit,
    ModelCheck,
    ModelFacts,
    Replaced,
    WeightedTrial,
)
from prefect_tune.flows.study.finalists import finalists_of, picks_single_trial, recheck_seconds
from prefect_tune.flows.study.next_best import NextBest, ranked_trials
from prefect_tune.flows.study.study import Study, StudyFailed
from prefect_tune.flows.text import LossWords, counted, format_seconds
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.optimizers.converter import to_document
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.files import StoreRefused
from prefect_tune.storage.key import model_record
from prefect_tune.storage.masking import masked
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.final_model import RefitFailed
from prefect_tune.tasks.objective.declaration import Usefulness
from prefect_tune.tasks.objective.usefulness import (
    is_useless,
    over_folds,
    rare_class,
    usefulness,
)
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
    """Fit and store the incumbent or an ensemble, then score it; skip finished parts.

    If the choice cannot be refitted, stored and read back, the next best trial is used (see
    `next_best`). If a refit would take too long, a trial that ran on a subset is fitted on the
    largest subset the time allows. If that is not possible, the models of the folds are averaged
    (see `can_average_folds`), or else the refit exceeds its time. No choice depends on the test
    rows: a failure while scoring leaves the stored model in place. Raises `StudyFailed` if nothing
    was evaluated, or no trial can be refitted, and `StoreLost` if the store becomes unusable.
    """
    incumbent = _incumbent(study)
    restore = partial(restore_predictions, study, running, context, observer)
    left = seconds_left()
    for_fit = (1 - _CHOICE_SHARE) * left  # a longer refit must not leave the choice without time
    after = 0.0 if left == inf else _fitting_seconds(study, running.n_slots, for_fit)
    for_choice = max(left - after, _LEAST_CHOICE_SECONDS)
    choose = partial(choose_ensemble, restore=restore, seconds=for_choice)
    choice = _choice(study, incumbent, choose)
    is_short = study.facts.model.awaits_refit
    if not is_short and _is_replaced(study, choice):
        if not study.facts.model.is_scored:
            _score(study, running, context, observer)
        return
    if not is_short and _is_fitted(study, choice, incumbent):
        _record(study, replace(study.facts.model, ensemble=choice.ensemble))
        if not study.facts.model.is_scored:
            _score(study, running, context, observer)
        return
    for text in _notes(study, choice):
        observer.note(text)
    refits = _Refits(study, running, context, observer, seconds_left)
    fitted, seconds, failures = _fitted(refits, choice)
    replaced = tuple(member.trial for member in choice.members)
    model = ModelFacts(
        members=fitted.members,
        is_of_folds=refits.are_of_folds,
        subset=refits.subset,
        single_best=fitted.single_best(incumbent).number,
        ensemble=fitted.ensemble,
        refit_seconds=seconds,
        instead_of=Replaced(replaced, failures[0].reason, failures) if failures else None,
        limits=_limits(study),
    )
    _record(study, model)
    done = "averaged" if refits.are_of_folds else "fitted"
    observer.note(f"final model saved ({done} in {format_seconds(seconds)})")
    _score(study, running, context, observer)


def ending_seconds(study: Study, n_slots: int, most_seconds: float) -> float:
    """Return the predicted seconds after the search: re-evaluation, final model and its scores.

    An ensemble is assumed to cost a fixed multiple of the best trial. To stay within
    `most_seconds`, fewer rows are fitted, or the models of the folds are averaged.
    """
    plan, optimizer = study.plan, study.optimizer
    if picks_single_trial(plan, optimizer):
        choice = recheck_seconds(finalists_of(plan, optimizer, n_slots), n_slots)
    else:
        rule = _rule(study) or EnsembleRule("single")
        choice = choosing_seconds(study, rule.kind, rule.size)
    choice = min(choice, _CHOICE_SHARE * most_seconds)
    return choice + _fitting_seconds(study, n_slots, most_seconds - choice)


def _fitting_seconds(study: Study, n_slots: int, most_seconds: float) -> float:
    """Return the predicted seconds of the final model and its scores, up to `most_seconds`.

    A short refit is always included.
    """
    best, plan = study.incumbent, study.plan
    if best is None:
        return _AFTER_SECONDS
    members = [best] * (1 if picks_single_trial(plan, study.optimizer) else MOST_REFITS)
    n_scorings = 1 if plan.options.series is None else 2  # one more to compare with the champion
    scoring = n_scorings * scoring_seconds(study, members[:_SCORED])
    around = min(_AFTER_SECONDS + scoring, most_seconds)
    short = max(_SHORT_REFIT_SECONDS, _SHORT_REFIT_SHARE * (plan.options.budget or 0.0))
    room = max(most_seconds - around, short)
    subset = subset_in_time(study, members, n_slots, room)
    if not subset and can_average_folds(study, [best]):
        return around + _AVERAGING_SECONDS
    return around + min(refit_seconds(study, members, n_slots, subset or 1.0), room)


def _record(study: Study, model: ModelFacts) -> None:
    study.record(replace(study.facts, model=model))


def _limits(study: Study) -> tuple[float, int | None]:
    limits = study.plan.trial_limits()
    return limits.seconds, limits.memory_bytes


def _score(study: Study, running: DaskTrials, context: StudyContext, observer: Observer) -> None:
    """Score the stored model on the test rows; for an ensemble, also the best trial alone."""
    facts = study.facts.model
    number = facts.single_best
    model = alone = score_model(running, context)
    is_compared = number is not None and [member.trial for member in facts.members] != [number]
    if number is not None and is_compared and (model.loss is not None or model.undefined):
        best = study.trials[number]
        member = folds_of(best) if facts.is_of_folds else member_of(study, best)
        alone = score_model(running, context, member)
    facts = replace(
        facts,
        is_scored=model.is_final and alone.is_final,
        usefulness=_usefulness(study, model.usefulness),
        test_loss=model.loss,
        equal_rows=model.equal,
        test_loss_undefined=model.undefined or None,
        single_best_test_loss=alone.loss,
        single_best_test_loss_undefined=alone.undefined or None,
    )
    _record(study, facts)
    tested = [("", model), *([(f"trial {number} alone: ", alone)] if is_compared else [])]
    for whose, test in tested:
        losses = LossWords(study.plan.metric)
        if test.loss is not None:
            observer.note(f"{whose}{losses.name} on the test rows {losses.of(test.loss)}")
        elif test.undefined:
            observer.note(f"{whose}{losses.name} on the test rows is undefined: {test.undefined}")
    if model.equal is not None:
        observer.note(LossWords(study.plan.metric).without_equal(model.equal))


def _usefulness(study: Study, test: Usefulness | None) -> ModelCheck | None:
    """Return the comparison of the model with a constant.

    The incumbent's predictions of the held-out rows add to the evidence of the test rows.
    """
    incumbent = [] if study.incumbent is None else [study.incumbent]
    _, held_out = stored_predictions(study, incumbent)
    dataset, split = held_out.dataset, held_out.split
    folds = [
        usefulness(dataset, split, held_out.metric, rows, predictions)
        for of_trial in held_out.predictions
        for rows, predictions in zip(held_out.rows, of_trial, strict=True)
    ]
    n_begun = len({trial.query.configuration for trial in study.trials.values()})
    over = over_folds(folds, n_begun)
    shown, rare = test or over, rare_class(dataset, split)
    if shown is None:
        return None
    return ModelCheck(
        **to_document(shown),
        rows="held-out" if test is None else "test",
        is_useless=is_useless(test, over),
        rare_class=None if rare is None else str(dataset.classes[rare]),
    )


_COMPARED = {"auto", "greedy"}
"""Rules that compare an ensemble with the best trial alone."""


@dataclass(frozen=True)
class _Choice:
    """Members of the final model, and how they were chosen."""

    weighted: tuple[tuple[Trial, float], ...]
    rule: EnsembleRule | None = None
    chosen: ChosenEnsemble | None = None

    @property
    def members(self) -> tuple[WeightedTrial, ...]:
        return tuple(WeightedTrial(trial.number, weight) for trial, weight in self.weighted)

    @property
    def is_ensemble(self) -> bool:
        return len(self.weighted) > 1

    def single_best(self, incumbent: Trial) -> Trial:
        """Return the trial that is scored alone for comparison."""
        return incumbent if self.is_ensemble else self.weighted[0][0]

    @property
    def ensemble(self) -> Ensemble | None:
        """Ensemble, or the single trial preferred to an ensemble; else None."""
        chosen, is_compared = self.chosen, self.rule is not None and self.rule.kind in _COMPARED
        if chosen is not None and (chosen.kind != "single" or is_compared):
            nested = dict[str, float](chosen.nested.items())
            return Ensemble(chosen.kind, self.members, chosen.losses, nested)
        return Ensemble("method", self.members) if self.is_ensemble else None


def _rule(study: Study) -> EnsembleRule | None:
    """Return the user's rule for ensembles, or else the method's."""
    declared, options = study.optimizer.method.ensemble, study.plan.options
    if declared == "auto" and options.bounds:  # an ensemble would be slower and larger
        declared = None
    return options.ensemble or (EnsembleRule(declared) if declared else None)


_Choose = Callable[[Study, EnsembleKind, int | None], ChosenEnsemble | None]
"""`choose_ensemble` of a study, a kind and a size."""


def _choice(study: Study, incumbent: Trial, choose: _Choose) -> _Choice:
    """Choose the members of the final model by the user's rule, or else by the method's."""
    rule = _rule(study)
    if picks_single_trial(study.plan, study.optimizer):
        return _Choice(((incumbent, 1.0),), rule)
    if rule is None:
        weights = study.optimizer.weights or {incumbent.number: 1.0}
        numbers = sorted(weights, key=lambda number: (-weights[number], number))
        return _Choice(tuple((study.trials[number], weights[number]) for number in numbers))
    chosen = None if rule.kind == "single" else _ensemble(study, incumbent, rule, choose)
    if chosen is None or chosen.kind == "single":
        return _Choice(((incumbent, 1.0),), rule, chosen)
    return _Choice(chosen.members, rule, chosen)


def _ensemble(
    study: Study, incumbent: Trial, rule: EnsembleRule, choose: _Choose
) -> ChosenEnsemble | None:
    """Choose an ensemble; on any error, fall back to the best trial."""
    try:
        with one_thread():
            return choose(study, rule.kind, rule.size)
    except (StoreLost, StoreRefused):
        raise
    except Exception as error:  # of any kind, such as too little memory
        _LOGGER.warning("no ensemble could be chosen", exc_info=True)
        assert incumbent.evaluation is not None  # noqa: S101 - it is the incumbent
        reason = masked(f"{type(error).__name__}: {error}".split("\n", 1)[0])
        note = f"no ensemble could be chosen: {reason}"
        loss = incumbent.evaluation.loss
        return ChosenEnsemble("single", ((incumbent, 1.0),), (loss,), notes=(note,))


_AFTER_SECONDS = 2.0
"""Seconds reserved for the summary and the end of the process, after fitting and scoring."""
_GRACE_SECONDS = 3.0
"""Seconds by which a refit may delay the end of the command."""
_SHORT_REFIT_SECONDS, _SHORT_REFIT_SHARE = 5.0, 1 / 20
"""Refits up to these seconds, or this share of the budget if longer, have their time reserved."""
_CHOICE_SHARE, _LEAST_CHOICE_SECONDS = 0.5, 1.0
"""Largest share of the reserved time for re-evaluating finalists or choosing an ensemble, and the
seconds that a choice may take even after the end of the budget."""
_SCORED = 2
"""Number of members whose scoring time is reserved."""
_AVERAGING_SECONDS = 1.0
"""Seconds reserved for averaging the models of the folds after a refit that took too long."""
_HOPE = 1.25
"""Largest predicted time of a refit that starts, as a multiple of the time left. A running refit is
stopped when it is about to exceed the time left."""


@dataclass
class _Refits:
    """Refits within the time left; the first fields are the arguments of `fit_final_model`.

    Attributes:
        subset: Share of the training rows the last model was fitted on.
        after_seconds: Seconds reserved for the work after the fit, less the grace.
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
        """Fit and store a model; return the seconds, or raise `RefitFailed` or `StoreLost`."""
        trials = [trial for trial, _ in weighted]
        self.are_of_folds, self.subset = False, 1.0
        if self.seconds_left() == inf:
            return refit_model(self.study, self.running, self.context, weighted)
        n_slots, most = self.running.n_slots, max(trial.query.subset for trial in trials)
        needed = format_seconds(refit_seconds(self.study, trials, n_slots))
        scoring = scoring_seconds(self.study, trials)
        self.after_seconds = _AFTER_SECONDS + scoring - _GRACE_SECONDS
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
                f"too little time to fit on all training rows (a refit takes about {needed}): the "
                f"model is fitted on {self.subset:.2g} of them; the next run of study "
                f"{self.study.name} refits it on all rows"
            )
        return seconds

    def _average(self, weighted: Weighted, reason: str) -> float:
        """Store the mean of the models of the folds; refit if the cache has lost a model."""
        self.subset = 1.0
        try:
            seconds = average_folds(self.running, self.context, weighted)
        except RefitFailed as failure:
            self.observer.note(
                f"{failure}; fitting on all training rows instead, which takes longer"
            )
            return refit_model(self.study, self.running, self.context, weighted)
        self.are_of_folds = True
        self.subset = max(trial.query.subset for trial, _ in weighted)
        self.observer.note(
            f"too little time to fit on all training rows ({reason}): the model averages the fold "
            f"models; the next run of study {self.study.name} refits it on all rows"
        )
        return seconds

    def _check(self) -> None:
        if self.seconds_left() < self.after_seconds + _AVERAGING_SECONDS:
            raise OutOfTime("it took longer than expected")


def _fitted(refits: _Refits, choice: _Choice) -> tuple[_Choice, float, tuple[FailedRefit, ...]]:
    """Fit the choice or the best refittable trial; return it, the seconds and the failures."""
    study, failures = refits.study, list[FailedRefit]()
    next_best = NextBest(_others(study, choice), study.seconds())
    singles = (_Choice(((trial, 1.0),)) for trial in next_best)
    for candidate in chain([choice], singles):
        if failures:
            number = candidate.weighted[0][0].number
            refits.observer.note(f"{failures[-1].reason}; trying trial {number} instead")
        try:
            seconds = refits.fit(candidate.weighted)
        except RefitFailed as failure:
            numbers = tuple(trial.number for trial, _ in candidate.weighted)
            failures.append(FailedRefit(numbers, masked(str(failure))))
            if not candidate.is_ensemble:
                next_best.note_failure(candidate.weighted[0][0], failure)
        else:
            return candidate, seconds, tuple(failures)
    tried = counted(len(failures), "refit")
    raise StudyFailed(
        f"study {study.name!r} ended without a model: {tried} failed; {failures[0].reason}"
    )


def _others(study: Study, choice: _Choice) -> list[Trial]:
    best, ranked = study.incumbent, ranked_trials(study.optimizer.history)
    if choice.is_ensemble:
        return [*([best] if best else []), *(t for t in ranked if t != best)]
    configuration = choice.weighted[0][0].query.configuration
    return [trial for trial in ranked if trial.query.configuration != configuration]


def _is_replaced(study: Study, choice: _Choice) -> bool:
    """Return whether this choice failed before under the same limits and was replaced."""
    model, trials = study.facts.model, tuple(member.trial for member in choice.members)
    is_replaced = model.instead_of is not None and model.instead_of.trials == trials
    is_same = is_replaced and model.limits == _limits(study)
    return is_same and study.store.records.is_whole(model_record(study.name))


def _is_fitted(study: Study, choice: _Choice, incumbent: Trial) -> bool:
    """Return whether the stored model is this choice and is compared with the incumbent."""
    model = study.facts.model
    is_alone = [trial.number for trial, _ in choice.weighted] == [incumbent.number]
    is_tested = is_alone or model.single_best == incumbent.number
    is_same = model.members == choice.members and is_tested
    return is_same and study.store.records.is_whole(model_record(study.name))


def _incumbent(study: Study) -> Trial:
    """Return the incumbent; raise `StudyFailed` with the reason if there is none."""
    if study.incumbent is not None:
        return study.incumbent
    if missed := nearest_miss(study):
        _record(study, ModelFacts())
        raise StudyFailed(f"study {study.name!r} ended without a model: {missed}")
    raise StudyFailed(
        f"study {study.name!r} ended without a model because no trial was evaluated: "
        f"{most_frequent_failure(study)}"
    )


def _notes(study: Study, choice: _Choice) -> Iterator[str]:
    rule, chosen = choice.rule, choice.chosen
    number = choice.weighted[0][0].number
    yield from chosen.notes if chosen else ()
    is_single = chosen is None or chosen.kind == "single"
    if rule is not None and rule.kind != "single" and is_single:
        is_compared = chosen is not None and bool(chosen.nested or rule.kind == "greedy")
        why = (
            "no ensemble scored better on the held-out rows"
            if is_compared
            else "the trials cannot form an ensemble"
        )
        yield f"model: trial {number} ({why})"
    if rule is not None and rule.size and chosen and 1 < len(chosen.losses) < rule.size:
        yield f"the ensemble has {len(chosen.losses)} picks; more did not improve it"
    if choice.is_ensemble and study.plan.options.bounds:
        yield "each member meets the constraints, but the ensemble is slower and larger"
    if choice.is_ensemble and not study.plan.options.use_cache:
        yield "without a cache, members are fitted one after another"
    trial, history = choice.weighted[0][0], study.optimizer.history
    if not trial.query.is_full and history.incumbent is None:
        fidelity = study.plan.whole.part(trial.query.to_json())
        yield f"no full evaluation qualifies; trial {number} is the best partial one ({fidelity})"
    what = counted(len(choice.weighted), "member") if choice.is_ensemble else f"trial {number}"
    yield f"fitting {what} on all training rows"
