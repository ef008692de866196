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
from prefect_tune.flows.study.study import Study, StudyFailed
from prefect_tune.flows.units import counted, format_seconds, loss_name
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.record_ids import model_record
from prefect_tune.tasks.study_context import StudyContext
from prefect_tune.tasks.threads import one_thread

__all__ = ["fit_final_model"]


def fit_final_model(
    study: Study, running: DaskTrials, context: StudyContext, observer: Observer
) -> None:
    """Fit the incumbent or an ensemble, unless that is what the study's model already is.

    Args:
        study: A study whose search has ended.
        running: Workers to fit on.
        context: The study, for the workers.
        observer: Follows the study.

    Raises:
        StudyFailed: If there is no incumbent.
        RefitFailed: If a trial cannot be fitted on all training rows; names it.
    """
    incumbent = _incumbent(study)
    restore = partial(restore_predictions, study, running, context, observer)
    choice = _choice(study, incumbent, restore)
    if _is_fitted(study, choice, incumbent):
        study.set_result(ensemble=choice.ensemble)
        return
    for text in _notes(study, choice):
        observer.note(text)
    refitted, seconds = refit_model(study, running, context, choice.weighted, incumbent)
    study.set_result(
        members=choice.members,
        single_best=incumbent.number,
        ensemble=choice.ensemble,
        test_loss=refitted.test_loss,
        single_best_test_loss=refitted.single_best_test_loss,
        refit_seconds=seconds,
    )
    alone = f", trial {incumbent.number} alone {refitted.single_best_test_loss:.4g}"
    observer.note(
        f"final model saved; {loss_name(study.plan.metric)} on the test rows "
        f"{refitted.test_loss:.4g}{alone if choice.is_ensemble else ''} "
        f"(fitted in {format_seconds(seconds)})"
    )


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
    rule = study.plan.ensemble or (EnsembleRule(declared) if declared else None)
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
