"""The final model: the chosen configuration, fitted on all training rows, tested once."""

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed
from sklearn.pipeline import Pipeline

from prefect_tune.optimizers.configuration import Query
from prefect_tune.tasks.evaluate import ReportedSteps
from prefect_tune.tasks.prefix import Prefix, StepOutcome
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.split import REFIT
from prefect_tune.tasks.threads import one_thread

__all__ = ["Refitted", "model_record", "refit"]


@dataclass(frozen=True, slots=True)
class Refitted:
    """What came of the refit.

    Attributes:
        test_loss: Loss on the test rows.
        seconds: Wall time it took.
        n_task_runs: Task runs that were reported.
    """

    test_loss: float
    seconds: float
    n_task_runs: int


def model_record(study: str) -> str:
    """Id of the record that holds a study's final model."""
    return f"models/{study}"


@task(
    name="refit", task_run_name="refit trial {number}", cache_policy=NO_CACHE, persist_result=False
)
def refit(number: int, query: Mapping[str, Any], context: StudyContext) -> State[Refitted]:
    """Fit a configuration on all training rows, keep it as the study's model, and test it.

    Args:
        number: Number of the trial that it comes from.
        query: Its query as JSON values.
        context: The study.
    """
    started = perf_counter()
    reported = ReportedSteps("steps")
    configuration = Query.from_json(query, context.problem.find_space()).configuration
    prefix = Prefix(context, Query(configuration), folds=[REFIT])
    outcome: StepOutcome | None = None
    with one_thread():
        for position in range(len(prefix.steps)):
            outcome = reported.run_step(prefix, position, outcome)
    nodes = prefix.nodes(REFIT)
    model = nodes[-1]
    metric = context.problem.find_metric()
    test_loss = metric.loss(
        prefix.dataset.y[model.fold.held_out], model.predictions(), len(prefix.dataset.classes)
    )
    pipeline = Pipeline([(node.step, node.part("estimator")) for node in nodes])
    about = {
        "trial": number,
        "configuration": configuration.to_json(),
        "dataset": context.problem.dataset,
        "test_loss": test_loss,
    }
    record = model_record(context.study)
    prefix.store.records.put(record, {"model": pipeline, "about": about})
    prefix.store.records.link([record, model.record], context.study)
    prefix.store.index.flush()
    seconds = perf_counter() - started
    refitted = Refitted(test_loss, seconds, reported.n_task_runs)
    return Completed(message=f"test loss {test_loss:.4g}", data=refitted)
