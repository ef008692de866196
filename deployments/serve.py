"""Serves the deployments in `prefect.yaml` from a single process, without a work pool.

After a restart, each schedule is active or paused, as last set in Prefect.
"""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
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
from prefect_tune.flows.running.interrupts import ENDING_SIGNALS, EndedBySignal

_WITHOUT_EVENTS = (
    "automations do not fire, because other runs have started this server without event services; "
    "restart serve when these runs have ended"
)


def serve_deployments(*, limit: int, say: Callable[[str], None]) -> None:
    """Serve the deployments until interrupted, with at most `limit` concurrent flow runs."""
    say("starting")
    with launched_server(with_events=True) as server:
        server.wait()
        if not server.has_events:
            say(_WITHOUT_EVENTS)
        runner = Runner(name="prefect-tune", limit=limit, pause_on_shutdown=False)
        for flow, declared in declared_deployments():
            active = dict[str, bool]()  # whether a deployment's schedules are active, by slug
            with suppress(ObjectNotFound), get_client(sync_client=True) as client:
                found = client.read_deployment_by_name(f"{flow.name}/{declared['name']}")
                active = {s.slug: s.active for s in found.schedules if s.slug}
            schedules = [Schedule(**schedule) for schedule in declared["schedules"]]
            kept = [replace(s, active=active.get(s.slug or "", s.active)) for s in schedules]
            deployment = flow.to_deployment(
                **{key: declared[key] for key in ("name", "description", "tags", "parameters")},
                entrypoint_type=EntrypointType.MODULE_PATH,
                schedules=kept,
                concurrency_limit=ConcurrencyLimitConfig(**declared["concurrency_limit"]),
            )
            assert isinstance(deployment, RunnerDeployment)  # noqa: S101 - no coroutine here
            runner.add_deployment(deployment)
            say(f"serving {deployment.full_name}")
        say(
            f"at {server.shown}; start one in another shell with:\n"
            f"  {server.exports}\n"
            "  prefect deployment run tune/healthcare --watch"
        )
        asyncio.run(_run_until_signal(runner))


async def _run_until_signal(runner: Runner) -> None:
    """Run until a signal arrives; then stop the runner and raise `EndedBySignal`.

    If the signal handler itself raised the error, the error could interrupt the event loop at any
    point.
    """
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    numbers: list[int] = []

    def end(number: int, *_: Any) -> None:
        numbers.append(number)
        loop.call_soon_threadsafe(came.set)

    # The runner's own handler of SIGTERM would end the process without an error.
    runner.handle_sigterm = end  # type: ignore[method-assign]
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, end, number)
    running = asyncio.create_task(runner.start())
    ended = asyncio.create_task(came.wait())
    await asyncio.wait((running, ended), return_when=asyncio.FIRST_COMPLETED)
    if runner.started:
        await runner.astop()  # cancellation would leave the runner's temporary folder behind
    else:
        running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    if numbers:
        raise EndedBySignal(numbers[0])


def declared_deployments() -> list[tuple[Flow[..., Any], dict[str, Any]]]:
    """Return the deployments in `prefect.yaml`, each with its flow."""
    text = files("prefect_tune.deployments").joinpath("prefect.yaml").read_text()
    found = []
    for declared in yaml.safe_load(text)["deployments"]:
        module, _, name = declared["entrypoint"].partition(":")
        found.append((getattr(import_module(module), name), declared))
    return found
