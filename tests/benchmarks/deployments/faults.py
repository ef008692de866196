"""Studies under faults: workers and flows killed at random instants, signals, services gone.

    tests/benchmarks/run deployments/faults [--only workers,flows,signals,services] [--seed 0]

`workers`: 200 trials on four slots; every 5 s, a sandbox or the zygote that forks them is killed by
SIGKILL, beside the same study undisturbed. `flows`: the flow is killed by SIGKILL at 20 random
instants after its second told trial and started again; queries, losses and states are those of an
undisturbed run (random search, one worker), and no process is left after 5 s. `signals`: SIGTERM,
SIGINT and SIGHUP end it as well, and leave nothing at all. `services`: PostgreSQL and the bucket
are gone for 20 s each, the Prefect API for 60 s; the study goes on, and no trial has a death, a
failure or the outage's time.
"""

import argparse
import os
import random
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

import psutil
from inputs import table
from machine import Goals, describe
from processes import SECRETS, run_json, sandboxes_of, started, wait_for
from services import Postgres
from services.faulty_bucket import FaultyProxy, faulty_bucket

from prefect_tune.deployments.server.process import (
    kept_file,
    noted_server,
    start_server,
    stop_server,
)
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.ledger import Ledger

KILL_SECONDS = 5.0
"""Between two processes killed."""
LEFT_SECONDS = 5.0
"""In which all that a killed flow had must be gone."""
N_TRIALS, N_SLOTS, N_KILLS = 200, 4, 20
AWAY_SECONDS, API_AWAY_SECONDS = 20.0, 60.0
OPTIONS = ("--target", "target", "--space", "small", "--method", "random", "--study", "s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    goals, rng = Goals(), random.Random(options.seed)  # noqa: S311 - instants, not secrets
    print(describe(), flush=True)
    for part in options.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            PARTS[part](Path(folder), rng, goals)
    goals.end()


def workers(folder: Path, rng: random.Random, goals: Goals) -> None:
    """A process that runs trials is killed every five seconds."""
    data = written(folder, 3_000)
    command = ("run", data, *OPTIONS, "--trials", N_TRIALS, "--workers", N_SLOTS)
    rates = {}
    for name, kills in (("undisturbed", False), ("disturbed", True)):
        home, ended, n_killed = folder / name, Event(), [0]
        with started(*command, "--quiet", home=home) as process:
            wait_for(lambda home=home: n_told(home) >= 1)
            arguments = (process, rng, ended, n_killed)
            killer = Thread(target=kill_workers, args=arguments, daemon=True)
            if kills:
                killer.start()
            before, since = n_told(home), monotonic()
            wait_for(lambda home=home, p=process: n_told(home) == N_TRIALS or p.poll(), 3_600)
            rates[name] = (n_told(home) - before) / (monotonic() - since)
            ended.set()
            _, said = process.communicate(timeout=600)
        trials = trials_of(home)
        told = Counter(
            event.body["number"]
            for event in [e for e in ledger_of(home).each_event("s") if e.kind == "tell"]
        )
        print(
            f"{name}: {n_killed[0]} killed, {states_of(trials)}, {rates[name]:.2f} trials a second"
        )
        if process.returncode != 0:
            raise RuntimeError(said)
        goals.at_least(f"{name}: told once", sum(n == 1 for n in told.values()), N_TRIALS)
        lost = sum(t["state"] not in ("complete", "failed") for t in trials)
        goals.at_most(f"{name}: neither complete nor failed", lost, 0)
    goals.at_least("rate / undisturbed", rates["disturbed"] / rates["undisturbed"], 0.5)


def kill_workers(
    process: subprocess.Popen[str], rng: random.Random, ended: Event, n_killed: list[int]
) -> None:
    """Kill one process after the other, until the end."""
    while not ended.wait(KILL_SECONDS):
        sandboxes = sandboxes_of(process.pid)
        if sandboxes:
            rng.choice([*sandboxes, sandboxes[0].parent()]).kill()
            n_killed[0] += 1


def flows(folder: Path, rng: random.Random, goals: Goals) -> None:
    """The flow is killed, and what it had is gone."""
    command = ("run", written(folder, 600), *OPTIONS, "--trials", 8, "--workers", 1, "--quiet")
    expected = undisturbed(folder, command)
    n_left = n_other = 0
    for kill in range(N_KILLS):
        home = folder / f"killed-{kill}"
        with started(*command, home=home) as process:
            wait_for(lambda home=home: n_told(home) >= 2)
            sleep(rng.uniform(0, 3))
            process.kill()
            process.wait()
        left = left_after(home, LEFT_SECONDS)
        run_json(*command[:-1], home=home)
        n_left += bool(left)
        n_other += outcome(home) != expected
        print(f"kill {kill}: left {left or 'nothing'}, same outcome {outcome(home) == expected}")
        goals_of_home(home)
    goals.at_most("kills that left a process after 5 s", n_left, 0)
    goals.at_most("kills that changed queries, losses or states", n_other, 0)


def signals(folder: Path, rng: random.Random, goals: Goals) -> None:
    """Ends by signals."""
    command = ("run", written(folder, 600), *OPTIONS, "--trials", 8, "--workers", 1, "--quiet")
    expected = undisturbed(folder, command)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        home = folder / number.name
        with started(*command, home=home) as process:
            wait_for(lambda home=home: n_told(home) >= 2)
            sleep(rng.uniform(0, 3))
            process.send_signal(number)
            _, said = process.communicate(timeout=120)
        left = processes_of(home)
        print(f"{number.name}: exit {process.returncode}, left {left or 'nothing'}; said {said!r}")
        run_json(*command[:-1], home=home)
        goals.at_most(f"{number.name}: processes left", len(left), 0)
        goals.at_least(f"{number.name}: same outcome", outcome(home) == expected, 1)


def services(folder: Path, rng: random.Random, goals: Goals) -> None:  # noqa: ARG001 - as others
    """Database, bucket and API are gone for a while, one after the other."""
    postgres, home = Postgres(folder / "postgres"), folder / "home"
    address = StoreAddress("s3://bucket/store", postgres.new_database())
    api = folder / "api"
    api.mkdir()
    with faulty_bucket() as bucket, server_in(api) as url:
        command = ("run", written(folder, 3_000), *OPTIONS, "--trials", 150, "--workers", 2)
        where = ("--store", address.url, "--database", address.database)
        with started(*command, *where, "--quiet", home=home, server=url) as process:
            ledger = wait_for(lambda: ledger_at(address) if bucket_is_used(bucket) else None)
            for name, away in (
                ("PostgreSQL", lambda: postgres.restart(AWAY_SECONDS)),
                ("bucket", lambda: bucket_away(bucket)),
                ("API", lambda: api_away(api)),
            ):
                enough = n_told_in(ledger) + 10
                wait_for(lambda enough=enough: n_told_in(ledger) >= enough or process.poll())
                if process.poll() is not None:
                    break
                print(f"{name} is away, after {n_told_in(ledger)} trials", flush=True)
                away()
            _, said = process.communicate(timeout=1_800)
        trials = ledger.trials("s")
        print(f"exit {process.returncode}, {states_of([dict(t) for t in trials])}; said {said!r}")
        told = [outcome for t in trials if (outcome := t["evaluation"] or t["failure"])]
        longest = max(outcome["cost_seconds"] for outcome in told)
        goals.at_most("exit code", process.returncode, 0)
        goals.at_most("deaths", sum(t["deaths"] for t in trials), 0)
        goals.at_most("trials not complete", sum(t["state"] != "complete" for t in trials), 0)
        goals.at_most("longest trial, seconds", longest, AWAY_SECONDS / 2)
    postgres.stop()


def bucket_is_used(bucket: FaultyProxy) -> bool:
    """Return whether a store was made in it."""
    return bucket.n_requests > 10


def bucket_away(bucket: FaultyProxy) -> None:
    """Answer 503 for a while."""
    bucket.fault = "away"
    sleep(AWAY_SECONDS)
    bucket.fault = ""


@contextmanager
def server_in(folder: Path) -> Iterator[str]:
    """A Prefect server that is not the run's own."""
    kept_file(folder).touch()
    server = start_server(folder)
    wait_for(server.answers)
    SECRETS[server.url] = (folder / "auth").read_text().strip()
    yield server.url
    stop_server(folder)


def api_away(folder: Path) -> None:
    """Kill the server, and start it again at its port."""
    server = noted_server(folder)
    assert server is not None
    os.killpg(server.pid, signal.SIGKILL)
    sleep(API_AWAY_SECONDS)
    start_server(folder, server.port)


def ledger_at(address: StoreAddress) -> Ledger | None:
    """The ledger of a remote store, once it is there."""
    ledger = Ledger(ArtifactStore(address).database)
    return ledger if ledger.study("s") else None


def n_told_in(ledger: Ledger) -> int:
    return sum(t["state"] in ("complete", "failed") for t in ledger.trials("s"))


def undisturbed(folder: Path, command: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Queries, losses and states of a run that nothing happens to."""
    home = folder / "undisturbed"
    run_json(*command[:-1], home=home)
    return outcome(home)


def outcome(home: Path) -> list[tuple[Any, ...]]:
    """Query, loss and state of each trial."""
    return [
        (str(t["query"]), (t["evaluation"] or {}).get("loss"), t["state"]) for t in trials_of(home)
    ]


def goals_of_home(home: Path) -> None:
    """Nothing may be left after a command that ended well, either."""
    if left := left_after(home, LEFT_SECONDS):
        raise RuntimeError(f"left after a run that ended well: {left}")


def written(folder: Path, n_rows: int) -> Path:
    """A table of so many rows."""
    path = folder / "table.parquet"
    table(n_rows).to_parquet(path, index=False)
    return path


@cache
def ledger_of(home: Path) -> Ledger:
    """The ledger of a home whose store is there."""
    return Ledger(ArtifactStore(StoreAddress(str(home / "store"))).database)


def trials_of(home: Path) -> list[dict[str, Any]]:
    return [dict(t) for t in ledger_of(home).trials("s")] if is_there(home) else []


def is_there(home: Path) -> bool:
    return (home / "store" / "store.json").exists()


def n_told(home: Path) -> int:
    return sum(t["state"] in ("complete", "failed") for t in trials_of(home))


def states_of(trials: list[dict[str, Any]]) -> str:
    counts = Counter((t["failure"] or {}).get("message", t["state"]) for t in trials)
    return ", ".join(f"{n} {what}" for what, n in counts.most_common())


def processes_of(home: Path) -> list[str]:
    """Processes whose environment names this home, but for our own."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("PREFECT_TUNE_HOME") == str(home):
                found.append(f"{process.pid} {' '.join(process.cmdline())[-80:]}")
        except psutil.Error:
            continue
    return found


def left_after(home: Path, seconds: float) -> list[str]:
    """Processes of a home that are there after some time; looks until they are gone."""
    until = monotonic() + seconds
    while (left := processes_of(home)) and monotonic() < until:
        sleep(0.1)
    return left


PARTS: dict[str, Callable[[Path, random.Random, Goals], None]] = {
    "workers": workers,
    "flows": flows,
    "signals": signals,
    "services": services,
}


if __name__ == "__main__":
    main()
