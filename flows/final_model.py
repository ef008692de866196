"""The final model of a study: what the search has chosen, fitted on all training rows."""

from typing import Any

from prefect_tune.flows.progress import Observer
from prefect_tune.flows.study.ensemble import ChosenEnsemble, choose_ensemble
from prefect_tune.flows.study.explanations import most_frequent_failure, nearest_miss
from prefect_tune.flows.study.study import Study, StudyFailed
from prefect_tune.flows.units import counted, format_seconds, loss_name
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.record_ids import model_record
from prefect_tune.tasks.refit import refit
from prefect_tune.tasks.study_context import StudyContext

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
    """
    incumbent = _incumbent(study)
    size = study.plan.ensemble or 1
    chosen = choose_ensemble(study, "greedy", size) if size > 1 else None
    if chosen is not None and chosen.kind == "single":
        chosen = None
    weighted = chosen.members if chosen else _own_members(study)
    members = [{"trial": trial.number, "weight": weight} for trial, weight in weighted]
    what = f"trial {incumbent.number}" if len(members) == 1 else counted(len(members), "member")
    is_fitted = study.result.get("members") == members
    if is_fitted and study.store.records.is_whole(model_record(study.name)):
        return
    for text in _ensemble_notes(study, chosen, size, what):
        observer.note(text)
    observer.note(f"fitting {what} on all training rows (not counted in the budget)")
    parameters: dict[str, Any] = {
        "number": weighted[0][0].number,
        "members": [
            {"number": t.number, "query": study.optimizer.refit(t).to_json(), "weight": w}
            for t, w in weighted
        ],
        "context": context,
    }
    refitted = running.run(refit, parameters)
    study.set_result(
        members=members,
        ensemble=chosen.to_json() if chosen else None,
        test_loss=refitted.test_loss,
        refit_seconds=refitted.seconds,
    )
    observer.note(
        f"final model saved; {loss_name(study.plan.metric)} on the test rows "
        f"{refitted.test_loss:.4g} (fitted in {format_seconds(refitted.seconds)})"
    )


def _incumbent(study: Study) -> Trial:
    """Return the incumbent.

    Raises:
        StudyFailed: If there is none; says why.
    """
    if study.incumbent is not None:
        return study.incumbent
    if missed := nearest_miss(study):
        study.set_result(members=None, ensemble=None, test_loss=None)
        raise StudyFailed(f"study {study.name!r} ended without a model: {missed}")
    raise StudyFailed(
        f"study {study.name!r} ended without a completed trial: {most_frequent_failure(study)}"
    )


def _own_members(study: Study) -> tuple[tuple[Trial, float], ...]:
    """Return the trials and weights of the method's own answer, the heaviest first."""
    weights = study.optimizer.weights
    numbers = sorted(weights, key=lambda number: (-weights[number], number))
    return tuple((study.trials[number], weights[number]) for number in numbers)


def _ensemble_notes(study: Study, chosen: ChosenEnsemble | None, size: int, what: str) -> list[str]:
    """Return what a user who asked for an ensemble should know of the one that was chosen."""
    if size == 1:
        return []
    if chosen is None:
        return [
            f"no ensemble is better on the held-out rows than the best full trial; {what} is taken"
        ]
    notes = []
    if len(chosen.losses) < size:
        notes.append(f"the ensemble has {len(chosen.losses)} picks; adding more does not help")
    if len(chosen.members) > 1 and study.plan.bounds:
        notes.append("each member meets the constraints; the ensemble is slower and larger")
    return notes
