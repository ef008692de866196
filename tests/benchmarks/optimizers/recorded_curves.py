"""Methods that grow epochs, on learning curves recorded once: how far from the best of the table.

    tests/benchmarks/run optimizers/recorded_curves FOLDER [--tables mlp,sgd,...] [--seeds 20]
        [--first-seed 0] [--methods bapi,bapi:variant=paper,bapi_ei,bohb,...] [--budget 8]
        [--charge] [--nearest] [--runs runs.jsonl]

FOLDER keeps the tables (as Parquet) and the runs; what is there is not made again, so another state
of a method needs other `--runs`. Options of a method are written `bapi:variant=paper:horizon=1`;
`bapi_ei`, `bapi_binoculars` and `bapi_ms_ei` are what the paper compares BAPI with.
Methods begin rows of the table and nothing else; with `--nearest` they draw as ever, and a
configuration stands for the nearest row that is free. A budget is that of so many full trainings of
mean cost; with `--charge` asks take their seconds of it, in processor time. Regret is that of the
least loss validated, in hundredths of a percent point: what the tables call 1e-4 of accuracy. The
test loss is that of the epoch of the configuration that the method names at the time.
"""

import argparse
import zlib
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from anytime import Contestant, named
from curve_replay import Run, objective_of, run
from curve_standings import Figures, mean_ranks, report_of
from curve_tables import TABLES, Table, load_table
from full_trainings import FULL_TRAININGS
from kept_rows import KeptRows
from machine import Goals, describe
from methods_of_table import method_of_table
from threadpoolctl import threadpool_limits

from prefect_tune.optimizers import Optimizer, make_optimizer

METHODS = "bapi,bapi:variant=paper,bapi_ei,bohb,hyperband,halving,random"
KEY = ("table", "n_rows", "method", "seed", "budget", "charge", "nearest")


def made_run(table: Table, contestant: Contestant, key: dict[str, Any]) -> dict[str, Any]:
    """A run of a method, its seed made of the table's name and the number of the run."""
    seed = zlib.crc32(f"{key['table']}{key['seed']}".encode())
    objective, method = objective_of(key["table"], table), contestant.method
    optimizer: Optimizer
    if not key["nearest"]:
        optimizer = method_of_table(method, table, seed, objective, contestant.options)
    elif method in FULL_TRAININGS:
        optimizer = FULL_TRAININGS[method](table.space, seed, objective)
    else:
        optimizer = make_optimizer(method, table.space, seed, objective, contestant.options)
    done = run(optimizer, table, key["budget"], are_asks_free=not key["charge"])
    return {"run": asdict(done)}


def figures_of(name: str, options: argparse.Namespace, runs: KeptRows) -> dict[str, Figures]:
    """Figures of all methods on a table."""
    table = load_table(name, options.folder)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    same = {k: getattr(options, k) for k in ("budget", "charge", "nearest")}
    of_methods = {}
    for contestant in named(options.methods):
        key = {**same, "table": name, "n_rows": len(table.configurations)}
        key["method"] = contestant.text
        keys = [{**key, "seed": seed} for seed in seeds]
        rows = [runs.get_or_make(k, partial(made_run, table, contestant, k)) for k in keys]
        of_methods[contestant.text] = Figures.of([Run(**row["run"]) for row in rows], table)
    return of_methods


def print_ranks(of_tables: dict[str, dict[str, Figures]], goals: Goals) -> None:
    """Mean ranks among all methods; the goal is that bapi as it is by default has the first."""
    among = list(next(iter(of_tables.values())))
    print(f"mean rank per seed, mean +- s.e. over {len(of_tables)} tables, of {len(among)} methods")
    columns = [(by, share) for by in ("regrets", "tests") for share in (0.5, 1.0)]
    ranks = {c: mean_ranks(of_tables, among, c[1], c[0]) for c in columns}
    words = {"regrets": "validated", "tests": "test"}
    width = max(map(len, among))
    print(" " * width + "".join(f"{f'{words[by]} {share:.0%}':>18}" for by, share in columns))
    for method in among:
        cells = [
            f"{rank:.2f} +- {error:.2f}" for rank, error in (r[method] for r in ranks.values())
        ]
        print(f"{method:<{width}}" + "".join(f"{cell:>18}" for cell in cells))
    if "bapi" in among and len(among) > 1:
        for by in ("regrets", "tests"):
            of_methods = ranks[by, 1.0]
            best_other = min(rank for m, (rank, _) in of_methods.items() if m != "bapi")
            goals.at_most(f"mean rank of bapi, {words[by]}", of_methods["bapi"][0], best_other)


def print_bohb(of_tables: dict[str, dict[str, Figures]], goals: Goals) -> None:
    """Bohb beside hyperband, by the median regret at the end."""
    medians = np.array(
        [
            [np.median(of_methods[m].regrets[:, -1]) for m in ("bohb", "hyperband")]
            for of_methods in of_tables.values()
            if {"bohb", "hyperband"} <= of_methods.keys()
        ]
    )
    if len(medians):
        n_behind, most = int(np.sum(medians[:, 0] > medians[:, 1])), len(medians) // 4
        goals.at_most("tables on which bohb is behind hyperband", n_behind, most)
        share = float(np.median(medians[:, 0] / np.maximum(medians[:, 1], 1e-9)))
        goals.at_most("bohb / hyperband, median regret at the end", share, 0.999)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--runs", default="runs.jsonl")
    parser.add_argument("--charge", action="store_true")
    parser.add_argument("--nearest", action="store_true")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--budget", type=float, default=8.0)
    options = parser.parse_args()
    print(describe())
    print(
        f"{options.methods} on {options.tables}; seeds {options.first_seed} to "
        f"{options.first_seed + options.seeds - 1}; {options.budget:g} full trainings, asks "
        f"{'charged' if options.charge else 'not charged'}"
        f"{'; configurations stand for rows' if options.nearest else ''}; runs in {options.runs}"
    )
    options.folder.mkdir(parents=True, exist_ok=True)
    runs, of_tables = KeptRows(options.folder / options.runs, *KEY), {}
    for name in options.tables.split(","):
        of_tables[name] = figures_of(name, options, runs)
        print("\n".join(report_of(name, of_tables[name])), flush=True)
    goals = Goals()
    print_ranks(of_tables, goals)
    print_bohb(of_tables, goals)
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
