"""Trials that do nothing, or burn a second of CPU, with five step tasks each."""

from time import process_time
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

__all__ = ["N_STEPS", "burn", "burning_trial", "null_trial"]

N_STEPS = 5


@task(cache_policy=NO_CACHE, persist_result=False, task_run_name="step {number}")
def null_step(number: int) -> State[Any]:  # noqa: ARG001 - names the task run
    return Completed(message="nothing to do")


@task(cache_policy=NO_CACHE, persist_result=False, task_run_name="trial {number}")
def null_trial(number: int) -> State[Any]:
    for step in range(N_STEPS):
        null_step(step, return_state=True)
    return Completed(data=number)


@task(cache_policy=NO_CACHE, persist_result=False, task_run_name="trial {number}")
def burning_trial(number: int) -> State[Any]:
    for step in range(N_STEPS):
        null_step(step, return_state=True)
    burn()
    return Completed(data=number)


def burn(seconds: float = 1.0) -> int:
    """Use that much CPU."""
    until, n = process_time() + seconds, 0
    while process_time() < until:
        n += 1
    return n
