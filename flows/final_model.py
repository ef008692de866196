"""The final model of a study: what the search has chosen, fitted on all training rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from prefect_tune.flows.lost_predictions import restore_predictions
from prefect_tune.flows.progress import Observer
from prefect_tune.flows.refitting import refit_model
from prefect_tune.flows.study.ensemble import ChosenEnsemble, choose_ensemble
from prefect_tune.flows.study.ensemble_rule import EnsembleRule
from prefect_tune.flows.study.explanations import most_frequent_failure, nearest_miss
from prefect_tune.flows.study.finalists import ends_in_one
from prefect_tune.flows.study.study import Study, StudyFailed
from prefect_tune.flows.units import counted, format_seconds, loss_name
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.record_ids import model_record
from prefect_tune.tasks.final_model import RefitFailed
from prefect_tune.tasks.refit import Refitted
from prefect_tune.tasks.study_context import StudyContext
from prefect_tune.tasks.threads import one_thread

__all__ = ["fit_final_model"]

_MOST_OTHERS = 3
"""Of the next best trials, how many are tried where the best cannot be fitted in time."""


def fit_final_model(
    study: Study, running: DaskTrials, context: StudyContext, observer: Observer
) -> None:
    """Fit the incumbent or an ensemble, unless that is what the study's model already is.

    Where that cannot be fitted on all training rows within limits, the next best trial is taken.

    Args:
        study: A study whose search has ended.
        running: Workers to fit on.
        context: The study, for the workers.
        observer: Follows the study.

    Raises:
        StudyFailed: If there is no incumbent.
        RefitFailed: If no trial of the best ones can be fitted on all training rows; names one.
    """
    incumbent = _incumbent(study)
    restore = partial(restore_predictions, study, running, context, observer)
    choice = _choice(study, incumbent, restore)
    if _is_replaced(study, choice):
        return
    if _is_fitted(study, choice, incumbent):
        study.set_result(ensemble=choice.ensemble)
        return
    for text in _notes(study, choice):
        observer.note(text)
    fitted, refitted, seconds = _fitted(study, running, context, choice, observer)
    best = fitted.single_best(incumbent)
    study.set_result(
        members=fitted.members,
        single_best=best.number,
        ensemble=fitted.ensemble,
        test_loss=refitted.test_loss,
        single_best_test_loss=refitted.single_best_test_loss,
        refit_seconds=seconds,
        instead_of=None if fitted == choice else _attempt(study, choice),
    )
    tested = _tested(study.plan.metric, refitted, best if fitted.is_ensemble else None)
    observer.note(f"final model saved{tested} (fitted in {format_seconds(seconds)})")


def _tested(metric: str, refitted: Refitted, alone: Trial | None) -> str:
    """Return the losses on the test rows, of a trial alone too; empty without such rows."""
    if refitted.test_loss is None:
        return ""
    text = f"; {loss_name(metric)} on the test rows {refitted.test_loss:.4g}"
    if alone is None:
        return text
    return f"{text}, trial {alone.number} alone {refitted.single_best_test_loss:.4g}"


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
    declared = study.optimizer.method.ensemble
    if declared == "auto" and study.plan.bounds:  # it would be slower and larger than what is bound
        declared = None
    rule = study.plan.ensemble or (EnsembleRule(declared) if declared else None)
    if ends_in_one(study.plan, study.optimizer):
        return _Choice(((incumbent, 1.0),), rule)
    if rule is None:
        weights = study.optimizer.weights
        numbers = sorted(weights, key=lambda number: (-weights[number], number))
        return _Choice(tuple((study.trials[number], weights[number]) for number in numbers))
    with one_thread():
        is_single = rule.kind == "single"
        chosen = None if is_single else choose_ensemble(study, rule.kind, rule.size, restore)
    if chosen is None or chosen.kind == "single":
        return _Choice(((incumbent, 1.0),), rule, chosen)
    return _Choice(chosen.members, rule, chosen)


def _fitted(
    study: Study,
    running: DaskTrials,
    context: StudyContext,
    choice: _Choice,
    observer: Observer,
) -> tuple[_Choice, Refitted, float]:
    """Fit what was chosen, or else the best trial that can be fitted.

    Returns:
        What was fitted, the outcome, and the seconds that it took.

    Raises:
        RefitFailed: If none of the best trials can be.
    """
    incumbent = _incumbent(study)
    candidates = [choice, *_instead(study, choice, incumbent)]
    for position, candidate in enumerate(candidates, 1):
        best, weighted = candidate.single_best(incumbent), candidate.weighted
        try:
            return candidate, *refit_model(study, running, context, weighted, best)
        except RefitFailed as error:
            if position == len(candidates):
                raise
            number = candidates[position].weighted[0][0].number
            observer.note(f"{error}; trial {number} is fitted instead")
    raise AssertionError("there is always a candidate")


def _instead(study: Study, choice: _Choice, incumbent: Trial) -> list[_Choice]:
    """Return what to fit where a choice cannot be: single trials, the best first."""
    history = study.optimizer.history
    full = [t for t in history.complete if history.violation(t) <= 0]
    ranked = sorted(full or history.stopped, key=lambda t: (t.loss, t.number))
    others = [t for t in ranked if t.number != incumbent.number][:_MOST_OTHERS]
    singles = [incumbent, *others] if choice.is_ensemble else others
    return [_Choice(((trial, 1.0),)) for trial in singles]


def _is_replaced(study: Study, choice: _Choice) -> bool:
    """Return whether the study's model was taken instead of this, within the same limits."""
    is_same = study.result.get("instead_of") == _attempt(study, choice)
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
        study.set_result(members=None, ensemble=None, test_loss=None, single_best_test_loss=None)
        raise StudyFailed(f"study {study.name!r} ended without a model: {missed}")
    raise StudyFailed(
        f"study {study.name!r} ended without a completed trial: {most_frequent_failure(study)}"
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
    if choice.is_ensemble and study.plan.bounds:
        yield "each member meets the constraints; the ensemble is slower and larger"
    if choice.is_ensemble and not study.plan.use_cache:
        yield "without a cache, members are fitted one after the other"
    what = counted(len(choice.weighted), "member") if choice.is_ensemble else f"trial {number}"
    yield f"fitting {what} on all training rows (not counted in the budget)"
