"""The Prefect tasks of the steps, a thin skin that shows in the UI what each trial did.

Our store is the one source of truth, so Prefect's own caching and persistence of results are off. A
step that was served in every fold ends in the state that Prefect shows as Cached.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from prefect_tune.tasks.path_run import PathRun, StepOutcome

__all__ = ["step_task"]


def run_step(
    path_run: PathRun,
    position: int,
    algorithm: str,  # noqa: ARG001 - names the task run
    before: StepOutcome | None,  # noqa: ARG001 - Prefect draws the edge from it
) -> State[StepOutcome]:
    """Run one step of a trial in all its folds.

    Args:
        path_run: The trial on its way.
        position: Which step.
        algorithm: Id of its algorithm, for the name of the task run.
        before: What the step before handed on; Prefect draws the edge from it.
    """
    outcome = path_run.run(position)
    if outcome.is_cached:
        return Completed(name="Cached", message=f"prefix {outcome.keys[0][:12]}", data=outcome)
    message = (
        f"{outcome.n_cached} of {len(outcome.keys)} folds cached" if outcome.n_cached else None
    )
    return Completed(message=message, data=outcome)


@cache
def step_task(step: str) -> Callable[..., State[Any]]:
    """Return the Prefect task of a step, which bears its name."""
    return task(  # type: ignore[no-any-return, call-overload]
        run_step,
        name=step,
        task_run_name=f"{step}: {{algorithm}}",
        cache_policy=NO_CACHE,
        persist_result=False,
        log_prints=False,
    )
