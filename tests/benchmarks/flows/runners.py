"""What Prefect and Dask cost per trial: our runner beside prefect-dask's stock runner, in turn.

    tests/benchmarks/run flows/runners [--trials 300] [--rounds 3]

Trials that do nothing, five step tasks each, on two workers: trials per second, and CPU per trial
of the flow's process and the workers together, that of the server apart. Then trials that burn a
second of CPU, against a bare loop in one process. Beside each, whether the server recorded every
task run.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from time import monotonic, sleep
from typing import Any

import psutil
from machine import Goals, describe
from null_trials import N_STEPS, burn, burning_trial, null_trial
from prefect import flow
from prefect.runtime import flow_run
from prefect_api import states, task_runs
from prefect_dask import DaskTaskRunner

from prefect_tune.deployments.server.embedded import local_server
from prefect_tune.deployments.server.prefect_settings import QUIET_CONSOLE, set_defaults
from prefect_tune.flows.workers.local_workers import local_cluster
from prefect_tune.tasks.worker.dask_runner import LeanDaskTaskRunner, drain_worker

WARM_UP = 10


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


class Clock:
    """CPU of this process, of the workers, and of the server."""

    def __init__(self, server_pid: int) -> None:
        me = psutil.Process()
        server = psutil.Process(server_pid)
        self._server = [server, *server.children(recursive=True)]
        known = {p.pid for p in self._server}
        self._ours = [me, *(p for p in me.children(recursive=True) if p.pid not in known)]
        self._start = self._read()

    def _read(self) -> tuple[float, float, float]:
        return (
            monotonic(),
            sum(map(cpu_seconds, self._ours)),
            sum(map(cpu_seconds, self._server)),
        )

    def per_trial(self, n: int) -> dict[str, float]:
        """Trials per second, and CPU milliseconds per trial, ours and the server's."""
        wall, ours, server = (b - a for a, b in zip(self._start, self._read(), strict=True))
        return {"rate": n / wall, "ours": 1000 * ours / n, "server": 1000 * server / n}


def run_all(submit: Callable[[int], Any], n: int) -> None:
    """Two trials at a time until n are done, each future let go of when it is."""
    done: SimpleQueue[Any] = SimpleQueue()
    running = {}

    def start(number: int) -> None:
        future = submit(number)
        running[future.task_run_id] = future
        future.wrapped_future.add_done_callback(lambda _, i=future.task_run_id: done.put(i))

    for number in range(min(2, n)):
        start(number)
    next_number = len(running)
    while running:
        future = running.pop(done.get())
        future.wrapped_future.result()
        future.wrapped_future.release()
        if next_number < n:
            start(next_number)
            next_number += 1


@flow
def measure(kind: str, n: int, server_pid: int, *, burning: bool) -> dict[str, Any]:
    task = burning_trial if burning else null_trial
    runner_class = LeanDaskTaskRunner if kind == "lean" else DaskTaskRunner
    with local_cluster(2) as cluster, runner_class(cluster=cluster) as runner:

        def submit(number: int) -> Any:
            if kind == "lean":
                return runner.submit_lean(task, {"number": number})
            return runner.submit(task, {"number": number})

        runner.client.wait_for_workers(2)
        run_all(submit, WARM_UP)
        clock = Clock(server_pid)
        run_all(submit, n)
        measured = clock.per_trial(n)
        runner.client.run(drain_worker)
    return {**measured, "flow_run_id": str(flow_run.id), "n": n + WARM_UP}


def recorded(result: dict[str, Any]) -> str:
    """How many task runs the server has of those that were reported, and in which states."""
    from uuid import UUID

    wanted = result["n"] * (1 + N_STEPS)
    for _ in range(50):
        by_state = states(task_runs(UUID(result["flow_run_id"])))
        if sum(by_state.values()) == by_state["Completed"] == wanted:
            break
        sleep(0.2)
    return f"{sum(by_state.values())} of {wanted} recorded, {dict(by_state)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    set_defaults(QUIET_CONSOLE)
    with tempfile.TemporaryDirectory() as home:
        import json
        import os

        os.environ["PREFECT_TUNE_HOME"] = home
        with local_server():
            note = Path(home, "server", "server.json")
            pid = json.loads(note.read_text())["pid"]
            print(describe())
            results: dict[str, list[dict[str, Any]]] = {"lean": [], "stock": []}
            for turn in range(options.rounds):
                for kind, n in (("lean", options.trials), ("stock", options.trials // 5)):
                    r = measure(kind, n, pid, burning=False)
                    results[kind].append(r)
                    print(
                        f"round {turn} {kind:>5}: {r['rate']:6.1f} trials/s, flow + workers "
                        f"{r['ours']:6.1f} ms CPU/trial, server {r['server']:5.1f} ms; "
                        f"{recorded(r)}"
                    )
            ratios = [
                a["ours"] / b["ours"]
                for a, b in zip(results["lean"], results["stock"], strict=True)
            ]
            goals = Goals()
            rate = median(r["rate"] for r in results["lean"])
            goals.at_least("trials that do nothing per second", rate, 10)
            goals.at_most("CPU per trial, lean / stock, median of the pairs", median(ratios), 0.25)
            started = monotonic()
            for _ in range(10):
                burn()
            bare = 10 / (monotonic() - started)
            r = measure("lean", 40, pid, burning=True)
            print(
                f"trials of 1 s CPU: {r['rate']:.2f} trials/s on 2 workers, a bare loop "
                f"{bare:.2f}/s in one process; {recorded(r)}"
            )
            goals.at_least("share of two bare loops", r["rate"] / bare / 2, 0.9)
            print(describe())
            goals.end()


if __name__ == "__main__":
    main()
