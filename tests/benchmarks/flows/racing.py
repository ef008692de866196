"""What a race by folds is worth: `compare` with and without `--race`, side by side.

    tests/benchmarks/run flows/racing --home FOLDER vehicle.csv.gz pc4.csv.gz space_ga.csv.gz \\
        wind.csv.gz ada_prior.csv.gz optdigits_10c.csv.gz

Each table has its class in the column `target`; 3,000 of its rows at most, or 70 %, are searched on
with three folds, the others are test rows, drawn anew for each split. Both arms have the same rows,
folds and seeds and run at the same time, on one worker each, so that they share what else the
machine does. The home keeps what is done, and an interrupted benchmark goes on where it was.

What the rule loses is seen on the trials of the arm without a race, of which all folds are known:
how many would have been stopped, how many of those that were better than all before them, whether
the best one is among them, and how far the estimates are off.
"""

import argparse
import subprocess
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from machine import Goals, describe
from processes import COMMAND, environment, run_json
from scipy.stats import wilcoxon
from sklearn.model_selection import train_test_split

from prefect_tune.optimizers import History, Objective, Trial
from prefect_tune.optimizers.racing.rules import estimated, is_behind
from prefect_tune.tasks.user_space import find_space

ROWS, TEST_ROWS = 3000, 6000
ARMS = ("plain", "race")
GOAL, TABLES = 1.6, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--methods", default="flash,smac,tpe")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--trial-timeout", default="10s")
    chosen = parser.parse_args()
    chosen.home.mkdir(parents=True, exist_ok=True)
    rows = []
    for split, table in product(range(chosen.splits), chosen.tables):
        name = f"{table.name.split('.')[0]}-{split}"
        print(f"{name}: {describe()}", flush=True)
        compare(chosen, drawn(chosen.home, table, split), name, split)
        for method in chosen.methods.split(","):
            rows.append({"table": table.name.split(".")[0], "split": split, "method": method})
            for arm in ARMS:
                rows[-1] |= outcome(chosen.home, f"{name}-{arm}-0-{method}", arm)
            rows[-1] |= rule_on(chosen.home, f"{name}-plain-0-{method}")
            print(pd.DataFrame(rows[-1:]).to_string(index=False), flush=True)
    report(pd.DataFrame(rows))


def drawn(home: Path, table: Path, split: int) -> tuple[Path, Path]:
    """Write the rows that are searched on and the test rows of one split."""
    data = pd.read_csv(table)
    search, test = train_test_split(
        data,
        train_size=min(ROWS, int(0.7 * len(data))),
        random_state=split,
        stratify=data["target"],
    )
    name = f"{table.name.split('.')[0]}-{split}"
    paths = home / f"{name}.csv", home / f"{name}-test.csv"
    for path, part in zip(paths, (search, test.iloc[:TEST_ROWS]), strict=True):
        part.to_csv(path, index=False)
    return paths


def compare(chosen: argparse.Namespace, data: Sequence[Path], name: str, seed: int) -> None:
    """Run both arms at the same time."""
    commands = [
        (
            *COMMAND, "compare", data[0], "--test", data[1], "--target", "target",
            "--methods", chosen.methods, "--repeats", "1", "--seed", seed, "--workers", "1",
            "--budget", chosen.budget, "--trial-timeout", chosen.trial_timeout,
            *(("--race",) if arm == "race" else ()),
            "--name", f"{name}-{arm}", "--out", chosen.home / f"{name}-{arm}.parquet", "--quiet",
        )
        for arm in ARMS
    ]  # fmt: skip
    one_thread = environment(chosen.home) | {"OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(list(map(str, c)), env=one_thread, stdout=subprocess.DEVNULL)
        for c in commands
    ]
    for process in running:
        if process.wait() != 0:
            raise SystemExit(f"{process.args} ended with {process.returncode}")


