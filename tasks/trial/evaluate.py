"""Evaluation of a query: each step in all folds, then the loss on the held-out rows.

In addition to the loss, quantities with constraints are measured once per model and fold, and risks
are computed in bootstraps of the held-out rows.

First, a pilot fits the pipeline on about a thousand rows to predict the duration of the trial. A
pilot takes a fraction of a second, and its results are neither stored nor scored.
"""

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from importlib.metadata import version
from math import ceil, isnan
from statistics import fmean
from typing import Any, Literal, TypeVar

import numpy as np
import sklearn
from sklearn.pipeline import Pipeline

from prefect_tune.optimizers.models.seconds import LIKELY, Costs, cheap_configuration
from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.configuration import Query
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.objective import Bootstraps, Objective
from prefect_tune.optimizers.trials.outcome import Evaluation, Failure, FailureKind, Pilot, StepCost
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.codec import key_fingerprint
from prefect_tune.storage.database import DatabaseLost, is_outage
from prefect_tune.storage.files import StoreAway, StoreRefused
from prefect_tune.storage.keys import quantity_record
from prefect_tune.storage.masking import masked
from prefect_tune.storage.processes import machine
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.storage.waiting import (
    DiskFull,
    Stopwatch,
    StoreLost,
    retry_while_unreachable,
    waits_counted,
)
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.spaces import algorithms_of, missing_libraries
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import load_split
from prefect_tune.tasks.fitting.fitting import fit_model, fit_transformer
from prefect_tune.tasks.fitting.recipe import MatrixSummary, imported, step_seed
from prefect_tune.tasks.objective.constraints import (
    ON_PREDICTIONS,
    HeldOutRows,
    measure_quantity,
)
from prefect_tune.tasks.objective.metric import Metric, Quantity
from prefect_tune.tasks.objective.risk import Resampling
from prefect_tune.tasks.problem import Problem, StudyContext, check_plugins, open_store
from prefect_tune.tasks.sandbox.child import loading, report_waits
from prefect_tune.tasks.sandbox.output import NOTHING, Printed
from prefect_tune.tasks.threads import one_thread
from prefect_tune.tasks.trial.node import Fold, IterativeNode, Node, summary_of_rows
from prefect_tune.tasks.trial.path_run import PathRun, PathStep, StepFailed, error_line, recipe_at
from prefect_tune.tasks.user_code import exits_as_errors, installed_version

_BOOTSTRAPS = 0x626F6F74
"""Key of the bootstraps' random stream, separate from all other streams of the study's seed."""

_WARM_ROWS, _ROWS, _HELD_OUT_ROWS = 100, 1_000, 4_000
"""Numbers of training rows for warming up libraries and for the pilot, and number of held-out rows,
large enough to make call overhead negligible."""
Result = TypeVar("Result")

Report = Literal["steps", "misses", "trial"]
"""Task runs that a trial reports: all steps, steps not served by the cache, or none."""


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """A worker's result: an evaluation, a failure, or the reason why the study cannot continue.

    Attributes:
        n_task_runs: Number of task runs reported, including the trial's own.
        lost: Reason why the study cannot continue, independent of the trial; empty otherwise.
        worker: Address of the Dask worker; empty without a worker.
        is_lost_to_all: Whether `lost` applies to all workers, for example because the store is
            full.
        printed: Output of the trial from Python, C libraries and child processes.
    """

    evaluation: Evaluation | None = None
    failure: Failure | None = None
    n_task_runs: int = 1
    lost: str = ""
    worker: str = ""
    is_lost_to_all: bool = False
    printed: Printed = NOTHING


def run_trial(
    context: StudyContext, query: Mapping[str, Any], pilot_seconds: float | None = None
) -> TrialOutcome:
    """Evaluate a query given as JSON values; see `evaluate_query`."""
    space = context.problem.find_space()
    try:
        came = evaluate_query(context, Query.from_json(query, space), space, pilot_seconds)
    except StoreLost as error:
        return TrialOutcome(lost=str(error), is_lost_to_all=isinstance(error, DiskFull))
    if isinstance(came, Evaluation):
        return TrialOutcome(came)
    return TrialOutcome(failure=came)


def evaluate_query(
    context: StudyContext,
    query: Query,
    space: Space | None = None,
    pilot_seconds: float | None = None,
) -> Evaluation | Failure:
    """Evaluate a query on its folds; a failure of the trial is a result, not an exception.

    The trial starts only if the pilot predicts at most `pilot_seconds`. If `pilot_seconds` is None,
    the pilot is skipped.

    Raises:
        StoreLost: If the store stays unreachable beyond the longest allowed outage, or if the
            study's records are missing or cannot be written.
    """
    return retry_through_outages(lambda: _evaluated(context, query, space, pilot_seconds))


