"""Checks of external workers before their first trial of a study."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

import distributed
from distributed.comm import CommClosedError

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.problem import StudyContext, TrialLimits
from prefect_tune.tasks.worker.dask_runner import LeanDaskTaskRunner
from prefect_tune.tasks.worker.readiness import INDEX_MACHINE, worker_environment

_CONNECT_SECONDS = 30
"""Wait for the first worker of a scheduler."""
_LISTED_SECONDS = 5.0
"""Time limit for the scheduler to list a worker that has answered."""


@dataclass(frozen=True, slots=True)
class WorkerCheck:
    """Checks whether workers can run a study's trials and share the flow's environment."""

    scheduler: str
    context: StudyContext
    limits: TrialLimits
    ours: Mapping[str, Any]

    def __call__(self, client: distributed.Client, address: str) -> None:
        """Check a worker; raise `BadInput` if it is unusable, any error if it is unreachable."""
        answers = client.run(worker_environment, self.context, workers=[address], on_error="return")
        self._check(client, answers)

    def all_at_once(self, client: distributed.Client) -> Mapping[str, str]:
        """Check all workers, raising `BadInput` if one is unusable; return nannies by address."""
        answers = client.run(worker_environment, self.context, on_error="return")
        there = {a: e for a, e in answers.items() if not isinstance(e, CommClosedError)}
        return self._check(client, there)

    def _check(self, client: distributed.Client, answers: Mapping[str, Any]) -> Mapping[str, str]:
        workers = _describe(client, list(answers))
        for address, environment in answers.items():
            _check_environment(address, environment, self.ours)
            _check_process(address, workers[address], self.limits)
        return {address: workers[address]["nanny"] for address in answers}


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


def _describe(client: distributed.Client, addresses: Sequence[str]) -> Mapping[str, Any]:
    """Return the scheduler's information on workers, which may take a moment to be complete."""
    until = monotonic() + _LISTED_SECONDS
    while True:
        workers: dict[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
        missing = [address for address in addresses if address not in workers]
        if not missing:
            return workers
        if monotonic() > until:
            raise BadInput(f"worker {missing[0]} disconnected while it was checked")
        sleep(0.1)


def _check_environment(
    address: str, environment: Mapping[str, Any] | Exception, ours: Mapping[str, Any]
) -> None:
    """Raise unless a worker can read the study and has the flow's versions."""
    if isinstance(environment, CommClosedError):  # it has left, and may come back
        raise environment
    if isinstance(environment, Exception):
        raise BadInput(f"worker {address} cannot run this study: {environment}")
    for name, here in ours.items():
        if environment[name] == here:
            continue
        if name == INDEX_MACHINE:
            raise BadInput(
                f"worker {address} runs on {environment[name].name}, but the store's index is a "
                f"SQLite file, which only processes on {here.name} can share; use a database that "
                "all workers reach, with --database postgresql+psycopg://user@host/name"
            )
        raise BadInput(f"worker {address} has {name} {environment[name]}; the flow has {here}")


def _check_process(address: str, worker: Mapping[str, Any], limits: TrialLimits) -> None:
    """Raise unless a worker runs one trial at a time, can be killed and has enough memory."""
    if not worker.get("nanny"):
        raise BadInput(
            f"worker {address} has no nanny, so its trials could not be killed; start it with "
            "--nanny"
        )
    if worker["nthreads"] != 1:
        raise BadInput(
            f"worker {address} has {worker['nthreads']} threads, but a trial uses one; start it "
            "with --nthreads 1"
        )
    memory_bytes = worker["memory_limit"]
    if limits.memory_bytes and memory_bytes and limits.memory_bytes > memory_bytes:
        raise BadInput(
            f"worker {address} has a memory limit of {memory_bytes / 1e9:.3g} GB, below "
            f"--trial-memory {limits.memory_bytes / 1e9:.3g} GB; start it with a larger "
            "--memory-limit"
        )
