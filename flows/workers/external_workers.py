"""Checks of external workers before their first trial of a study."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import distributed
from distributed.comm import CommClosedError

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.sandbox.dask_runner import DaskTask
from prefect_tune.tasks.sandbox.readiness import INDEX_MACHINE, worker_environment
from prefect_tune.tasks.sandbox.sandbox import SANDBOXES, Limits


async def environment_of_sandbox(context: StudyContext) -> Mapping[str, Any]:
    """Return the environment of a sandbox of this worker; runs beside the worker's tasks."""
    return await asyncio.to_thread(_environment, context)


def _environment(context: StudyContext) -> Mapping[str, Any]:
    nobody = DaskTask()
    with SANDBOXES.taken(nobody) as sandbox:
        call = sandbox.call(worker_environment, {"context": context}, Limits(), nobody)
        call.next_step()
        found: Mapping[str, Any] = call.value()
        return found


@dataclass(frozen=True, slots=True)
class WorkerCheck:
    """Checks whether workers can run a study's trials and share the flow's environment."""

    scheduler: str
    context: StudyContext
    ours: Mapping[str, Any]

    def __call__(self, client: distributed.Client, addresses: list[str] | None = None) -> list[str]:
        """Check workers, by default all; return the addresses of those that are present.

        Raises `BadInput` if one is unusable.
        """
        answers = client.run(
            environment_of_sandbox, self.context, workers=addresses, on_error="return"
        )
        there = []
        for address, environment in answers.items():
            if isinstance(environment, CommClosedError):  # it has left, and may come back
                continue
            _check_environment(address, environment, self.ours)
            there.append(address)
        return there


def _check_environment(
    address: str, environment: Mapping[str, Any] | Exception, ours: Mapping[str, Any]
) -> None:
    """Raise unless a worker can read the study and has the flow's versions."""
    if isinstance(environment, Exception):
        raise BadInput(f"worker {address} cannot run this study: {environment}")
    for name, here in ours.items():
        if environment[name] == here:
            continue
        if name == INDEX_MACHINE:
            raise BadInput(
                f"worker {address} runs on another machine, but the store's index is a SQLite "
                "file, which only processes of one machine can share; use a database that all "
                "workers reach, with --database postgresql+psycopg://user@host/name"
            )
        raise BadInput(f"worker {address} has {name} {environment[name]}; the flow has {here}")
