"""What subsets are worth in real seconds: Fabolas and methods on all rows, side by side.

    tests/benchmarks/run flows/fabolas_seconds --home FOLDER \\
        ../shared/data/cal_housing.csv.gz ../shared/data/phishing_websites.csv.gz

Each table has its class in the column `target`; a fifth of its rows are test rows, drawn anew for
each split. All methods have the same time on one worker each, two of them at the same time, and
search the whole space `small` with three folds and an empty cache of their own. What leads at
fixed times is fitted on all training rows and scored on the test rows after the search. The home
keeps what is done, and an interrupted benchmark goes on where it was.
"""

import argparse
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
from machine import Goals, describe
from processes import COMMAND, environment, run_json

from prefect_tune.flows.comparison.standings import FRACTIONS, state_at

METHOD = "fabolas"
QUARTER = 0.25


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
        at = {f"test_{f:g}": tested(own, f) for f in FRACTIONS}
        last = own.iloc[-1]
        rows.append({"split": split, "method": method, **at, **spent(home, study)})
        rows[-1] |= {"configurations": last["trials"], "asking": last["ask_seconds"]}
    return pd.DataFrame(rows).round(2)


def tested(curve: pd.DataFrame, fraction: float) -> float:
    """Test loss of what led at a fraction of the budget; NaN before there was anything."""
    state = state_at(curve, fraction)["test_loss"].astype(float)
    return float(state.iloc[0]) if len(state) else float("nan")


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
        medians = {
            fraction: state_at(own, fraction)
            .assign(loss=lambda state: state["test_loss"].astype(float).fillna(float("inf")))
            .groupby("method")["loss"]
            .median()
            for fraction in FRACTIONS
        }
        print(f"{data}: median test loss at fractions of the budget")
        print(pd.DataFrame(medians).round(3).to_string())
        if METHOD not in medians[1.0]:
            continue
        for fraction, least in ((QUARTER, -0.001), (1.0, 0.0)):
            best = medians[fraction].drop(METHOD).min()
            excess = medians[fraction][METHOD] - best
            goals.at_most(
                f"{data}: {METHOD} above the best other one at {fraction:g}", excess, least
            )
    goals.end()


if __name__ == "__main__":
    main()
