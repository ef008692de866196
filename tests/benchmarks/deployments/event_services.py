"""Cost of the event services that `serve` turns on: CPU of the server and time of a small study.

    tests/benchmarks/run deployments/event_services [PAIRS]

Runs one study per pair on a server without, and on one with, event services, in turn: same data,
method and trials, each in a home of its own. Prints, for each, the seconds of the study and the
server's CPU milliseconds per task run until all events are recorded, and the ratio of each pair.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import sleep

import psutil
from inputs import write_table
from machine import Goals, describe
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect_api import client_of
from processes import COMMAND, environment, server_of

from prefect_tune.deployments.server.embedded import launched_server

PAIRS, TRIALS = 3, 30
QUIET_SECONDS = 3.0
"""The server has recorded all, once it uses hardly any CPU for that long."""
MOST_TIMES = 2.0
"""By which the services may multiply the CPU of the server; seconds depend on the load too much."""


@dataclass(frozen=True)
class Cost:
    """Of one study.

    Attributes:
        seconds: Of the study, as `show` has them.
        server_ms: CPU of the server for each task run.
    """

    seconds: float
    server_ms: float
    n_task_runs: int


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def settled_cpu_seconds(process: psutil.Process) -> float:
    """CPU seconds once the server rests."""
    before = cpu_seconds(process)
    while True:
        sleep(QUIET_SECONDS)
        now = cpu_seconds(process)
        if now - before < 0.1 * QUIET_SECONDS:
            return now
        before = now


def measured(data: Path, *, with_events: bool) -> Cost:
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        os.environ["PREFECT_TUNE_HOME"] = str(home)
        with (
            temporary_settings(restore_defaults={PREFECT_API_URL}),
            launched_server(with_events=with_events) as server,
        ):
            server.wait()
            process = psutil.Process(server_of(home)["pid"])  # type: ignore[index]
            before = settled_cpu_seconds(process)
            words = ["run", data, "--target", "target", "--method", "random", "--space", "small"]
            words += ["--trials", TRIALS, "--workers", 1, "--no-race", "--study", "s", "--json"]
            done = subprocess.run(
                [*COMMAND, *map(str, words)], env=environment(home), capture_output=True,
                check=True, text=True,
            )  # fmt: skip
            spent = settled_cpu_seconds(process) - before
            with client_of(server.url) as client:
                n_task_runs = client.request("POST", "/task_runs/count", json={}).json()
    summary = json.loads(done.stdout)
    return Cost(summary["seconds"]["total"], 1000 * spent / n_task_runs, n_task_runs)


def main() -> None:
    print(describe())
    goals = Goals()
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        data = write_table(Path(folder))
        for number in range(int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS):
            order = (False, True) if number % 2 == 0 else (True, False)
            pair = {with_events: measured(data, with_events=with_events) for with_events in order}
            pairs.append((pair[False], pair[True]))
            print(describe())
            for name, cost in zip(("without", "with"), pairs[-1], strict=True):
                print(
                    f"  {name} events: study {cost.seconds:.1f} s, server {cost.server_ms:.1f} ms "
                    f"of CPU for each of {cost.n_task_runs} task runs"
                )
    seconds = median(on.seconds / off.seconds for off, on in pairs)
    print(f"study seconds with events, as a multiple: {seconds:.2f}")
    cpu = median(on.server_ms / off.server_ms for off, on in pairs)
    goals.at_most("server CPU with events, as a multiple", cpu, MOST_TIMES)
    goals.end()


if __name__ == "__main__":
    sys.exit(main())
