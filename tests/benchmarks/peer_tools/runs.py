"""Runs of tools on splits, each in a separate process, with a file of rows for each."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import pandas as pd
from machine import describe

from peer_tools.tables import SplitFiles
from peer_tools.task import Task
from prefect_tune.tasks.threads import THREAD_VARIABLES

__all__ = ["Run", "Tool", "collected", "install_peers", "run_one"]

ROOT = Path(__file__).parents[3]
LONGEST = 5
"""How many times its seconds a run may take, refits included, and a quarter of an hour more."""


@dataclass(frozen=True)
class Tool:
    """A tool with options, written as `ours:space=modern:ensemble=auto`."""

    label: str
    name: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, label: str) -> "Tool":
        """Parse a label."""
        name, *options = label.split(":")
        return cls(label, name, dict(option.split("=", 1) for option in options))


@dataclass(frozen=True)
class Run:
    """A tool on a split of a table, with a limit of seconds."""

    tool: Tool
    table: str
    split: int
    budget: float

    @property
    def key(self) -> dict[str, Any]:
        """Columns that identify the run."""
        return {"tool": self.tool.label, "table": self.table, "split": self.split,
                "budget": self.budget}  # fmt: skip

    @property
    def name(self) -> str:
        """The key as the name of a file."""
        return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(map(str, self.key.values())))


def collected(
    runs: Sequence[Run], home: Path, make: Callable[[Run], list[dict[str, Any]]]
) -> pd.DataFrame:
    """Return the rows of all runs; runs with a file in `home/rows` are not repeated.

    Several processes may fill one folder with different tools or tables.

    Raises:
        SystemExit: If a run fails; the other runs are completed first.
    """
    found, failed, folder = [], [], home / "rows"
    folder.mkdir(parents=True, exist_ok=True)
    for run in runs:
        path, since, load = folder / f"{run.name}.parquet", monotonic(), os.getloadavg()[0]
        if not path.exists():
            try:
                rows = make(run)
            except subprocess.SubprocessError as error:
                print(f"{run.name} FAILED: {error}", flush=True)
                failed.append(run.name)
                continue
            load = max(load, os.getloadavg()[0])
            common = {**run.key, "seconds": monotonic() - since, "load": load}
            pd.DataFrame([{**common, **row} for row in rows]).to_parquet(path, index=False)
            print(f"{run.name}: {monotonic() - since:.0f} s; {describe()}", flush=True)
        found.append(pd.read_parquet(path))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; the same command tries again")
    return pd.concat(found, ignore_index=True)


def run_one(run: Run, files: SplitFiles, home: Path, core: int | None) -> list[dict[str, Any]]:
    """Run a tool on a split with one thread, and return its rows.

    Raises:
        SubprocessError: If the tool fails or does not end in time; the log stays in the folder of
            the run.
    """
    folder = home / "runs" / run.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    task = Task(
        str(files.train), str(files.test), files.target, files.kind, run.budget, files.seed,
        monotonic(), str(folder), run.tool.options,
    )  # fmt: skip
    task.write(folder / "task.json")
    command = [sys.executable, "-m", "peer_tools.one_run", str(folder), run.tool.name]
    command += [] if core is None else [str(core)]
    dropped = ("PREFECT_", "PYTHONDONTWRITEBYTECODE")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, env={**kept, **THREAD_VARIABLES}, stdout=log, stderr=log, cwd=folder,
            start_new_session=True,
        )  # fmt: skip
        try:
            if code := process.wait(LONGEST * run.budget + 900):
                raise subprocess.CalledProcessError(code, command)
        finally:
            with suppress(ProcessLookupError):  # all that it started
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    rows = json.loads((folder / "answers.json").read_text())
    shutil.rmtree(folder)
    return [{**row, "kind": files.kind, "test_rows": files.test_rows} for row in rows]


def install_peers() -> None:
    """Install the extra `peers`."""
    install = [ROOT / "deployments" / "install", "--inexact", "--extra", "peers"]
    subprocess.run(install, check=True)