def outcome(home: Path, study: str, arm: str) -> dict[str, Any]:
    """What a replicate came to."""
    summary = run_json("show", study, home=home)
    minutes = summary["seconds"]["total"] / 60
    best = summary["incumbent"]
    found = {
        "per_minute": summary["n_begun"] / minutes,
        "failed": summary["n_failed"],
        "cv": best["loss"] if best else np.inf,
        "test": summary["test_loss"] if summary["test_loss"] is not None else np.inf,
    }
    if arm == "race":
        race = summary["decisions"]["race"]
        found["stopped"] = race["stopped"] / race["begun"]
    return {f"{arm}_{name}": value for name, value in found.items()}


def rule_on(home: Path, study: str) -> dict[str, float]:
    """What the rule would have done with the trials of a study, of which all folds are known."""
    trials = run_json("trials", study, home=home)
    space, objective, history = find_space("flash")[0], Objective(), History()
    n_stopped, improved, lost, errors, n = 0, 0, 0, [0.0], 0
    losses: list[float] = []
    for trial in (Trial.from_json(document, space) for document in trials):
        if trial.evaluation is None:
            continue
        n += 1
        best = history.incumbent
        known = best.evaluation if best else None
        is_better = known is not None and trial.evaluation.loss < known.loss
        improved += is_better
        losses.append(trial.evaluation.loss)
        if known is not None and is_behind(trial.evaluation, known, history):
            n_stopped += 1
            lost += is_better
            errors.append(estimated(trial.evaluation, known, objective).loss - losses[-1])
        else:
            history.record(trial)
    found = history.incumbent
    return {
        "would_stop": n_stopped / n,
        "improved": improved,
        "improved_stopped": lost,
        "best_lost": float(found is None or found.loss != min(losses)),
        "estimate_off": float(np.mean(np.abs(errors))),
    }


def report(rows: pd.DataFrame) -> None:
    rows["times"] = rows["race_per_minute"] / rows["plain_per_minute"]
    print(rows.round(2).to_string(index=False))
    for by in ("table", "method"):
        groups = rows.groupby(by, sort=False)
        for name, group in groups:
            times = np.exp(np.log(group["times"]).mean())
            print(f"{name}: {times:.2f} times the configurations a minute, {paired(group)}")
    per_table = np.exp(np.log(rows["times"]).groupby(rows["table"]).mean())
    test_rank = mean_rank(rows["race_test"] - rows["plain_test"])
    print(f"all: {np.exp(np.log(rows['times']).mean()):.2f} times, {paired(rows)}")
    print(
        f"rule: {rows['would_stop'].mean():.2f} would be stopped; of {rows['improved'].sum():.0f} "
        f"that were better than all before {rows['improved_stopped'].sum():.0f}; the best one in "
        f"{rows['best_lost'].sum():.0f} of {len(rows)} studies"
    )
    goals = Goals()
    goals.at_least(
        f"tables with {GOAL} times the configurations", (per_table >= GOAL).sum(), TABLES
    )
    goals.at_most("mean rank of the race by its test loss, of two", test_rank, 1.5)
    goals.end()


def paired(rows: pd.DataFrame) -> str:
    """How the race stands against no race in the same cells, by both losses."""
    said = []
    for loss in ("cv", "test"):
        difference = rows[f"race_{loss}"] - rows[f"plain_{loss}"]
        change = 100 * (rows[f"race_{loss}"] / rows[f"plain_{loss}"] - 1).mean()
        p = wilcoxon(difference).pvalue if len(rows) > 5 and difference.any() else np.nan
        said.append(f"{loss} {change:+.1f} %, rank {mean_rank(difference):.2f} (p {p:.2f})")
    return "; ".join(said)


def mean_rank(differences: "pd.Series[float]") -> float:
    """Mean rank of the race among two, equal losses sharing theirs."""
    return float(np.mean(1.5 + 0.5 * np.sign(differences)))


if __name__ == "__main__":
    main()
