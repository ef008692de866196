"""The final model of a study: members fitted on all training rows, then combined.

Test rows are not read until the model is stored. A member without time for a refit on all training
rows is the mean of the trial's fold models in the cache.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from prefect_tune.optimizers.space.configuration import Query
from prefect_tune.storage.codec import NotPicklable, decode, encode
from prefect_tune.storage.files import StoreRefused
from prefect_tune.storage.keys import model_record
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import REFIT, load_split
from prefect_tune.tasks.ensembling.model import ClassEnsemble, NumberEnsemble
from prefect_tune.tasks.fitting.final_scoring import LossOnTest, loss_on_test, predicted
from prefect_tune.tasks.objective.predictions import Predictions
from prefect_tune.tasks.problem import StudyContext, open_store
from prefect_tune.tasks.sandbox.readiness import load
from prefect_tune.tasks.threads import one_thread
from prefect_tune.tasks.trial.evaluate import retry_through_outages
from prefect_tune.tasks.trial.path_run import PathRun, StepFailed
from prefect_tune.tasks.user_code import ProgramExit, exits_as_errors

_PIN_SECONDS = 86_400.0
"""Pins on a member's artifacts expire after this time if the session is killed."""
_FEW_ROWS = 20
"""Training rows that are predicted to check the stored model."""
_ROUNDING = 1e-3
"""Largest difference at which two predictions count as equal."""


class RefitFailed(RuntimeError):  # noqa: N818 - reads as an outcome
    """A trial's configuration cannot become the final model; the message names the trial."""


@dataclass(frozen=True, slots=True)
class Member:
    """A trial's part in the final model.

    Attributes:
        query: `Optimizer.refit` of the trial as JSON values; the trial's own query if `of_folds`.
        of_folds: Whether the member is the mean of the trial's fold models, read from the cache.
    """

    number: int
    query: Mapping[str, Any]
    weight: float = 1.0
    of_folds: bool = False


def fit_member(context: StudyContext, member: Member, pinned_by: str = "") -> PathRun:
    """Fit a member on all training rows.

    The member's artifacts are pinned for `pinned_by`, if given.

    Raises:
        RefitFailed: If a step fails; the message names the trial.
        StoreLost: If the store is lost.
    """
    with _named(member), one_thread():
        query = Query.from_json(member.query, context.problem.find_space())
        path_run = PathRun(context, query, [REFIT], holds_out=False)
        for position in range(len(path_run.steps)):
            if pinned_by:
                path_run.pin(pinned_by, _PIN_SECONDS)
            path_run.run(position)
        if pinned_by:
            path_run.pin(pinned_by, _PIN_SECONDS)
    return path_run


def store_model(context: StudyContext, members: Sequence[Member]) -> None:
    """Combine the members, fitted or read from the cache, into the final model and store it.

    The record is published only if the model, read back, predicts training rows as before.

    Raises:
        RefitFailed: If a member cannot be fitted or stored; the message names the trial.
        StoreLost: If the store is lost.
    """
    store = open_store(context.store)
    dataset = load_dataset(store, context.problem.dataset)
    fitted = [_fitted(context, member) for member in members]
    try:
        model = _combined(fitted, dataset.learned_classes)
    except ValueError as error:
        numbers = ", ".join(str(f.member.number) for f in fitted)
        raise RefitFailed(f"trials {numbers}, in this order, form no ensemble: {error}") from error
    about = {
        "trial": members[0].number,
        "members": [{"trial": member.number, "weight": member.weight} for member in members],
        "of_folds": any(member.of_folds for member in members),
        "subset": min(member.query["subset"] for member in members),
        "configuration": members[0].query["configuration"],
        "dataset": context.problem.dataset,
    }
    record = model_record(context.study)
    try:
        check = partial(_check_read_back, context, model)
        with exits_as_errors():
            store.records.put(record, {"model": model, "about": about}, check=check)
    except (NotPicklable, ProgramExit) as error:
        raise _store_failure(fitted, error) from error
    store.records.link([record, *(r for f in fitted for r in f.records)], context.study)
    store.index.usage.flush()


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A member: pipelines (one per fold if `of_folds`, else one), and last records."""

    member: Member
    pipelines: tuple[Pipeline, ...]
    records: tuple[str, ...]

    def model(self, classes: NDArray[Any]) -> Any:
        return _mean(self.pipelines, None, classes)


def _fitted(context: StudyContext, member: Member) -> _Fitted:
    """Return a fitted member; artifacts that the cache has lost are recomputed."""
    path_run = (_served_folds if member.of_folds else fit_member)(context, member)
    with _named(member), one_thread():
        chains = [path_run.nodes(fold) for fold in path_run.folds]
        return _Fitted(
            member,
            tuple(Pipeline([(n.step, n.part("estimator")) for n in nodes]) for nodes in chains),
            tuple(nodes[-1].record for nodes in chains),
        )


def _served_folds(context: StudyContext, member: Member) -> PathRun:
    """Return the run of a trial's folds if the cache has every model, else raise RefitFailed."""
    with _named(member), one_thread():
        path_run = PathRun(context, Query.from_json(member.query, context.problem.find_space()))
        with path_run.pinned():
            for position in range(len(path_run.steps)):
                if not path_run.is_served(position):
                    raise LookupError("models of its folds are no longer in the cache")
                path_run.run(position)
    return path_run


def _combined(fitted: Sequence[_Fitted], classes: NDArray[Any]) -> Any:
    weights = [f.member.weight for f in fitted]
    return _mean([f.model(classes) for f in fitted], weights, classes)


def _mean(models: Sequence[Any], weights: Sequence[float] | None, classes: NDArray[Any]) -> Any:
    if len(models) == 1:
        return models[0]
    ensemble = ClassEnsemble if len(classes) else NumberEnsemble
    return ensemble.of_fitted(models, weights, classes)


