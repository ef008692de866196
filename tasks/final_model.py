"""The final model of a study: its members fitted on all training rows, and put together."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from prefect_tune.optimizers.space.query import Query
from prefect_tune.storage.database import StoreLost
from prefect_tune.storage.files import StoreRefused
from prefect_tune.storage.record_ids import model_record
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import REFIT, load_split
from prefect_tune.tasks.ensembling.contributions import blend, shares
from prefect_tune.tasks.ensembling.model import ClassEnsemble, NumberEnsemble
from prefect_tune.tasks.evaluate import RunStep
from prefect_tune.tasks.objective.metric import Predictions
from prefect_tune.tasks.path_run import PathRun, StepFailed, StepOutcome
from prefect_tune.tasks.study_context import StudyContext, open_store
from prefect_tune.tasks.threads import one_thread

__all__ = ["Member", "RefitFailed", "fit_member", "keep_model"]

_PIN_SECONDS = 86_400.0
"""Longest time that what members are made of stays pinned after a session was killed."""


class RefitFailed(RuntimeError):  # noqa: N818 - it says what happened
    """A trial's configuration could not be fitted on all training rows; the message names it."""


@dataclass(frozen=True, slots=True)
class Member:
    """A trial's part in the final model.

    Attributes:
        number: Number of the trial.
        query: `Optimizer.refit` of the trial as JSON values.
        weight: Its weight in the model; 0 where it is only to be tested, alone.
    """

    number: int
    query: Mapping[str, Any]
    weight: float = 1.0


def fit_member(
    context: StudyContext, member: Member, run_step: RunStep, pinned_by: str = ""
) -> PathRun:
    """Fit a member on all training rows.

    Args:
        context: The study.
        member: The member.
        run_step: Does one step; either plainly or as a Prefect task.
        pinned_by: Who pins what it is made of, and instead of what else; empty for nobody.

    Raises:
        RefitFailed: If one of its steps cannot be done; names the trial.
        StoreLost: If the store cannot go on.
    """
    with _named(member), one_thread():
        query = Query.from_json(member.query, context.problem.find_space())
        path_run = PathRun(context, query, [REFIT])
        outcome: StepOutcome | None = None
        for position in range(len(path_run.steps)):
            if pinned_by:
                path_run.pin(pinned_by, _PIN_SECONDS)
            outcome = run_step(path_run, position, outcome)
        if pinned_by:
            path_run.pin(pinned_by, _PIN_SECONDS)
    return path_run


def keep_model(
    context: StudyContext,
    members: Sequence[Member],
    run_step: RunStep,
    single_best: int | None = None,
) -> tuple[float | None, float | None]:
    """Put the final model together from its members, keep it, and test it.

    Args:
        context: The study.
        members: Its members, each fitted or served, one after the other.
        run_step: Does one step of one of them.
        single_best: Number of the trial, one of them, that is tested alone too.

    Returns:
        Its loss on the test rows, and that of the trial alone; None where there is no such row.

    Raises:
        RefitFailed: If a member cannot be fitted; names the trial.
        StoreLost: If the store cannot go on.
    """
    store = open_store(context.store)
    dataset = load_dataset(store, context.problem.dataset)
    y = dataset.y[load_split(store, context.problem.split).held_out(REFIT)]
    n_classes, metric = len(dataset.classes), context.problem.find_metric()
    fitted = [_fitted(context, member, run_step) for member in members if member.weight]
    for member in members:
        if not member.weight:
            with suppress(RefitFailed):  # it is only to be compared with
                fitted.append(_fitted(context, member, run_step))
    weighted = [f for f in fitted if f.member.weight]
    try:
        model, predicted = _put_together(weighted, dataset.classes)
    except ValueError as error:
        numbers = ", ".join(str(f.member.number) for f in weighted)
        raise RefitFailed(f"trials {numbers}, in this order, make no ensemble: {error}") from error
    test_loss = metric.loss(y, predicted, n_classes) if len(y) else None
    alone = [f.predicted for f in fitted if f.member.number == single_best]
    about = {
        "trial": weighted[0].member.number,
        "members": [{"trial": f.member.number, "weight": f.member.weight} for f in weighted],
        "configuration": weighted[0].member.query["configuration"],
        "dataset": context.problem.dataset,
        "test_loss": test_loss,
    }
    record = model_record(context.study)
    store.records.put(record, {"model": model, "about": about})
    store.records.link([record, *(f.record for f in fitted)], context.study)
    store.index.flush()
    return test_loss, metric.loss(y, alone[0], n_classes) if alone and len(y) else None


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A member, its pipeline, the record of its predictions of the test rows, and these."""

    member: Member
    pipeline: Pipeline
    record: str
    predicted: Predictions


def _fitted(context: StudyContext, member: Member, run_step: RunStep) -> _Fitted:
    """Return a member fitted; what the cache has lost since it was fitted is made again."""
    nodes = fit_member(context, member, run_step).nodes(REFIT)
    with _named(member), one_thread():
        pipeline = Pipeline([(node.step, node.part("estimator")) for node in nodes])
        return _Fitted(member, pipeline, nodes[-1].record, nodes[-1].predictions())


def _put_together(fitted: Sequence[_Fitted], classes: Sequence[Any]) -> tuple[Any, Predictions]:
    """Return the model of some members, and its predictions of the test rows."""
    if len(fitted) == 1:
        return fitted[0].pipeline, fitted[0].predicted
    weights = [f.member.weight for f in fitted]
    contributed = [shares(f.predicted, len(classes)) for f in fitted]
    ensemble = ClassEnsemble if len(classes) else NumberEnsemble
    model = ensemble.of_fitted([f.pipeline for f in fitted], weights, classes)
    return model, blend(np.average(contributed, axis=0, weights=weights), len(classes))


@contextmanager
def _named(member: Member) -> Iterator[None]:
    """Name the trial in what is raised in the body, but for what no member can help.

    Raises:
        RefitFailed: Instead of anything else.
        StoreLost: As it is.
    """
    try:
        yield
    except Exception as error:
        step = error if isinstance(error, StepFailed) else None
        cause = step.__cause__ if step and step.__cause__ else error
        if isinstance(cause, StoreLost | StoreRefused):
            raise cause  # noqa: B904 - with the cause that it has
        where = f"{step.step}: " if step else ""
        reason = f"{where}{type(cause).__name__}: {cause}".split("\n", 1)[0]
        raise RefitFailed(
            f"trial {member.number} could not be fitted on all training rows: {reason}"
        ) from error
