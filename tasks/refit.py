"""The final model: the chosen configuration or ensemble, refitted on all training rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed
from sklearn.pipeline import Pipeline

from prefect_tune.optimizers.space.query import Query
from prefect_tune.storage.record_ids import model_record
from prefect_tune.tasks.data.split import REFIT
from prefect_tune.tasks.ensembling import ClassEnsemble, NumberEnsemble, blend, shares
from prefect_tune.tasks.evaluate import ReportedSteps
from prefect_tune.tasks.path_run import PathRun, StepOutcome
from prefect_tune.tasks.study_context import StudyContext
from prefect_tune.tasks.threads import one_thread

__all__ = ["Refitted", "refit"]


@dataclass(frozen=True, slots=True)
class Refitted:
    """Outcome of the refit.

    Attributes:
        test_loss: Loss on the test rows.
        seconds: Wall time it took.
        n_task_runs: Task runs that were reported.
    """

    test_loss: float
    seconds: float
    n_task_runs: int


@task(
    name="refit", task_run_name="refit trial {number}", cache_policy=NO_CACHE, persist_result=False
)
def refit(
    number: int, members: Sequence[Mapping[str, Any]], context: StudyContext
) -> State[Refitted]:
    """Fit configurations on all training rows, keep them as the study's model, and test it.

    Args:
        number: Number of the trial that the first one comes from.
        members: Of each one `number`, `query` (`Trial.refit_query` as JSON values), and `weight`
            in the ensemble.
        context: The study.
    """
    started = perf_counter()
    reported = ReportedSteps("steps")
    space = context.problem.find_space()
    pipelines, records, contributed = [], [], []
    for member in members:
        path_run = PathRun(context, Query.from_json(member["query"], space), [REFIT])
        outcome: StepOutcome | None = None
        with one_thread():
            for position in range(len(path_run.steps)):
                outcome = reported.run_step(path_run, position, outcome)
        nodes = path_run.nodes(REFIT)
        pipelines.append(Pipeline([(node.step, node.part("estimator")) for node in nodes]))
        records.append(nodes[-1].record)
        contributed.append(nodes[-1].predictions())
    rows, dataset = nodes[-1].fold.held_out, path_run.dataset
    weights = [member["weight"] for member in members]
    n_classes = len(dataset.classes)
    predicted = contributed[0]
    model: Any = pipelines[0]
    if len(members) > 1:
        given = [shares(predictions, n_classes) for predictions in contributed]
        predicted = blend(np.average(given, axis=0, weights=weights), n_classes)
        model = (ClassEnsemble if n_classes else NumberEnsemble).of_fitted(pipelines, weights)
    test_loss = context.problem.find_metric().loss(dataset.y[rows], predicted, n_classes)
    about = {
        "trial": number,
        "members": [{"trial": m["number"], "weight": m["weight"]} for m in members],
        "configuration": members[0]["query"]["configuration"],
        "dataset": context.problem.dataset,
        "test_loss": test_loss,
    }
    record = model_record(context.study)
    path_run.store.records.put(record, {"model": model, "about": about})
    path_run.store.records.link([record, *records], context.study)
    path_run.store.index.flush()
    seconds = perf_counter() - started
    refitted = Refitted(test_loss, seconds, reported.n_task_runs)
    return Completed(message=f"test loss {test_loss:.4g}", data=refitted)