def _check_read_back(context: StudyContext, model: Any, parts: Mapping[str, Any]) -> None:
    """Raise ValueError if a model, once read back, predicts other values for a few training rows.

    A model with random predictions passes if it predicts anything.
    """
    store = open_store(context.store)
    dataset = load_dataset(store, context.problem.dataset)
    split = load_split(store, context.problem.split)
    rows = split.training(REFIT, dataset.strata)[:_FEW_ROWS]
    with one_thread():
        read, read_again, before, again = (
            predicted(one, dataset, rows) for one in (parts["model"], parts["model"], model, model)
        )
    if _is_same(before, again) and _is_same(read, read_again) and not _is_same(before, read):
        raise ValueError("the model predicts other values after it was stored than before")


def _is_same(one: Predictions, other: Predictions) -> bool:
    if one.score is None or other.score is None:
        return one.score is other.score and _is_close(one.label, other.label)
    return _is_close(one.label, other.label) and _is_close(one.score, other.score)


def _is_close(one: NDArray[Any], other: NDArray[Any]) -> bool:
    is_alike = one.shape == other.shape
    return is_alike and np.allclose(one, other, rtol=_ROUNDING, atol=_ROUNDING)


def _store_failure(fitted: Sequence[_Fitted], error: NotPicklable | ProgramExit) -> RefitFailed:
    for member in fitted:
        for step, estimator in (one for pipeline in member.pipelines for one in pipeline.steps):
            if reason := _store_problem(estimator):
                message = f"trial {member.member.number} cannot be stored: {step}: {reason}"
                return RefitFailed(message)
    numbers = ", ".join(str(f.member.number) for f in fitted)
    name = f"trial {numbers}" if len(fitted) == 1 else f"the ensemble of trials {numbers}"
    return RefitFailed(f"{name} cannot be stored: {error}")


def _store_problem(estimator: Any) -> str:
    """Return why an estimator cannot be written or read back; empty if it can."""
    try:
        with exits_as_errors():
            encoded = encode(estimator)
            decode(encoded.codec, encoded.data)
    except NotPicklable as error:
        return str(error)
    except Exception as error:  # any kind: unpickling runs the objects' own code
        reason = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        return f"{type(estimator).__name__} cannot be read back: {reason}"
    return ""


@contextmanager
def _named(member: Member) -> Iterator[None]:
    """Turn errors of the body into RefitFailed with the trial's number, except a lost store."""
    try:
        with exits_as_errors():
            yield
    except Exception as error:
        step = error if isinstance(error, StepFailed) else None
        cause = step.__cause__ if step and step.__cause__ else error
        if isinstance(cause, StoreLost | StoreRefused):
            raise cause  # noqa: B904 - keeps its own cause
        where = f"{step.step}: " if step else ""
        reason = f"{where}{type(cause).__name__}: {cause}".split("\n", 1)[0]
        raise RefitFailed(
            f"trial {member.number} could not be fitted on all training rows: {reason}"
        ) from error


def member_pins(study: str, number: int | None = None) -> str:
    """Return the owner of the pins on a member's artifacts; without a number, the common prefix."""
    return f"refit {study} " + ("" if number is None else str(number))


def make_member(context: StudyContext, member: Member) -> tuple[int, int]:
    """Fit a member on all training rows, and pin its artifacts; return its steps, made and all."""
    _load(context, member)
    owner = member_pins(context.study, member.number)
    path_run = retry_through_outages(lambda: fit_member(context, member, owner))
    path_run.store.index.usage.flush()
    costs = path_run.costs()
    return sum(not cost.hit for cost in costs), len(costs)


def make_model(context: StudyContext, members: Sequence[Member]) -> float:
    """Store the study's model, of members fitted now or before; return the seconds it took."""
    started = perf_counter()
    _load(context, *members)
    retry_through_outages(lambda: store_model(context, members))
    return perf_counter() - started


def scored_on_test(context: StudyContext, alone: Member | None) -> LossOnTest:
    """Score the study's model, or the trial `alone`, on the test rows.

    The trial's pipeline comes from the model if the trial is a member of it, and is fitted if not.
    """
    _load(context)
    return retry_through_outages(lambda: _scored(context, alone))


def _load(context: StudyContext, *members: Member) -> None:
    """Load data and libraries before the clock of the task starts."""
    space = context.problem.find_space()
    queries = (Query.from_json(member.query, space) for member in members)
    paths = (space.pipeline(query.configuration.path) for query in queries)
    retry_through_outages(
        lambda: load(context, [algorithm for path in paths for _, algorithm in path])
    )


def _scored(context: StudyContext, alone: Member | None) -> LossOnTest:
    store, problem = open_store(context.store), context.problem
    problem.find_space()  # imports the user's classes, which the model needs to be read
    dataset, split = load_dataset(store, problem.dataset), load_split(store, problem.split)
    if not len(split.held_out(REFIT)):
        return LossOnTest(None)
    model = _pipeline_alone(context, alone) if alone else _stored(context)["model"]
    with one_thread():
        return loss_on_test(model, dataset, split, problem.find_metric())


def _stored(context: StudyContext) -> Mapping[str, Any]:
    return open_store(context.store).records.get(model_record(context.study))


def _pipeline_alone(context: StudyContext, alone: Member) -> Any:
    """Return the model of one trial, from the stored model if the trial is a member of it."""
    parts = _stored(context)
    numbers = [member["trial"] for member in parts["about"]["members"]]
    if alone.number in numbers and len(numbers) > 1:
        return parts["model"].members_[numbers.index(alone.number)]
    classes = load_dataset(open_store(context.store), context.problem.dataset).learned_classes
    return _fitted(context, alone).model(classes)
