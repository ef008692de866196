"""Runs of tools on splits, each in a process of its own on a core of its own."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from typing import Any

import psutil
from machine import describe

from peer_tools.rows import Rows
from peer_tools.tables import SplitFiles
from peer_tools.task import Task
from prefect_tune.tasks.threads import THREAD_VARIABLES

__all__ = ["Run", "RunFailed", "Tool", "run_all", "run_one"]

BENCHMARKS = Path(__file__).parents[1]
MODULE = "peer_tools.one_run"
LONGEST = 5
"""How many times its seconds a run may take, refits included, and a quarter of an hour more."""


class RunFailed(RuntimeError):  # noqa: N818 - it says what happened
    """A run has no answers; the message names its log."""


@dataclass(frozen=True)
class Tool:
    """A tool with options, as written `ours:space=modern:ensemble=auto`."""

    label: str
    name: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, label: str) -> "Tool":
        """Read it.

        Raises:
            ValueError: If an option is not written NAME=VALUE.
        """
        name, *options = label.split(":")
        pairs = [option.partition("=") for option in options]
        if bad := [name for name, equals, _ in pairs if not equals]:
            raise ValueError(f"{label}: write TOOL:NAME=VALUE, not {bad[0]!r}")
        return cls(label, name, {name: value for name, _, value in pairs})


@dataclass(frozen=True)
class Run:
    """A tool on a split."""

    tool: Tool
    table: str
    split: int
    budget: float
    files: SplitFiles

    @property
    def key(self) -> dict[str, Any]:
        """The columns that name it."""
        return {
            "tool": self.tool.label,
            "table": self.table,
            "split": self.split,
            "budget": self.budget,
        }

    @property
    def name(self) -> str:
        """Its key as the name of a file."""
        text = f"{self.tool.label}-{self.table}-{self.split}-{self.budget:g}"
        return re.sub(r"[^A-Za-z0-9._-]+", "-", text)


def run_all(
    runs: Sequence[Run], rows: Rows, home: Path, jobs: int, say: Callable[[str], None] = print
) -> list[Run]:
    """Run what is not there yet, and return what has failed.

    Raises:
        ValueError: If there are fewer cores than jobs.
    """
    cores: SimpleQueue[int | None] = SimpleQueue()
    for core in _cores(jobs):
        cores.put(core)

    def work(run: Run) -> Run | None:
        core, since = cores.get(), monotonic()
        try:
            found = run_one(run, home, core)
        except RunFailed as failed:
            say(f"{run.name}: {failed}")
            return run
        finally:
            cores.put(core)
        rows.add(found)
        last = [row for row in found if row["model"] == "answer"][-1]
        say(
            f"{run.name}: test loss {last['test_loss']:.4g}, {last['configurations']} "
            f"configurations, {monotonic() - since:.0f} s; {describe()}"
        )
        return None

    waiting = [run for run in runs if not rows.has(run.key)]
    say(f"{len(runs) - len(waiting)} of {len(runs)} runs are there")
    with ThreadPoolExecutor(jobs) as pool:
        try:
            return [run for run in pool.map(work, waiting) if run is not None]
        except BaseException:  # interrupted: nothing goes on behind the user's back
            pool.shutdown(wait=False, cancel_futures=True)
            _end_running()
            raise


def run_one(run: Run, home: Path, core: int | None = None) -> list[dict[str, Any]]:
    """Run a tool on a split, and return its rows.

    Raises:
        RunFailed: If it ends without answers, or not in time.
    """
    folder, log = home / "runs" / run.name, home / "logs" / f"{run.name}.log"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log.parent.mkdir(exist_ok=True)
    files = run.files
    command = [sys.executable, "-m", MODULE, str(folder), run.tool.name]
    command += [] if core is None else [str(core)]
    load = os.getloadavg()[0]
    task = Task(
        str(files.train), str(files.test), files.target, files.kind, run.budget, files.seed,
        monotonic(), str(folder), run.tool.options,
    )  # fmt: skip
    task.write(folder / "task.json")
    with log.open("w") as out:
        process = subprocess.Popen(
            command, env=_environment(), stdout=out, stderr=out, start_new_session=True, cwd=folder
        )
        try:
            code = process.wait(LONGEST * run.budget + 900)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with suppress(ProcessLookupError):  # what it has started, if it was interrupted
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code != 0:
        said = log.read_text().strip().splitlines()
        how = "did not end in time" if code is None else f"exit {code}"
        raise RunFailed(f"FAILED, {how}: {said[-1] if said else 'nothing said'} ({log})")
    answers = json.loads((folder / "answers.json").read_text())
    shutil.rmtree(folder)
    common = {**run.key, "kind": files.kind, "seed": files.seed, "test_rows": files.test_rows}
    load = max(load, os.getloadavg()[0])
    if not answers:
        raise RunFailed(f"FAILED, it had no answer at all ({log})")
    return [{**common, **answer, "load": load} for answer in answers]


def _end_running() -> None:
    """Kill the runs of this process, with all that they have started."""
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if MODULE in child.cmdline():
                os.killpg(child.pid, signal.SIGKILL)


def _environment() -> dict[str, str]:
    """That of a run: one thread, no settings of another Prefect, our modules on the path."""
    dropped = ("PREFECT_", "PYTHONDONTWRITEBYTECODE")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    path = os.pathsep.join([str(BENCHMARKS), str(BENCHMARKS.parent)])
    return {**kept, **THREAD_VARIABLES, "PYTHONPATH": path}


def _cores(jobs: int) -> Sequence[int | None]:
    """A core for each job, as far as this system can pin processes."""
    if not hasattr(os, "sched_getaffinity"):
        return [None] * jobs
    cores = sorted(os.sched_getaffinity(0))
    if jobs > len(cores):
        raise ValueError(f"--jobs {jobs}: this machine has {len(cores)} cores")
    return cores[:jobs]
