"""BAPI in real seconds: whole studies with checkpoints, beside the methods it has to beat.

    tests/benchmarks/run flows/bapi_seconds --home FOLDER --data FOLDER [--seconds 90] [--repeats 3]
        [--methods bapi,bohb,hyperband,random] [--tables mnist_t10k,optdigits_10c]

FOLDER of the data has `<table>.csv.gz` with the class in the column `target`. Of `mnist_t10k`,
networks of one layer are searched; of any other table, boosting, networks and linear models by
stochastic gradients behind a choice of rescaling. A full training has 50 epochs; a quarter of the
rows tests, a quarter of the others validates, drawn anew in each repeat, and the same for all
methods. Each study has one worker, a store of its own, and its seconds on the clock: what the
planner takes, and what stretches cost besides training, is charged. The final model is fitted after
them. The home keeps what is done, and an interrupted benchmark goes on where it was.
"""

import argparse
import os
import shutil
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from kept_rows import KeptRows
from machine import describe
from silent import silent_studies

from prefect_tune.flows.tuning import tune
from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress

METHOD = "bapi"
EPOCHS = 50
SPACES = Path(__file__).parents[1] / "live_spaces.py"
NETWORKS_ALONE = ("mnist_t10k",)
SHOWN = (
    "validation", "test", "configurations", "epochs", "saved", "asks", "planner", "training",
    "thaws",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tables", default="mnist_t10k,optdigits_10c")
    parser.add_argument("--methods", default=f"{METHOD},bohb,hyperband,random")
    parser.add_argument("--seconds", type=int, default=90)
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    print(describe(), flush=True)
    kept = KeptRows(chosen.home / "studies.jsonl", "table", "seed", "method", "seconds")
    tables, methods = chosen.tables.split(","), chosen.methods.split(",")
    with silent_studies(chosen.home):
        for seed, table, method in product(range(chosen.repeats), tables, methods):
            key = {"table": table, "seed": seed, "method": method, "seconds": chosen.seconds}
            row = kept.get_or_make(key, partial(run, chosen, table, method, seed))
            print(" ".join(f"{name} {shown(value)}" for name, value in row.items()), flush=True)
    report(chosen, kept.rows)


def run(chosen: argparse.Namespace, table: str, method: str, seed: int) -> dict[str, Any]:
    """Run a study, or go on with it, and take its figures."""
    name = f"{table}-{method}-{seed}-{chosen.seconds}s"
    store = chosen.home / name
    summary = tune(
        data=str(chosen.data / f"{table}.csv.gz"),
        target="target",
        test_size=0.25,
        holdout=0.25,
        space=f"{SPACES}:{'networks' if table in NETWORKS_ALONE else 'mixed'}",
        method=method,
        option={"fidelity": "epochs"} if method in {"bohb", "hyperband", "halving"} else None,
        epochs=EPOCHS,
        seed=seed,
        budget=f"{chosen.seconds}s",
        trial_timeout=f"{chosen.seconds}s",
        study=name,
        workers=1,
        store=str(store),
        task_runs="trial",
    )
    figures = figures_of(summary, Ledger(ArtifactStore(StoreAddress(str(store))).database))
    shutil.rmtree(store)
    return figures


def figures_of(summary: dict[str, Any], ledger: Ledger) -> dict[str, Any]:
    """Losses in percent, epochs, and seconds, of a study that has ended."""
    trials = ledger.trials(summary["study"])
    reached, trained = dict[str, int](), 0
    for trial in trials:
        if (evaluation := trial["evaluation"]) and evaluation.get("curve"):
            n, configuration = len(evaluation["curve"]), str(trial["query"]["configuration"])
            trained += max(n - evaluation["resumed_from"], 0)
            reached[configuration] = max(reached.get(configuration, 0), n)
    full = EPOCHS * len(reached)
    return {
        "validation": summary["incumbent"]["loss"],
        "test": summary["test_loss"],
        "configurations": summary["n_begun"],
        "stretches": summary["n_trials"],
        "failed": summary["n_failed"],
        "epochs": trained,
        "saved": 1 - sum(reached.values()) / full if full else 0.0,
        "asks": len(ledger.events(summary["study"], "ask")),
        "planner": summary["seconds"]["asking"],
        "training": summary["seconds"]["evaluating"],
        "thaws": summary["decisions"].get("thawed", 0),
        "ends": summary["decisions"].get("ends", {}),
        "notes": summary["decisions"].get("notes", []),
        "load": os.getloadavg()[0],
    }


def shown(value: Any) -> str:
    """A value as it stands in a line."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def report(chosen: argparse.Namespace, kept: list[dict[str, Any]]) -> None:
    """Print means and their standard errors, and paired differences."""
    rows = pd.DataFrame([row for row in kept if row["seconds"] == chosen.seconds])
    rows = rows[rows["method"].isin(chosen.methods.split(",")) & (rows["seed"] < chosen.repeats)]
    for table, own in rows.groupby("table", sort=False):
        load = own["load"]
        print(
            f"{table}: {chosen.seconds} s of one worker, {own['seed'].nunique()} repeats, load "
            f"{load.min():.1f} to {load.max():.1f}; mean +- standard error"
        )
        by_method = own.groupby("method", sort=False)[list(SHOWN)]
        print(by_method.agg(spread).T.to_string())
        for loss in ("validation", "test"):
            wide = own.pivot_table(index="seed", columns="method", values=loss)
            if METHOD in wide and len(wide.columns) > 1:
                others = wide.drop(columns=METHOD)
                behind = others.rsub(wide[METHOD], axis=0).agg(spread)
                said = ", ".join(f"{method} {by}" for method, by in behind.items())
                print(f"{METHOD} less each other, {loss}, by repeat: {said}")
    print(describe())


def spread(values: "pd.Series[float]") -> str:
    """Mean and standard error."""
    error = f" +- {values.sem():.3g}" if len(values) > 1 else ""
    return f"{values.mean():.4g}{error}"


if __name__ == "__main__":
    main()
