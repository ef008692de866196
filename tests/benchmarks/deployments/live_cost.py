"""What the live lines on a terminal cost a study of trials that do next to nothing.

    tests/benchmarks/run deployments/live_cost [--pairs 6] [--trials 400]

Runs the same study twice on a terminal of its own, with live lines and with `--quiet`, in pairs
whose order alternates, and compares the trials per second between the first outcome and the last,
and the CPU of the flow's own process. What a pair differs by is the display and the machine's mood:
the spread of the pairs says how much of it is the latter. Before that, the CPU of one refresh is
taken alone, of which there are two a second.
"""

import argparse
import fcntl
import os
import pty
import struct
import subprocess
import tempfile
import termios
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from statistics import geometric_mean, mean, stdev
from threading import Thread
from time import process_time

import psutil
from inputs import write_table
from machine import Goals, describe
from processes import COMMAND, environment, server_of

from prefect_tune import local_server
from prefect_tune.deployments.views.console import PlainConsole
from prefect_tune.deployments.views.live_lines import LiveLines
from prefect_tune.flows.progress import CurvePoint, Progress, RunningTrial
from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress

SPACE = """
from ConfigSpace import ConfigurationSpace, Integer
from prefect_tune import Algorithm, Flags, Space, Step

guess = Algorithm(
    id="guess",
    estimator="sklearn.dummy.DummyClassifier",
    fixed={"strategy": "prior"},
    hyperparameters=ConfigurationSpace(space=[Integer("constant", (0, 10**9))]),
    flags=Flags(stochastic=True),
)
space = Space("null", (Step("fit model", (guess,)),))
"""
GOAL = 1.01
"""A study without the display, as a multiple of one with it, in trials per second."""
REFRESHES = 200


@dataclass(frozen=True)
class Run:
    """One study.

    Attributes:
        rate: Trials per second.
        cpu_seconds: Of the flow's process, without its workers and the server.
        n_bytes: Written to the terminal.
    """

    rate: float
    cpu_seconds: float
    n_bytes: int


def run(home: Path, data: Path, server: str, study: str, *arguments: str) -> Run:
    """Run a study on a terminal of 100 columns and 30 lines that somebody reads."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    command = [*COMMAND, "run", str(data), "--target", "target", "--study", study, *arguments]
    process = subprocess.Popen(
        command,
        env={**environment(home, server), "TERM": "xterm-256color", "OMP_NUM_THREADS": "1"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    written: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # it has ended
            while data := os.read(ours, 65_536):
                written.append(data)

    reader = Thread(target=read)
    reader.start()
    cpu_seconds, watched = 0.0, psutil.Process(process.pid)
    while process.poll() is None:
        with suppress(psutil.Error):
            cpu_seconds = sum(watched.cpu_times()[:2])
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
    reader.join()
    os.close(ours)
    assert process.returncode == 0, b"".join(written).decode()
    ledger = Ledger(ArtifactStore(StoreAddress(str(home / "store"))).database)
    told = [event.at for event in ledger.events(study, "tell")]
    rate = (len(told) - 1) / (told[-1] - told[0])
    return Run(rate, cpu_seconds, len(b"".join(written)))


def refresh_seconds(n_running: int) -> float:
    """Return the CPU of drawing the lines of so many trials under way."""
    path = ("aggregate", "keep_sparse", "none", "none", "none", "gradient_boosting")
    running = tuple(
        RunningTrial(n, path, 3.0 + n, 60.0, "construct features", n % 3) for n in range(n_running)
    )
    curve = tuple(CurvePoint(float(at), 50.0 - at) for at in range(40))
    progress = Progress(
        study="s", metric="error", unit="percent", n_trials=900, n_failed=3, n_running=n_running,
        trials_total=1_000, seconds=60.0, seconds_total=600.0, incumbent=None, cache_hits=900,
        seconds_saved=9.0, running=running, phase="expected improvement per second",
        seconds_left=30.0, curve=curve,
    )  # fmt: skip
    lines = LiveLines()
    lines.show(progress)
    lines.fail("trial 7  failed  fit model: took more than 60 s " * 2)
    console = PlainConsole(file=StringIO(), force_terminal=True, width=100, height=30)
    console.print(lines)
    before = process_time()
    for _ in range(REFRESHES):
        console.print(lines)
    return (process_time() - before) / REFRESHES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--trials", type=int, default=400)
    options = parser.parse_args()
    n_pairs, n_trials, goals = options.pairs, options.trials, Goals()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        os.environ["PREFECT_TUNE_HOME"] = str(home)
        (Path(folder) / "null.py").write_text(SPACE)
        data = write_table(Path(folder))
        common = (
            *("--space", f"{folder}/null.py:space", "--method", "random", "--holdout", "0.3"),
            *("--no-race", "--no-cache", "--task-runs", "trial", "--workers", "2"),
            *("--ensemble", "single", "--drop", "colour", "--trials", str(n_trials)),
        )
        print(describe(), flush=True)
        for n_running in (2, 16, 64):
            share = 100 * 2 * refresh_seconds(n_running)
            goals.at_most(f"two refreshes a second, {n_running} trials, % of a core", share, 1)
        with local_server() as server:
            assert server_of(home)  # and thereby know its secret
            pairs = []
            for pair in range(n_pairs):
                sides = {"live": (), "quiet": ("--quiet",)}
                order = list(sides) if pair % 2 else list(sides)[::-1]
                done = {
                    side: run(home, data, server, f"{side}-{pair}", *common, *sides[side])
                    for side in order
                }
                pairs.append((done["live"], done["quiet"]))
                live, quiet = pairs[-1]
                print(
                    f"pair {pair + 1}: {live.rate:.1f} and {quiet.rate:.1f} trials/s, "
                    f"{live.cpu_seconds:.2f} and {quiet.cpu_seconds:.2f} s of CPU, "
                    f"{live.n_bytes:,} and {quiet.n_bytes:,} bytes",
                    flush=True,
                )
    report(pairs, n_trials, goals)
    goals.end()


def report(pairs: list[tuple[Run, Run]], n_trials: int, goals: Goals) -> None:
    """Compare the ratios of the pairs with the goal."""
    rates = [quiet.rate / live.rate for live, quiet in pairs]
    of_mean = stdev(rates) / len(rates) ** 0.5 if len(rates) > 1 else float("nan")
    print(f"trials/s of quiet over live, by pair: {', '.join(f'{r:.3f}' for r in rates)}")
    print(f"its mean {mean(rates):.4f}, standard error {of_mean:.4f}")
    extra = [live.cpu_seconds - quiet.cpu_seconds for live, quiet in pairs]
    each = 1000 * mean(extra) / n_trials
    print(f"CPU of the flow's process for the display: {each:.2f} ms a trial")
    goals.at_most("trials/s of quiet over live, geometric mean", geometric_mean(rates), GOAL)


if __name__ == "__main__":
    main()
