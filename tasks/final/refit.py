"""The final model of a study: members fitted on all training rows, then combined.

Test rows are not read until the model is stored. If there is no time to refit a member on all
training rows, the member is the mean of the trial's fold models in the cache. A model that cannot
be scored on the test rows is still kept.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from prefect_tune.optimizers.space.configuration import Query
from prefect_tune.storage.codec import NotPicklable
from prefect_tune.storage.files import StoreRefused
from prefect_tune.storage.keys import model_record
from prefect_tune.storage.masking import masked
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.data.dataset import Dataset, load_dataset
from prefect_tune.tasks.data.split import REFIT, Split, load_split
from prefect_tune.tasks.final.ensemble import ClassEnsemble, NumberEnsemble
from prefect_tune.tasks.objective.comparison import usefulness
from prefect_tune.tasks.objective.metric import EqualRows, Metric, Usefulness
from prefect_tune.tasks.objective.predictions import Predictions, predictions_of
from prefect_tune.tasks.problem import StudyContext, open_store
from prefect_tune.tasks.threads import one_thread
from prefect_tune.tasks.trial.evaluate import load, retry_through_outages
from prefect_tune.tasks.trial.path_run import PathRun, StepFailed
from prefect_tune.tasks.user_code import ProgramExit, exits_as_errors

_PIN_SECONDS = 86_400.0
"""Time after which pins on a member's step results expire if the session is killed."""
_FEW_ROWS = 20
"""Number of training rows predicted to check the stored model."""
_ROUNDING = 1e-3
"""Largest difference at which two predictions count as equal."""


class RefitFailed(RuntimeError):  # noqa: N818 - reads as an outcome
    """A trial cannot become part of the final model; the message names the trial."""


@dataclass(frozen=True, slots=True)
class Member:
    """A trial's part in the final model.

    Attributes:
        query: Query for the refit (`Optimizer.refit`) as JSON values; the trial's own query if
            `of_folds`.
        of_folds: Whether the member is the mean of the trial's fold models, read from the cache.
    """

    number: int
    query: Mapping[str, Any]
    weight: float = 1.0
    of_folds: bool = False


def fit_member(context: StudyContext, member: Member, pinned_by: str = "") -> PathRun:
    """Fit a member on all training rows, or read the trial's fold models from the cache.

    If `pinned_by` is given, the member's cached step results are pinned for this owner.

    Raises:
        RefitFailed: If a step fails, or the cache no longer has all fold models.
        StoreLost: If the store becomes unusable.
    """
    with _named(member), one_thread():
        query = Query.from_json(member.query, context.problem.find_space())
        folds = None if member.of_folds else [REFIT]
        path_run = PathRun(context, query, folds, holds_out=member.of_folds)
        with path_run.pinned() if member.of_folds else nullcontext():
            for position in range(len(path_run.steps)):
                if member.of_folds and not path_run.is_served(position):
                    raise LookupError("the models of the folds are no longer in the cache")
                if pinned_by:
                    path_run.pin(pinned_by, _PIN_SECONDS)
                path_run.run(position)
        if pinned_by:
            path_run.pin(pinned_by, _PIN_SECONDS)
    return path_run


def store_model(context: StudyContext, members: Sequence[Member]) -> None:
    """Combine the members into the final model, and store the model.

    Members are fitted or read from the cache. The record is published only if the model, when read
    back, predicts training rows as before.

    Raises:
        RefitFailed: If a member cannot be fitted, or the model cannot be stored.
        StoreLost: If the store becomes unusable.
    """
    store = open_store(context.store)
    classes = load_dataset(store, context.problem.dataset).learned_classes
    runs = [fit_member(context, member) for member in members]
    numbers = ", ".join(str(member.number) for member in members)
    try:
        models = [_model(m, run, classes) for m, run in zip(members, runs, strict=True)]
        model = _mean(models, [member.weight for member in members], classes)
    except ValueError as error:
        raise RefitFailed(f"trials {numbers} cannot form an ensemble: {error}") from error
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
        raise RefitFailed(f"the model of trial {numbers} cannot be stored: {error}") from error
    last = [run.nodes(fold)[-1].record for run in runs for fold in run.folds]
    store.records.link([record, *last], context.study)
    store.index.usage.flush()


def _model(member: Member, path_run: PathRun, classes: NDArray[Any]) -> Any:
    """Return the model of a fitted member; steps missing from the cache are recomputed."""
    with _named(member), one_thread():
        chains = [path_run.nodes(fold) for fold in path_run.folds]
        pipelines = [Pipeline([(n.step, n.part("estimator")) for n in nodes]) for nodes in chains]
    return _mean(pipelines, None, classes)


def _mean(models: Sequence[Any], weights: Sequence[float] | None, classes: NDArray[Any]) -> Any:
    if len(models) == 1:
        return models[0]
    ensemble = ClassEnsemble if len(classes) else NumberEnsemble
    return ensemble.of_fitted(models, weights, classes)


def _check_read_back(context: StudyContext, model: Any, parts: Mapping[str, Any]) -> None:
    """Raise `ValueError` if a model, when read back, predicts a few training rows differently.

    A model with random predictions passes if the predictions are usable.
    """
    store = open_store(context.store)
    dataset = load_dataset(store, context.problem.dataset)
    split = load_split(store, context.problem.split)
    rows = split.training(REFIT, dataset.strata)[:_FEW_ROWS]
    with one_thread():
        read, before, again = (
            predicted(one, dataset, rows) for one in (parts["model"], model, model)
        )
    if _is_same(before, again) and not _is_same(before, read):
        raise ValueError("the model predicts different values after it was stored and read back")


