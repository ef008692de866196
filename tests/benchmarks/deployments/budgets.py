"""Whether `run --budget` ends on time, and how much of it is lost to timeouts.

    tests/benchmarks/run deployments/budgets RESULTS.parquet [--data FILE:TARGET ...]
        [--budgets 30s 60s 120s] [--seed 0] [--without costs|ending] [--options --no-race ...]

Runs the command in a new home for each data set and budget, and adds a row to the results as each
ends; rows that are there are not run again. Without data, on 50,000 rows that are made up and on
20,000 patients. A row has the seconds from the command to its exit, the first result, the
configurations begun and those that ran in full, worker-seconds by what became of them, how the
model was made, its test loss, and the load. Without costs there is no pilot, and no predicted
seconds decide how much of a configuration runs; without the ending, the search lasts until the
budget is spent, and the final model comes after. `budgets.parquet` beside this file has runs of two
cores.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pandas as pd
from machine import Goals, describe
from processes import COMMAND, environment, run_json

from prefect_tune.flows.text import parse_seconds

_LATE_SECONDS = 3.0
_COMMAND = """
import sys
from prefect_tune.deployments.command import main
{change}
sys.exit(main())
"""
_WITHOUT = {
    "costs": """
from prefect_tune.flows.study.time_limit import TimeLimit
from prefect_tune.optimizers.racing import Racing

TimeLimit.pilot_seconds = lambda *_: None
Racing._reads_costs = lambda *_: False
""",
    "ending": """
from prefect_tune.flows import session

session.ending_seconds = lambda *_: 0.0
""",
}
_MOST_LOST = 0.05


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("results", type=Path)
    parser.add_argument("--data", nargs="+", default=())
    parser.add_argument("--budgets", nargs="+", default=("30s", "60s", "120s"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without", choices=tuple(_WITHOUT), default="")
    parser.add_argument("--options", nargs=argparse.REMAINDER, default=())
    asked = parser.parse_args()
    print(describe())
    rows = pd.read_parquet(asked.results).to_dict("records") if asked.results.exists() else []
    goals = Goals()
    with tempfile.TemporaryDirectory() as folder:
        for data in asked.data or (_table(Path(folder)), "cohort:paper?n_patients=20000"):
            for budget in asked.budgets:
                key = {
                    "data": Path(data).name, "budget": budget, "seed": asked.seed,
                    "options": " ".join(asked.options), "without": asked.without,
                }  # fmt: skip
                row = next((r for r in rows if key.items() <= r.items()), None)
                if row is None:
                    changed = _COMMAND.format(change=_WITHOUT.get(asked.without))
                    command = (sys.executable, "-c", changed) if asked.without else COMMAND
                    options = ("--seed", asked.seed, *asked.options)
                    row = key | measured(command, data, budget, *options)
                    rows.append(row)
                    pd.DataFrame(rows).to_parquet(asked.results)
                print(json.dumps(row))
                what = f"{key['data']}, {budget}"
                goals.at_most(f"{what}: seconds late", row["late"], _LATE_SECONDS)
                goals.at_most(f"{what}: lost to timeouts", row["lost"], _MOST_LOST)
    goals.end()


def measured(start: tuple[str, ...], data: str, budget: str, *options: Any) -> dict[str, Any]:
    """Run the command once, and return what came of it."""
    name, _, target = (
        data.partition(":") if Path(data.partition(":")[0]).exists() else (data, "", "")
    )
    of_table = ["--target", target] if target else []
    with tempfile.TemporaryDirectory() as home:
        started, first = monotonic(), None
        command = [*start, "run", name, *of_table, "--budget", budget, "--study", "s", *options]
        with subprocess.Popen(
            [*map(str, command), "--json-lines"],
            env=environment(Path(home)),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            for line in process.stdout or ():
                first = first or (monotonic() - started if '"number"' in line else None)
        seconds = monotonic() - started
        load = describe().partition("load ")[2]
        summary = run_json("show", "s", home=Path(home))
        trials = run_json("trials", "s", home=Path(home))
    failed = [t for t in trials if t["state"] == "failed"]
    timeouts = [t for t in failed if t["failure"]["kind"] == "timeout"]
    lost = sum(t["failure"]["cost_seconds"] for t in timeouts)
    workers = 2
    return {
        "late": seconds - parse_seconds(budget, "budget"),
        "seconds": seconds,
        "first": first,
        "begun": summary["n_begun"],
        "full": summary["n_trials"] - summary["n_stopped"] - summary["n_failed"],
        "timeouts": len(timeouts),
        "failed": len(failed),
        "lost": lost / (workers * parse_seconds(budget, "budget")),
        "evaluating": summary["seconds"]["evaluating"],
        "test_loss": summary["test_loss"],
        "members": len((summary["ensemble"] or {}).get("members", ())) or 1,
        "of_folds": summary.get("model_of_folds"),
        "code": process.returncode,
        "load": load,
    }


def _table(folder: Path) -> str:
    """Write a table of 50,000 rows: numbers, categories, gaps, two classes."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(50_000, 12))).add_prefix("x").round(4)
    kinds = rng.choice(list("abcdefgh"), 50_000)
    signal = frame["x0"] * frame["x1"] + np.sin(2 * frame["x2"]) + (kinds < "d") - 0.5
    frame["kind"] = kinds
    frame.loc[rng.random(50_000) < 0.1, "x3"] = np.nan
    frame["y"] = np.where(signal + rng.normal(size=50_000) > 0, "yes", "no")
    path = folder / "made_up_50k.parquet"
    frame.to_parquet(path)
    return f"{path}:y"


if __name__ == "__main__":
    main()
