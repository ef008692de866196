"""What `--ensemble auto` gives over the best single trial, on the test rows of FLASH's studies.

    tests/benchmarks/run flows/ensemble_gain --home FOLDER --data FOLDER [--seconds 60] [--seeds 2]
        [--tables vehicle,fri_c2_1000_10,pc4,space_ga,sick,wind] [--workers 2]

FOLDER of the data has `<table>.csv.gz` with the class in the column `target`. Each study has an
own split and test part by its seed, and a store of its own; both models are fitted on the same
training rows. The gain of a table is the mean over its seeds of ln (single / ensemble), by losses
to which half a row in error is added; its interval over tables is Student's. The home keeps what
is done, and an interrupted benchmark goes on where it was.
"""

import argparse
import os
import shutil
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from kept_rows import KeptRows
from machine import Goals, describe
from scipy.stats import t as student
from silent import silent_studies

from prefect_tune.flows.tune import tune

TABLES = "vehicle,fri_c2_1000_10,pc4,space_ga,sick,wind"
LEAST_TABLES = 5
"""Of six, on which the ensemble is to be no worse."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tables", default=TABLES)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args()
    print(describe(), flush=True)
    kept = KeptRows(chosen.home / "studies.jsonl", "table", "seed", "seconds")
    rows = []
    with silent_studies(chosen.home):
        for seed, table in product(range(chosen.seeds), chosen.tables.split(",")):
            key = {"table": table, "seed": seed, "seconds": chosen.seconds}
            rows.append(kept.get_or_make(key, partial(run, chosen, table, seed)))
            print(" ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    report(pd.DataFrame(rows))


def run(chosen: argparse.Namespace, table: str, seed: int) -> dict[str, Any]:
    """Run a study, and take what its two models lose on the test rows."""
    data = chosen.data / f"{table}.csv.gz"
    name = f"{table}-{seed}-{chosen.seconds}s"
    store = chosen.home / name
    summary = tune(
        data=str(data),
        target="target",
        test_size=0.25,
        ensemble="auto",
        seed=seed,
        budget=f"{chosen.seconds}s",
        study=name,
        workers=chosen.workers,
        store=str(store),
        task_runs="trial",
    )
    shutil.rmtree(store)
    ensemble = summary["ensemble"] or {"kind": "single", "members": [None]}
    return {
        "rows": len(pd.read_csv(data)) // 4,
        "trials": summary["n_trials"],
        "kind": ensemble["kind"],
        "members": len(ensemble["members"]),
        "ensemble": summary["test_loss"],
        "single": summary["single_best_test_loss"],
        "load": os.getloadavg()[0],
    }


def report(rows: pd.DataFrame) -> None:
    """Print the gains by table, their mean with its interval, and the goals."""
    half_row = 50 / rows["rows"]
    rows["gain"] = np.log((rows["single"] + half_row) / (rows["ensemble"] + half_row))
    by_table = rows.groupby("table", sort=False)[["single", "ensemble", "gain"]].mean()
    print(by_table.to_string(float_format="%.4g"))
    gains, n = by_table["gain"].to_numpy(), len(by_table)
    half = float(student.ppf(0.975, n - 1) * gains.std(ddof=1) / np.sqrt(n)) if n > 1 else np.inf
    print(
        f"mean gain {100 * gains.mean():.1f} % of the test loss, 95 % interval "
        f"{100 * (gains.mean() - half):.1f} to {100 * (gains.mean() + half):.1f} %, "
        f"{n} tables, load {rows['load'].min():.1f} to {rows['load'].max():.1f}"
    )
    goals = Goals()
    no_worse = int((by_table["ensemble"] <= by_table["single"]).sum())
    goals.at_least("tables on which the ensemble is no worse", no_worse, LEAST_TABLES)
    goals.end()


if __name__ == "__main__":
    main()
