"""What subsets are worth in real seconds: Fabolas and methods on all rows, side by side.

    tests/benchmarks/run flows/fabolas_seconds --home FOLDER \\
        ../shared/data/cal_housing.csv.gz ../shared/data/phishing_websites.csv.gz

Each table has its class in the column `target`; a fifth of its rows are test rows, drawn anew for
each split. All methods have the same time on one worker each, two of them at the same time, and
search the whole space `small` with three folds and an empty cache of their own. The final models
are scored on the test rows. The home keeps what is done, and an interrupted benchmark is resumed.
"""

import argparse
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
from machine import Goals, describe
from processes import COMMAND, environment, run_json

METHOD = "fabolas"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--methods", default=f"random,smac,flash,{METHOD}")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--budget", default="240s")
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args()
    chosen.home.mkdir(parents=True, exist_ok=True)
    curves = []
    for table in chosen.tables:
        print(f"{table.name}: {describe()}", flush=True)
        curves.append(compare(chosen, table))
        print(shown(chosen.home, curves[-1]).to_string(index=False), flush=True)
    report(pd.concat(curves, ignore_index=True))


def compare(chosen: argparse.Namespace, table: Path) -> pd.DataFrame:
    """Run what is not done yet of one table, and return the curves."""
    name = table.name.split(".")[0]
    out = chosen.home / f"{name}.parquet"
    command = (
        *COMMAND, "compare", table, "--target", "target", "--space", "small",
        "--methods", chosen.methods, "--repeats", chosen.splits, "--budget", chosen.budget,
        "--workers", chosen.workers, "--name", name, "--out", out, "--quiet",
    )  # fmt: skip
    subprocess.run(
        list(map(str, command)),
        env=environment(chosen.home) | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return pd.read_parquet(out)


def shown(home: Path, curves: pd.DataFrame) -> pd.DataFrame:
    """Raw values: a row for each split and method."""
    rows = []
    for (study, method, split), own in curves.groupby(["study", "method", "repeat"], sort=False):
        last = own.iloc[-1]
        at = {"split": split, "method": method, "test": last["test_loss"]}
        rows.append({**at, **spent(home, study)})
        rows[-1] |= {"configurations": last["trials"], "asking": last["ask_seconds"]}
    return pd.DataFrame(rows).round(2)


def spent(home: Path, study: str) -> dict[str, Any]:
    """What a study did with its time."""
    summary = run_json("show", study, home=home)
    names = ("n_trials", "n_stopped", "n_failed")
    sizes = summary["decisions"].get("sizes", [])
    return {
        **{name: summary[name] for name in names},
        "evaluating": summary["seconds"]["evaluating"],
        "sizes": " ".join(f"{round(1 / s['share'])}:{s['runs']}" for s in sizes),
        "confirmed": len(summary["decisions"].get("confirmations", [])),
    }


def report(curves: pd.DataFrame) -> None:
    """Print medians over the splits, and whether they are what they are to be."""
    goals = Goals()
    for data, own in curves.groupby("data", sort=False):
        ends = own.groupby("study").tail(1)
        losses = ends.assign(loss=ends["test_loss"].astype(float).fillna(float("inf")))
        medians = losses.groupby("method")["loss"].median()
        print(f"{data}: median test loss")
        print(medians.round(3).to_string())
        if METHOD in medians:
            excess = medians[METHOD] - medians.drop(METHOD).min()
            goals.at_most(f"{data}: {METHOD} above the best other one", excess, 0.0)
    goals.end()


if __name__ == "__main__":
    main()
