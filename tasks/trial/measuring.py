"""Measurements other than the loss: quantities, once per model and fold, and bootstrap risks."""

from collections.abc import Sequence
from functools import cache, lru_cache
from math import isnan

import numpy as np
from sklearn.pipeline import Pipeline

from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.keys import quantity_record
from prefect_tune.storage.records import RecordDamaged, Records
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import load_split
from prefect_tune.tasks.objective.constraints import (
    ON_PREDICTIONS,
    HeldOutRows,
    measure_quantity,
)
from prefect_tune.tasks.objective.declaration import Quantity
from prefect_tune.tasks.objective.metric import Metric
from prefect_tune.tasks.objective.risk import Resampling
from prefect_tune.tasks.problem import Problem
from prefect_tune.tasks.trial.node import Node
from prefect_tune.tasks.trial.path_run import PathRun
from prefect_tune.tasks.user_code import exits_as_errors

_BOOTSTRAPS = 0x626F6F74
"""Key of the bootstraps' random stream, separate from all other draws of the study's seed."""


class QuantityFailed(Exception):  # noqa: N818 - reads as an outcome
    """A quantity could not be measured; the reason is chained as its cause."""


def measure(path_run: PathRun, quantities: Sequence[Quantity]) -> dict[str, float]:
    """Return each quantity's mean over the folds of a finished query, by its text (equation A44).

    Folds in which a quantity is undefined are skipped, and so is a quantity undefined in all folds.
    Values measured on the pipeline are stored with the predictions and hold for all trials with the
    model, because latencies vary. For a model in epochs, they come from the last epoch, which is in
    memory, and values measured on predictions come from the best epoch.
    """
    values: dict[str, list[float]] = {quantity.text: [] for quantity in quantities}
    for fold in path_run.folds if quantities else ():
        nodes = path_run.nodes(fold)
        held_out = _held_out(path_run, nodes)
        for quantity in quantities:
            values[quantity.text].append(_value(path_run, nodes[-1], quantity, held_out))
    defined = {text: [v for v in found if not isnan(v)] for text, found in values.items()}
    return {text: float(np.mean(found)) for text, found in defined.items() if found}


def measure_risks(path_run: PathRun, models: Sequence[Node]) -> tuple[float, ...]:
    """Return the loss in each bootstrap the method needs; empty unless the query is full."""
    context = path_run.context
    if context.bootstraps is None or not path_run.query.is_full:
        return ()
    resampling = study_resampling(
        context.problem, path_run.metric, path_run.store, context.bootstraps
    )
    risks = resampling.risks([model.predictions() for model in models])
    return tuple(float(risk) for risk in risks)


@lru_cache(maxsize=4)
def study_resampling(
    problem: Problem, metric: Metric, store: ArtifactStore, bootstraps: Bootstraps
) -> Resampling:
    """Return the bootstraps of a study, drawn once per process and equal in all processes."""
    sequence = np.random.SeedSequence(problem.seed, spawn_key=(_BOOTSTRAPS,))
    return Resampling.of(
        load_dataset(store, problem.dataset),
        load_split(store, problem.split),
        metric,
        bootstraps,
        np.random.default_rng(sequence),
    )


def _value(path_run: PathRun, model: Node, quantity: Quantity, held_out: HeldOutRows) -> float:
    if quantity.name in ON_PREDICTIONS:
        return _measured(quantity, held_out)
    records = path_run.store.records
    record = quantity_record(model.key, quantity.digest)
    if (kept := _kept(records, record)) is not None:
        records.link([record], path_run.context.study)
        return kept
    value = _measured(quantity, held_out)
    about = {"quantity": quantity.text, "value": value}
    records.put(record, {"measured": about}, path_run.context.study)
    return value


def _kept(records: Records, record: str) -> float | None:
    try:
        kept: float = records.get(record)["measured"]["value"]
    except RecordDamaged:  # or it was never measured
        return None
    return kept


def _measured(quantity: Quantity, held_out: HeldOutRows) -> float:
    try:
        with exits_as_errors():
            return measure_quantity(quantity, held_out)
    except (StoreLost, MemoryError):
        raise  # about the study or the trial's limits, not about the quantity
    except Exception as error:
        what = f"--constraint {quantity.text}: {type(error).__name__}: {error}"
        raise QuantityFailed(what) from error


def _held_out(path_run: PathRun, nodes: Sequence[Node]) -> HeldOutRows:
    return HeldOutRows(
        dataset=path_run.dataset,
        rows=nodes[-1].fold.held_out,
        predictions=nodes[-1].predictions(),
        metric=path_run.metric,
        pipeline=cache(lambda: Pipeline([(n.step, n.part("estimator")) for n in nodes])),
    )