def retry_through_outages(work: Callable[[], Result]) -> Result:
    """Repeat work interrupted by a store outage; raise `StoreLost` after a long outage."""
    try:
        with waits_counted(report_waits):
            return retry_while_unreachable(
                work,
                lambda e: (
                    isinstance(e, StoreAway) or (isinstance(e, DatabaseLost) and is_outage(e))
                ),
            )
    except StoreRefused as error:  # the flow was able to open this store
        raise StoreLost(str(error)) from error


def _evaluated(
    context: StudyContext, query: Query, space: Space | None, pilot_seconds: float | None
) -> Evaluation | Failure:
    stopwatch, load_seconds = Stopwatch(), 0.0
    path_run: PathRun | None = None
    piloted: Pilot | None = None
    try:
        with exits_as_errors(), one_thread():
            space = space or context.problem.find_space()
            pipeline = space.pipeline(query.configuration.path)
            load_seconds = load(context, (algorithm for _, algorithm in pipeline))
            stopwatch = Stopwatch()
            path_run = PathRun(context, query, space=space)
            is_served = path_run.is_served(len(path_run.steps) - 1)
            if pilot_seconds is not None and not is_served and context.epochs is None:
                piloted = pilot(path_run, space, pilot_seconds)
            with path_run.pinned():
                path_run.run_all()
                evaluation = _evaluation(path_run, stopwatch)
                return replace(evaluation, load_seconds=load_seconds, pilot=piloted)
    except Exception as error:
        failed = error if isinstance(error, StepFailed) else None
        cause = failed.__cause__ if failed and failed.__cause__ else error
        if isinstance(cause, StoreLost | StoreRefused):
            raise cause  # noqa: B904 - keeps its own cause
        too_long = cause if isinstance(cause, WillNotEnd) else None
        kind = FailureKind.TIMEOUT if too_long else FailureKind.ERROR
        return Failure(
            kind=FailureKind.MEMORY if isinstance(cause, MemoryError) else kind,
            message=str(too_long or error_line(cause)),
            traceback="" if too_long else masked("".join(traceback.format_exception(cause))),
            step=failed.step if failed else None,
            fold=failed.fold if failed else None,
            cost_seconds=stopwatch.seconds(),
            steps=path_run.costs() if path_run else (),
            load_seconds=load_seconds,
            pilot=too_long.pilot if too_long else piloted,
        )


def _evaluation(path_run: PathRun, stopwatch: Stopwatch) -> Evaluation:
    learning, context = path_run.learning, path_run.context
    models = [path_run.nodes(fold)[-1] for fold in path_run.folds]
    if learning is None:
        loss, y, n_classes = path_run.metric.loss, path_run.dataset.y, len(path_run.dataset.classes)
        losses = tuple(loss(y[m.fold.held_out], m.predictions(), n_classes) for m in models)
    else:
        losses = tuple(curve[learning.best_epoch - 1] for curve in learning.folds)
    served = [model.record for model in models if not model.is_linked]
    path_run.store.records.link(served, context.study)
    constraints = measure(path_run, context.quantities)
    risks: tuple[float, ...] = ()
    if context.bootstraps is not None and path_run.query.is_full:
        resampling = study_resampling(
            context.problem, path_run.metric, path_run.store, context.bootstraps
        )
        risks = tuple(map(float, resampling.risks([model.predictions() for model in models])))
    path_run.store.index.usage.flush()
    cost_seconds = stopwatch.seconds()
    steps = path_run.costs()
    saved = sum(cost.seconds - cost.load_seconds for cost in steps if cost.hit)
    saved += sum(model.earlier_seconds for model in models if not model.hit)
    rounds = [model.rounds for model in models if model.rounds is not None]
    evaluation = Evaluation(
        loss=sum(losses) / len(losses),
        fold_losses=losses,
        cost_seconds=cost_seconds,
        cost_uncached_seconds=cost_seconds + max(saved, 0.0),
        steps=steps,
        constraints=constraints,
        rounds=round(sum(rounds) / len(rounds)) if rounds else None,
        resumed_from=sum(bool(model.hit) for model in models),
        predictions=tuple(model.predictions_key for model in models),
        risks=risks,
    )
    if learning is None:
        return evaluation
    trained = [model for model in models if isinstance(model, IterativeNode)]
    troubles = (
        f"epoch {model.epochs + 1} of fold {model.fold.number} failed: {error_line(model.trouble)}"
        for model in trained
        if model.trouble
    )
    return replace(
        evaluation,
        curve=learning.mean,
        fold_curves=learning.folds,
        best_epoch=learning.best_epoch,
        resumed_from=min(model.resumed_from for model in trained),
        trouble=next(troubles, ""),
    )


