"""How soon a command's first trial starts and ends, and how soon the command ends.

    tests/benchmarks/run deployments/quick_start [--cores 2 1] [--repeats 3]
        [--against CHECKOUT] [--data cohort:demo]

Runs `prefect-tune run` from a home that has been used once, and prints when each stage was reached
and the CPU seconds of the command, of the server and of all else up to the first result. With
`--against`, another checkout with its `.venv` takes turns, and ratios are printed.
"""

import argparse
import json
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import sleep, time
from urllib.error import URLError
from urllib.request import urlopen

import psutil
from machine import Goals, describe
from processes import environment

_HERE = Path(__file__).resolve().parents[3]
_FIRST_RESULT_SECONDS = {1: 9.0, 2: 5.5}
_TICK_SECONDS = 0.02


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cores", type=int, nargs="+", default=[2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--data", default="cohort:demo")
    asked = parser.parse_args()
    print(describe())
    goals = Goals()
    checkouts = [*filter(None, (asked.against,)), _HERE]
    with tempfile.TemporaryDirectory() as folder:
        homes = {checkout: Path(folder, str(n)) for n, checkout in enumerate(checkouts)}
        for checkout, home in homes.items():  # makes the home, and fills the system's caches
            timeline(checkout, home, asked.data, cores=max(asked.cores))
        for cores in asked.cores:
            rows: dict[Path, list[Mapping[str, float]]] = {checkout: [] for checkout in checkouts}
            for _ in range(asked.repeats):
                for checkout, home in homes.items():
                    row = timeline(checkout, home, asked.data, cores=cores)
                    rows[checkout].append(row)
                    print(f"{cores} cores, {checkout.name}:", json.dumps(row), describe())
            medians = [
                {stage: median(row[stage] for row in rows[checkout]) for stage in rows[checkout][0]}
                for checkout in checkouts
            ]
            for stage, seconds in medians[-1].items():
                ratio = f", {seconds / medians[0][stage]:.2f} times" if asked.against else ""
                print(f"{cores} cores, {stage}: {seconds:.2f} s{ratio}")
            ours, of = medians[-1], f"{cores} cores: seconds"
            goals.at_most(f"{of} to the first result", ours["result"], _FIRST_RESULT_SECONDS[cores])
            goals.at_most(f"{of} from answer to trial", ours["trial"] - ours["answer"], 0.5)
            goals.at_most(f"{of} from model to exit", ours["exit"] - ours["model"], 1.0)
    goals.end()


def timeline(checkout: Path, home: Path, data: str, *, cores: int) -> dict[str, float]:
    """Run the command once; return when each stage was reached, and CPU up to the first result."""
    command = [str(checkout / ".venv/bin/prefect-tune"), "run", data, "--trials", "3"]
    started = time()
    with subprocess.Popen(
        [*command, "--json-lines"],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        psutil.Process(process.pid).cpu_affinity(list(range(cores)))
        answers: list[float] = []
        watcher = threading.Thread(target=_watch, args=(home, started, answers), daemon=True)
        watcher.start()
        results, cpu = [], {}
        for line in process.stdout or ():
            if '"number"' in line and not results:
                results.append(time())
                cpu = _cpu_seconds(process.pid)
    ended = time()
    watcher.join()
    with closing(sqlite3.connect(home / "server" / "prefect.db")) as connection:
        runs = connection.execute(
            "SELECT min(task_run.start_time), max(task_run.end_time) FROM task_run JOIN flow_run "
            "ON flow_run.id = flow_run_id WHERE flow_run.start_time > ?",
            (datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%d %H:%M:%S"),),
        ).fetchone()
    first, last = (datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp() for at in runs)
    reached = {"answer": answers[0], "trial": first, "result": results[0], "model": last}
    stages = {stage: at - started for stage, at in {**reached, "exit": ended}.items()}
    return {name: round(seconds, 2) for name, seconds in {**stages, **cpu}.items()}


def _watch(home: Path, since: float, answers: list[float]) -> None:
    """Note when the server of a home first answers."""
    note = home / "server" / "server.json"
    while not answers:
        sleep(_TICK_SECONDS)
        with suppress(OSError, URLError, ValueError):
            if note.stat().st_mtime > since:
                urlopen(f"{json.loads(note.read_text())['url']}/health", timeout=5).close()  # noqa: S310
                answers.append(time())


def _cpu_seconds(pid: int) -> dict[str, float]:
    """Return the CPU seconds so far of a command, of its server, and of all else below it."""
    cpu = dict.fromkeys(("cpu command", "cpu server", "cpu others"), 0.0)
    command = psutil.Process(pid)
    for process in (command, *command.children(recursive=True)):
        with suppress(psutil.Error):
            is_server = any("server.guarded" in word for word in process.cmdline())
            kind = "command" if process == command else "server" if is_server else "others"
            cpu[f"cpu {kind}"] += sum(process.cpu_times()[:2])
    return cpu


if __name__ == "__main__":
    main()
