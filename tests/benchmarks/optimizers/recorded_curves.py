"""Methods that train in epochs, on recorded learning curves: distance to the best of the table.

    tests/benchmarks/run optimizers/recorded_curves FOLDER [--tables mlp,sgd,...] [--seeds 20]
        [--methods bapi,bapi:variant=paper,bohb,...] [--budget 8] [--charge] [--runs runs.jsonl]

FOLDER keeps the tables (as Parquet) and the runs. Stored runs are not repeated, so a changed method
needs another file in `--runs`. Options of a method are written `bapi:variant=paper:horizon=1`.
Methods choose among the rows of the table. `--budget` is a number of full training runs of mean
cost; with `--charge`, the processor time of asks counts too. Regret is the distance of the least
validation loss from the least in the table, in hundredths of a percentage point (1e-4 of accuracy).
The test loss is the loss of the method's incumbent at each reported share of the budget.
"""

import argparse
import zlib
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from anytime import Contestant, named
from curve_replay import AT, Figures, Run, mean_ranks, objective_of, run
from curve_tables import TABLES, Table, load_table
from kept_rows import KeptRows
from machine import Goals, describe
from methods_of_table import method_of_table
from threadpoolctl import threadpool_limits

METHODS = "bapi,bapi:variant=paper,bohb,hyperband,halving,random"


def made_run(table: Table, contestant: Contestant, key: dict[str, Any]) -> dict[str, Any]:
    """Run a method, seeded by the name of the table and the number of the run."""
    seed = zlib.crc32(f"{key['table']}{key['seed']}".encode())
    objective = objective_of(key["table"], table)
    optimizer = method_of_table(contestant.method, table, seed, objective, contestant.options)
    return {"run": asdict(run(optimizer, table, key["budget"], are_asks_free=not key["charge"]))}


def figures_of(name: str, options: argparse.Namespace, runs: KeptRows) -> dict[str, Figures]:
    """Return figures of all methods on a table."""
    table, of_methods = load_table(name, options.folder), {}
    for contestant in named(options.methods):
        key = {"table": name, "n_rows": len(table.configurations), "method": contestant.text}
        key |= {"budget": options.budget, "charge": options.charge}
        keys = [{"key": {**key, "seed": seed}} for seed in range(options.seeds)]
        rows = [runs.get_or_make(k, partial(made_run, table, contestant, k["key"])) for k in keys]
        of_methods[contestant.text] = Figures.of([Run(**row["run"]) for row in rows], table)
    return of_methods


def with_error(values: np.ndarray, digits: int) -> str:
    """Return mean and standard error."""
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{f'{values.mean():.{digits}f} +- {error:.{digits}f}':>17}"


def report(name: str, of_methods: dict[str, Figures]) -> None:
    """Print means and standard errors over the seeds; regrets x 100."""
    shares = " ".join(f"{share:.0%}" for share in AT)
    print(f"{name}: regret at {shares} of the budget | test loss at 50 and 100 % | configurations,")
    print("epochs, seconds of asks / of the budget")
    for method, of in of_methods.items():
        regrets = "".join(with_error(100 * r, 1) for r in of.regrets.T)
        tests = "".join(with_error(of.tests[:, AT.index(share)], 2) for share in (0.5, 1.0))
        print(f"  {method:<24}{regrets} |{tests} | {of.line}", flush=True)


def report_ranks(of_tables: dict[str, dict[str, Figures]], goals: Goals) -> None:
    """Print mean ranks; the goal is the first rank for bapi with its defaults."""
    columns = [(by, share) for by in ("regrets", "tests") for share in (0.5, 1.0)]
    ranks = {c: mean_ranks(of_tables, c[1], c[0]) for c in columns}
    print(f"mean ranks +- s.e. over {len(of_tables)} tables, by {columns}")
    for method in next(iter(of_tables.values())):
        pairs = [
            f"{rank:.2f} +- {error:.2f}" for rank, error in (r[method] for r in ranks.values())
        ]
        print(f"  {method:<24}{'  '.join(pairs)}")
    for by in ("regrets", "tests"):
        of_methods = {method: rank for method, (rank, _) in ranks[by, 1.0].items()}
        if "bapi" in of_methods and len(of_methods) > 1:
            mine = of_methods.pop("bapi")
            goals.at_most(f"mean rank of bapi by {by}", mine, min(of_methods.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--runs", default="runs.jsonl")
    parser.add_argument("--charge", action="store_true")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--budget", type=float, default=8.0)
    options = parser.parse_args()
    print(f"{describe()}\n{options}")
    runs, of_tables = KeptRows(options.folder / options.runs, "key"), {}
    for name in options.tables.split(","):
        of_tables[name] = figures_of(name, options, runs)
        report(name, of_tables[name])
    goals = Goals()
    report_ranks(of_tables, goals)
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