def _is_same(one: Predictions, other: Predictions) -> bool:
    values, others = (
        np.column_stack([p.label] if p.score is None else [p.label, p.score]) for p in (one, other)
    )
    is_alike = values.shape == others.shape
    return is_alike and np.allclose(values, others, rtol=_ROUNDING, atol=_ROUNDING)


@contextmanager
def _named(member: Member) -> Iterator[None]:
    """Convert errors in the body, except `StoreLost`, to `RefitFailed` with the trial's number."""
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
    """Return the pin owner for a member's refit; without a number, the prefix of all owners."""
    return f"refit {study} " + ("" if number is None else str(number))


def make_member(context: StudyContext, member: Member) -> tuple[int, int]:
    """Fit a member on all training rows, pin its results, and count computed and total steps."""
    _load(context, member)
    owner = member_pins(context.study, member.number)
    path_run = retry_through_outages(lambda: fit_member(context, member, owner))
    path_run.store.index.usage.flush()
    costs = path_run.costs()
    return sum(not cost.hit for cost in costs), len(costs)


def make_model(context: StudyContext, members: Sequence[Member]) -> float:
    """Fit or load the members, store the study's model, and return the seconds."""
    started = perf_counter()
    _load(context, *members)
    retry_through_outages(lambda: store_model(context, members))
    return perf_counter() - started


def _load(context: StudyContext, *members: Member) -> None:
    """Load data and libraries before the task's time is measured."""
    space = context.problem.find_space()
    paths = [Query.from_json(member.query, space).configuration.path for member in members]
    algorithms = [algorithm for path in paths for _, algorithm in space.pipeline(path)]
    retry_through_outages(lambda: load(context, algorithms))


@dataclass(frozen=True, slots=True)
class LossOnTest:
    """Loss of a model on the test rows; None without test rows or if `undefined` gives a reason.

    `is_final` is false if another attempt may succeed, for example after a worker died or a limit
    was exceeded. `usefulness` compares the model with a constant prediction; None if undefined.
    """

    loss: float | None
    undefined: str = ""
    is_final: bool = True
    usefulness: Usefulness | None = field(default=None, compare=False)
    equal: EqualRows | None = None


def scored_on_test(context: StudyContext, alone: Member | None) -> LossOnTest:
    """Score the study's model or, if given, the single trial `alone` on the test rows.

    If the trial is a member of the model, its fitted pipeline comes from the model; otherwise the
    pipeline is fitted.
    """
    _load(context)
    return retry_through_outages(lambda: _scored(context, alone))


def _scored(context: StudyContext, alone: Member | None) -> LossOnTest:
    store, problem = open_store(context.store), context.problem
    problem.find_space()  # imports the user's classes, needed to read the model
    dataset, split = load_dataset(store, problem.dataset), load_split(store, problem.split)
    if not len(split.held_out(REFIT)):
        return LossOnTest(None)
    parts = store.records.get(model_record(context.study))
    model, numbers = parts["model"], [member["trial"] for member in parts["about"]["members"]]
    if alone and alone.number in numbers and len(numbers) > 1:
        model = model.members_[numbers.index(alone.number)]
    elif alone:
        model = _model(alone, fit_member(context, alone), dataset.learned_classes)
    with one_thread():
        return loss_on_test(model, dataset, split, problem.find_metric())


def predicted(model: Any, dataset: Dataset, rows: NDArray[np.intp]) -> Predictions:
    """Return a model's predictions for rows of a data set; passes on the model's errors."""
    with exits_as_errors(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings are off, as during fitting
        return predictions_of(model, dataset.rows(rows), dataset.learned_classes)


def loss_on_test(model: Any, dataset: Dataset, split: Split, metric: Metric) -> LossOnTest:
    """Return the loss of a model on the test rows, or the reason why the loss is undefined."""
    rows = split.held_out(REFIT)
    if not len(rows):
        return LossOnTest(None)
    try:
        predictions = predicted(model, dataset, rows)
    except Exception as error:  # any error, because the model may be the user's
        return LossOnTest(None, f"the model cannot predict the test rows: {reason_of(error)}")
    whole = _loss(dataset, split, rows, predictions, metric)
    if split.equal is None:
        return whole
    is_equal = split.equal[rows]
    others = np.flatnonzero(~is_equal)
    other = _loss(dataset, split, rows[others], predictions.take(others), metric)
    are_left_out = dataset.is_test is not None and bool(2 * is_equal.sum() > len(rows))
    shown, beside = (other, whole) if are_left_out else (whole, other)
    equal = EqualRows(int(is_equal.sum()), len(rows), beside.loss, are_left_out)
    return replace(shown, equal=equal)


def _loss(
    dataset: Dataset,
    split: Split,
    rows: NDArray[np.intp],
    predictions: Predictions,
    metric: Metric,
) -> LossOnTest:
    if not len(rows):
        return LossOnTest(None, "every test row equals a training row")
    y, n_classes = dataset.y[rows], len(dataset.classes)
    missing = [str(dataset.classes[i]) for i in np.setdiff1d(np.arange(n_classes), y)]
    try:
        if missing and n_classes == 2 and not metric.declared.row_losses:
            raise ValueError(f"{metric.name} needs rows of both classes")  # noqa: TRY301
        loss = metric.loss(y, predictions, n_classes)
    except Exception as error:  # any error; for example, test rows may lack a class
        why = f"the test rows have no row of class {', '.join(missing)}; " if missing else ""
        return LossOnTest(None, why + reason_of(error))
    return LossOnTest(loss, usefulness=usefulness(dataset, split, metric, rows, predictions))


def reason_of(error: Exception) -> str:
    """Return the first line of an error, preceded by the type if the message is unclear."""
    text = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return masked(text.split("\n", 1)[0])
