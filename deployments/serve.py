"""Serving the deployments of `prefect.yaml` from one process, without a work pool.

A restart keeps each schedule active or paused, as set in Prefect.
"""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.resources import files
from typing import Any

import yaml
from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import ConcurrencyLimitConfig
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.runner import Runner
from prefect.schedules import Schedule
from prefect.types.entrypoint import EntrypointType

from prefect_tune.deployments.server.embedded import launched_server
from prefect_tune.flows.interrupts import ENDING_SIGNALS, EndedBySignal
from prefect_tune.optimizers.converter import from_document

_START_SECONDS = 30.0
_WITHOUT_EVENTS = (
    "this server records no events, so automations do not fire: other runs use it, and it was "
    "started without event services. To get them, restart serve when these runs have ended"
)


def serve_deployments(*, limit: int, say: Callable[[str], None]) -> None:
    """Serve the deployments until interrupted, with at most `limit` concurrent flow runs."""
    say("starting")
    with launched_server(with_events=True) as server:
        server.wait()
        if not server.has_events:
            say(_WITHOUT_EVENTS)
        runner = Runner(name="prefect-tune", limit=limit, pause_on_shutdown=False)
        for declared in declared_deployments():
            deployment = _deployment(declared)
            runner.add_deployment(deployment)
            say(f"serving {deployment.full_name}")
        say(
            f"at {server.shown}; start one in another shell with:\n"
            f"  {server.exports}\n"
            "  prefect deployment run tune/healthcare --watch"
        )
        asyncio.run(_run_until_signal(runner))


async def _run_until_signal(runner: Runner) -> None:
    """Run until a signal arrives, then stop the runner and raise EndedBySignal.

    Raising from the handler itself would interrupt the event loop at any point.
    """
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    numbers: list[int] = []

    def end(number: int) -> None:
        numbers.append(number)
        came.set()

    def end_by_sigterm(*_: Any) -> None:
        loop.call_soon_threadsafe(end, signal.SIGTERM)

    # The runner handles SIGTERM from its start, and would end without an error.
    runner.handle_sigterm = end_by_sigterm  # type: ignore[method-assign]
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, end, number)
    running = asyncio.create_task(runner.start())
    ended = asyncio.create_task(came.wait())
    await asyncio.wait((running, ended), return_when=asyncio.FIRST_COMPLETED)
    with suppress(TimeoutError):
        async with asyncio.timeout(_START_SECONDS):
            while not (runner.started or running.done()):  # noqa: ASYNC110 - the runner has no such event
                await asyncio.sleep(0.05)
    if runner.started:
        await runner.astop()  # cancelling would leave its temporary folder
    else:
        running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    if numbers:
        raise EndedBySignal(numbers[0])


@dataclass(frozen=True)
class DeclaredDeployment:
    """A deployment of `prefect.yaml`, with Prefect's field names."""

    name: str
    description: str
    tags: list[str]
    parameters: dict[str, Any]
    schedules: list[dict[str, Any]]
    concurrency_limit: dict[str, Any]
    entrypoint: str

    @property
    def flow(self) -> Flow[..., Any]:
        """The flow that the entry point names."""
        module, _, name = self.entrypoint.partition(":")
        found: Flow[..., Any] = getattr(import_module(module), name)
        return found


def declared_deployments() -> list[DeclaredDeployment]:
    """Return the deployments of `prefect.yaml`."""
    text = files("prefect_tune.deployments").joinpath("prefect.yaml").read_text()
    return from_document(list[DeclaredDeployment], yaml.safe_load(text)["deployments"])


def _deployment(declared: DeclaredDeployment) -> RunnerDeployment:
    flow = declared.flow
    active = _active_schedules(f"{flow.name}/{declared.name}")
    schedules = [Schedule(**schedule) for schedule in declared.schedules]
    deployment = flow.to_deployment(
        name=declared.name,
        description=declared.description,
        tags=declared.tags,
        parameters=declared.parameters,
        entrypoint_type=EntrypointType.MODULE_PATH,
        schedules=[replace(s, active=active.get(s.slug or "", s.active)) for s in schedules],
        concurrency_limit=ConcurrencyLimitConfig(**declared.concurrency_limit),
    )
    assert isinstance(deployment, RunnerDeployment)  # noqa: S101 - a coroutine only in async code
    return deployment


def _active_schedules(deployment: str) -> dict[str, bool]:
    """Return the state of a deployment's schedules by slug; empty for a new deployment."""
    with get_client(sync_client=True) as client:
        try:
            found = client.read_deployment_by_name(deployment)
        except ObjectNotFound:
            return {}
    return {s.slug: s.active for s in found.schedules if s.slug}