class QuantityFailed(Exception):  # noqa: N818 - reads as an outcome
    """A quantity could not be measured; the exception's cause gives the reason."""


def measure(path_run: PathRun, quantities: Sequence[Quantity]) -> dict[str, float]:
    """Return the mean of each quantity over the folds of a finished query (equation A44), by text.

    Folds in which a quantity is undefined are skipped, as are quantities undefined in all folds. A
    value measured on the pipeline, such as a latency, varies between measurements, so the value is
    stored with the predictions and reused for all trials with the same model. If a model trains in
    epochs, values measured on the pipeline come from the last epoch, which is in memory, and values
    measured on predictions come from the best epoch.
    """
    values: dict[str, list[float]] = {quantity.text: [] for quantity in quantities}
    for fold in path_run.folds if quantities else ():
        nodes = path_run.nodes(fold)
        held_out = HeldOutRows(
            dataset=path_run.dataset,
            rows=nodes[-1].fold.held_out,
            predictions=nodes[-1].predictions(),
            metric=path_run.metric,
            pipeline=cache(partial(_pipeline, nodes)),
        )
        for quantity in quantities:
            values[quantity.text].append(_value(path_run, nodes[-1], quantity, held_out))
    defined = {text: [v for v in found if not isnan(v)] for text, found in values.items()}
    return {text: float(np.mean(found)) for text, found in defined.items() if found}


def _pipeline(nodes: Sequence[Node]) -> Pipeline:
    return Pipeline([(node.step, node.part("estimator")) for node in nodes])


def _value(path_run: PathRun, model: Node, quantity: Quantity, held_out: HeldOutRows) -> float:
    records, study = path_run.store.records, path_run.context.study
    record = quantity_record(model.key, quantity.digest)
    is_recorded = quantity.name not in ON_PREDICTIONS
    if is_recorded:
        try:
            known: float = records.get(record)["measured"]["value"]
        except RecordDamaged:  # damaged or never measured
            pass
        else:
            records.link([record], study)
            return known
    try:
        with exits_as_errors():
            value = measure_quantity(quantity, held_out)
    except (StoreLost, MemoryError):
        raise  # not caused by the quantity
    except Exception as error:
        what = f"--constraint {quantity.text}: {type(error).__name__}: {error}"
        raise QuantityFailed(what) from error
    if is_recorded:
        records.put(record, {"measured": {"quantity": quantity.text, "value": value}}, study)
    return value


@lru_cache(maxsize=4)
def study_resampling(
    problem: Problem, metric: Metric, store: ArtifactStore, bootstraps: Bootstraps
) -> Resampling:
    """Return the bootstraps of a study, drawn once per process but equal in all processes."""
    sequence = np.random.SeedSequence(problem.seed, spawn_key=(_BOOTSTRAPS,))
    return Resampling.of(
        load_dataset(store, problem.dataset),
        load_split(store, problem.split),
        metric,
        bootstraps,
        np.random.default_rng(sequence),
    )


class WillNotEnd(Exception):  # noqa: N818 - reads as an outcome
    """A trial was not started because its `pilot` predicts that the trial would take too long."""

    def __init__(self, pilot: Pilot) -> None:
        super().__init__(
            f"stopped after a fit on {pilot.rows:,} rows: the trial would take about "
            f"{pilot.seconds:.3g} s, but the limit is {pilot.limit_seconds:.3g} s"
        )
        self.pilot = pilot


def pilot(path_run: PathRun, space: Space, limit_seconds: float) -> Pilot | None:
    """Fit a trial's pipeline on few rows of the first fold, and predict the trial's duration.

    Returns None if the fit fails, for example because rows are too few. Raises `WillNotEnd` if the
    prediction exceeds the limit.
    """
    try:
        piloted = _predicted(path_run, space, limit_seconds)
    except Exception:
        return None
    if piloted.is_over_limit:
        raise WillNotEnd(piloted)
    return piloted


