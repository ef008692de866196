"""Our default beside FLAML, Optuna's grouped TPE, SMAC3 and AutoGluon on the same tables.

    tests/benchmarks/run flows/peers --out FOLDER [--tools ours,flaml,optuna,smac,autogluon]
        [--budget 120] [--splits 2] [--jobs 1] TABLE[:TARGET] ...
    tests/benchmarks/run flows/peers --recorded

Each tool gets the seconds of the budget, start-up included, in a process of its own with one thread
on one core; `peer_tools/adapters/` says what each does with them. 30 % of the rows, stratified by
class and drawn by the table's name and the split's number, test: the error in percent, or 1 - R2.
Incumbents after a quarter, half and all of the budget are scored by predictions of the same test
rows, and ranked by their cross-validated losses too, each tool's by its own folds.
`ours:space=modern:ensemble=auto` is a tool with options, which may be there several times;
`optuna:space=small+regression` searches other ones of our spaces, each table the one that fits.

FOLDER gets `rows.parquet`, a row for each answer, `splits/`, `logs/` of the runs, and AutoGluon's
environment. What is in `rows.parquet` is not run again, so that an interrupted benchmark goes on
where it was, and with all of it there the same command prints the report alone. Eight tables with
two splits of five tools take three hours on one core. What `prefect-tune[peers]` has is installed
beside what is there. `--recorded` prints the report of the runs that README speaks of, and what
each part of our default gives: tools `ours`, `ours:space=flash+regression`, `ours:start=none`,
`ours:race=false` and `ours:ensemble=single` on one split of the same tables.
"""

import argparse
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pandas as pd
from machine import describe
from peer_tools.one_run import adapter
from peer_tools.report import goals, parts, report
from peer_tools.rows import PARTS, RECORDED, Rows
from peer_tools.runs import Run, Tool, run_all
from peer_tools.tables import TableFile

from prefect_tune.tasks.catalogue.spaces import algorithms_of, missing_libraries, space_named

ROOT = Path(__file__).parents[3]
TOOLS = "ours,flaml,optuna,smac,autogluon"
IN_EXTRA = ("flaml", "optuna", "smac")
say = partial(print, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE[:TARGET]", type=TableFile.of)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--recorded", action="store_true", help="run nothing")
    parser.add_argument("--tools", default=TOOLS)
    parser.add_argument("--budget", type=float, default=120.0)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time, each on a core")
    chosen = parser.parse_args(arguments)
    if chosen.recorded:
        report(pd.read_parquet(RECORDED))
        print("our default over the same without one of its parts, test losses:")
        parts(pd.read_parquet(PARTS))
        return
    if chosen.out is None or not chosen.tables:
        parser.error("name tables, and a folder with --out")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that runs are ended with it
    home = chosen.out.absolute()
    home.mkdir(parents=True, exist_ok=True)
    tools = [Tool.of(label) for label in chosen.tools.split(",")]
    runs = [
        Run(tool, table.name, number, chosen.budget, table.split(number, home / "splits"))
        for number, table, tool in product(range(chosen.splits), chosen.tables, tools)
    ]
    rows = Rows(home / "rows.parquet")
    prepare({run.tool.name for run in runs if not rows.has(run.key)}, home)
    say(f"{describe()}; {installed()}")
    failed = run_all(runs, rows, home, chosen.jobs, say)
    asked = [run.key for run in runs if run not in failed]
    found = rows.of(asked)
    if found.empty:
        sys.exit("no run has answers")
    report(found)
    say(describe())
    reached = goals(found)
    if failed:
        sys.exit(f"failed: {', '.join(run.name for run in failed)}; the same command tries again")
    reached.end()


def installed() -> str:
    """Which install of ours is measured."""
    lacking = [m.package for m in missing_libraries(algorithms_of(space_named("modern")))]
    return f"prefect-tune without {', '.join(lacking)}" if lacking else "prefect-tune[boosting]"


def prepare(names: set[str], home: Path) -> None:
    """Install what the tools need that are to be run."""
    if any(name in IN_EXTRA and find_spec(name) is None for name in names):
        install = [ROOT / "deployments" / "install", "--inexact", "--extra", "peers"]
        subprocess.run(install, check=True)
    for name in sorted(names):
        if install_for := getattr(adapter(name), "prepare", None):
            install_for(home, shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv"))


if __name__ == "__main__":
    main()
