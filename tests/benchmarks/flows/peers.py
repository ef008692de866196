"""The default of prefect-tune against FLAML, Optuna, SMAC3 and AutoGluon on the same tables.

    tests/benchmarks/run flows/peers --out FOLDER [--tools ours,flaml,optuna,smac,autogluon]
        [--budget 120] [--splits 2] [--core 0] TABLE[:TARGET] ...
    tests/benchmarks/run flows/peers --recorded

Each tool gets the seconds of the budget, start-up included, in its own process with one thread on
one core; `peer_tools/adapters/` describes each tool. 30% of the rows are test rows, stratified by
class; the name of the table and the number of the split determine the draw. The test loss is the
error in percent, or 1 - R2. Incumbents after a quarter, half and all of the budget are scored by
predictions of the same test rows. `ours:space=modern:ensemble=auto` is a tool with options; several
such tools may be given. With `optuna:space=small+regression`, Optuna searches whichever of these
spaces fits the target of the table.

FOLDER gets `rows/` (a file for each run), `splits/`, logs of failed runs, and AutoGluon's
environment. An interrupted benchmark continues with the runs that have no rows. After the last run,
the same command only prints the report. To use several cores, start the command once for each core
with other `--tools`. Eight tables with two splits of five tools take three hours on one core. The
environment needs the extra `prefect-tune[peers]`.
`--recorded` prints the report of the runs shown in README, and the contribution of each part of our
default: tools `ours`, `ours:space=flash+regression`, `ours:start=none`, `ours:race=false` and
`ours:ensemble=single` on one split of the same tables. Last come runs of 45 seconds with the tools
`ours`, `ours:method=admm` and `ours:method=tpe` on two splits of six tables.
"""

import argparse
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pandas as pd
from machine import describe
from peer_tools.one_run import adapter
from peer_tools.report import METHODS, PARTS, RECORDED, goals, parts, report
from peer_tools.runs import Run, Tool, collected, install_peers, run_one
from peer_tools.tables import TableFile

from prefect_tune.tasks.catalogue.spaces import algorithms_of, missing_libraries, space_named

IN_EXTRA = ("flaml", "optuna", "smac")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE[:TARGET]", type=TableFile.of)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--recorded", action="store_true", help="run nothing")
    parser.add_argument("--tools", default="ours,flaml,optuna,smac,autogluon")
    parser.add_argument("--budget", type=float, default=120.0)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--core", type=int, help="core of all runs")
    chosen = parser.parse_args()
    if chosen.recorded:
        report(pd.read_parquet(RECORDED))
        print("our default over the same without one of its parts, test losses:")
        parts(pd.read_parquet(PARTS))
        print("our default over the same with another method, test losses:")
        parts(pd.read_parquet(METHODS))
        return
    if chosen.out is None or not chosen.tables:
        parser.error("name tables, and a folder with --out")
    lacking = [m.package for m in missing_libraries(algorithms_of(space_named("modern")))]
    print(f"{describe()}; prefect-tune without {lacking or 'nothing'}", flush=True)
    home: Path = chosen.out.absolute()
    tools = [Tool.of(label) for label in chosen.tools.split(",")]
    if any(tool.name in IN_EXTRA and find_spec(tool.name) is None for tool in tools):
        install_peers()
    for tool in tools:
        if prepare := getattr(adapter(tool.name), "prepare", None):
            prepare(home)
    tables = {table.name: table for table in chosen.tables}
    keys = product(range(chosen.splits), tables, tools)
    runs = [Run(tool, table, number, chosen.budget) for number, table, tool in keys]

    def make(run: Run) -> list[dict[str, object]]:
        files = tables[run.table].split(run.split, home / "splits")
        return run_one(run, files, home, chosen.core)

    found = collected(runs, home, make)
    report(found)
    goals(found).end()


if __name__ == "__main__":
    main()