def _predicted(path_run: PathRun, space: Space, limit_seconds: float) -> Pilot:
    stopwatch = Stopwatch()
    split, query, dataset = path_run.split, path_run.query, path_run.dataset
    fold = path_run.fold(path_run.folds[0])
    n_rows = split.n_training(fold.number)
    held_out = split.held_out(fold.number)
    few_held_out = held_out[:: ceil(len(held_out) / _HELD_OUT_ROWS)]
    cheap = dict(cheap_configuration(space, query.configuration).choices)
    path = [(step, algorithm, cheap.get(step.name, own)) for step, algorithm, own in path_run.steps]
    for most_rows in (_WARM_ROWS, _ROWS):  # the first run is slower than later runs
        share = min(most_rows / n_rows, 1.0)
        few = split.training(fold.number, dataset.strata, share, query.subset_draw, dataset.groups)
        steps = _fitted(replace(fold, training=few, held_out=few_held_out), path)
    if split.trains is not None:  # forward-looking folds have different numbers of training rows
        n_rows = round(fmean(map(split.n_training, path_run.folds)))
    objective = Objective(n_rows=n_rows, n_held_out=len(held_out), n_folds=split.n_folds)
    costs = Costs(space, objective)
    piloted = Pilot(len(few), len(few_held_out), steps, 0.0, limit_seconds)
    costs.tell_pilot(query.configuration, piloted)
    seconds = costs.seconds(query, LIKELY)
    return replace(piloted, seconds=seconds, own_seconds=stopwatch.seconds())


def _fitted(fold: Fold, path: Sequence[PathStep]) -> tuple[StepCost, ...]:
    dataset, costs = fold.dataset, list[StepCost]()
    train, held_out = dataset.rows(fold.training), dataset.rows(fold.held_out)
    summary = summary_of_rows(dataset, len(fold.training))
    for position, (step, algorithm, _) in enumerate(path):
        if algorithm.is_passthrough:
            continue
        how = recipe_at(path, position, summary, dataset)
        seed = step_seed(fold.context.problem.seed, step.name, fold.number)
        # Few rows are fitted on one thread. If the trial has several threads, predictions are too
        # high until measured trials correct them, and again after the workers change.
        data = replace(fold.data(train, held_out), most_threads=1)
        if position == len(path) - 1:
            made, _ = fit_model(how, seed, data)
        else:
            made = fit_transformer(how, seed, data)
            train, held_out = made.parts["train"], made.parts["held_out"]
            summary = MatrixSummary(**made.summary)
        cost = StepCost(step.name, fold.number, made.seconds, 0.0, hit=False, key="")
        costs.append(replace(cost, held_out_seconds=made.held_out_seconds))
    return tuple(costs)


_LIBRARIES = "the libraries of the space's algorithms"
"""Optional libraries that algorithms of the space need, with their versions."""

INDEX_MACHINE = "machine of the index"
"""Name of a property of workers: the machine on which all users of the index must run (None: any).
"""


def load(context: StudyContext, algorithms: Iterable[Algorithm]) -> float:
    """Load a study's data and libraries before a trial's clock starts; return the seconds.

    If a library cannot be imported, only the steps that need the library will fail.

    Raises:
        StoreRefused, RecordDamaged, OSError: If the store or the data cannot be read.
    """
    stopwatch = Stopwatch()
    with loading(), one_thread():
        store, problem = open_store(context.store), context.problem
        load_dataset(store, problem.dataset)
        load_split(store, problem.split)
        for algorithm in algorithms:
            for path in (algorithm.import_path, algorithm.sparse_estimator):
                if path:
                    with suppress(Exception):
                        imported(path)
    return stopwatch.seconds()


def worker_environment(context: StudyContext) -> dict[str, Any]:
    """Return properties that must be equal in the flow and on each worker.

    Raises:
        StoreRefused, RecordDamaged, OSError: If the store, database or data set cannot be read
            here.
        BadInput: If a plugin of the study is missing or different here, or if a library needed by
            the space is unusable; the message contains a remedy.
    """
    check_plugins(context.problem.running_plugins)
    store = open_store(context.store)
    with one_thread():  # without this limit, libraries loaded here would keep all threads
        load_dataset(store, context.problem.dataset)
        space = context.problem.find_space()
    algorithms = algorithms_of(space)
    if missing := missing_libraries(algorithms):
        raise BadInput("; ".join(map(str, missing)))
    packages = sorted({package for algorithm in algorithms for package in algorithm.requires})
    return {
        "store": store.id,
        _LIBRARIES: ", ".join(f"{p} {installed_version(p)}" for p in packages) or "none",
        "space": space.digest,
        "scikit-learn": sklearn.__version__,
        "prefect-tune": version("prefect-tune"),
        "fingerprint of the signing key": key_fingerprint(),
        INDEX_MACHINE: machine() if store.database.is_of_one_machine else None,
    }
