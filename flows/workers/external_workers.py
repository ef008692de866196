"""Checks of external workers before their first trial of a study."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import distributed
from distributed.comm import CommClosedError

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.problem import StudyContext, TrialLimits
from prefect_tune.tasks.sandbox.dask_runner import DaskTask, LeanDaskTaskRunner
from prefect_tune.tasks.sandbox.readiness import INDEX_MACHINE, worker_environment
from prefect_tune.tasks.sandbox.sandbox import SANDBOXES, Limits

_CONNECT_SECONDS = 30
"""Wait for the first worker of a scheduler."""


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
    limits: TrialLimits
    ours: Mapping[str, Any]

    def __call__(self, client: distributed.Client, addresses: list[str] | None = None) -> list[str]:
        """Check workers, by default all; return the addresses of those that are present.

        Raises `BadInput` if one is unusable.
        """
        answers = client.run(
            environment_of_sandbox, self.context, workers=addresses, on_error="return"
        )
        workers = client.scheduler_info(n_workers=-1)["workers"]
        there = []
        for address, environment in answers.items():
            if isinstance(environment, CommClosedError):  # it has left, and may come back
                continue
            _check_environment(address, environment, self.ours)
            wanted = self.limits.memory_bytes
            memory_bytes = workers.get(address, {}).get("memory_limit")
            if wanted and memory_bytes and wanted > memory_bytes:
                raise BadInput(
                    f"worker {address} has a memory limit of {memory_bytes / 1e9:.3g} GB, below "
                    f"--trial-memory {wanted / 1e9:.3g} GB; start it with a larger `--memory-limit`"
                )
            there.append(address)
        return there


def connected(runner: LeanDaskTaskRunner, scheduler: str) -> distributed.Client:
    """Return the client of a runner once its scheduler has a worker; `BadInput` if none comes."""
    try:
        client = runner.client
        client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
    except (OSError, TimeoutError, ValueError, distributed.TimeoutError) as error:
        raise BadInput(
            f"--dask {scheduler}: no scheduler with a worker answers ({error}); start "
            "one with `dask scheduler` and `dask worker`"
        ) from error
    return client


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
