"""What a second look at the finalists is worth: other splits of the folds for the best few.

    tests/benchmarks/run flows/finalists --out FOLDER [--budget 60] [--splits 2] [--few 5]
        [--repeats 2] TABLE[:TARGET] ...

After a search with one worker the best few trials by cross-validation are cross-validated again, on
other splits of the same rows into folds, and each is fitted on all training rows and tested. Said
is how often the least mean of all their folds is that of another trial, and the test loss of that
trial over that of the first one. 30 % of the rows test, as in `flows/peers`.

FOLDER gets `finalists.parquet`; what is there is not run again.
"""

import argparse
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pandas as pd
from machine import describe
from peer_tools.plain_evaluation import PlainEvaluator
from peer_tools.report import ratio
from peer_tools.scoring import test_loss
from peer_tools.tables import SplitFiles, TableFile
from peer_tools.task import Task
from processes import COMMAND, environment, run_json

from prefect_tune.optimizers import Configuration
from prefect_tune.tasks.catalogue.spaces import DEFAULT_SPACES

SECONDS = 60.0
"""That a finalist may take on one split."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="+", metavar="TABLE[:TARGET]", type=TableFile.of)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--few", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2)
    chosen = parser.parse_args(arguments)
    if chosen.repeats < 1:
        parser.error(f"--repeats {chosen.repeats}: a second look needs 1 or more")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a run is ended with it
    home: Path = chosen.out.absolute()
    home.mkdir(parents=True, exist_ok=True)
    path = home / "finalists.parquet"
    known = pd.read_parquet(path) if path.exists() else pd.DataFrame(columns=["block"])
    for number, table in product(range(chosen.splits), chosen.tables):
        block = f"{table.name}-{number}"
        if block in set(known["block"]):
            continue
        files = table.split(number, home / "splits")
        few = searched(files, home / "runs" / block, chosen.budget)[: chosen.few]
        rows = looked_at_again(files, home / "runs" / block, few, chosen.repeats)
        rows = rows.assign(block=block, table=table.name, split=number)
        known = pd.concat([known, rows], ignore_index=True)
        known.to_parquet(path, index=False)
        print(f"{block}: {outcome(rows)}; {describe()}", flush=True)
    report(known)


def searched(files: SplitFiles, home: Path, budget: float) -> list[dict[str, Any]]:
    """The trials of a search that ran whole, best first."""
    study = ["--study", "s", "--quiet", "--json"]
    run = ["run", str(files.train), "--test", str(files.test), "--target", files.target]
    run += ["--budget", f"{budget:g}s", "--workers", "1", "--seed", str(files.seed)]
    run += ["--ensemble", "single", *study]
    subprocess.run([*COMMAND, *run], env=environment(home), check=True, capture_output=True)
    trials = [t for t in run_json("trials", "s", home=home) if t["state"] == "complete"]
    return sorted(trials, key=lambda t: (t["evaluation"]["loss"], t["number"]))


def looked_at_again(
    files: SplitFiles, folder: Path, few: Sequence[dict[str, Any]], repeats: int
) -> pd.DataFrame:
    """First losses, mean losses of other splits, and test losses of the finalists."""
    options = {"space": DEFAULT_SPACES["table", files.kind]}
    task = Task(
        str(files.train), str(files.test), files.target, files.kind, 10 * SECONDS, files.seed,
        monotonic(), str(folder), options,
    )  # fmt: skip
    truth = pd.read_parquet(files.test)[files.target]
    again: list[list[float]] = [[] for _ in few]
    tested: list[float] = []
    for repeat in range(repeats):
        with PlainEvaluator(replace(task, seed=task.seed + 1 + repeat)) as evaluator:
            for losses, trial in zip(again, few, strict=True):
                known = Configuration.from_json(trial["query"]["configuration"], evaluator.space)
                loss = evaluator.loss(known, SECONDS)
                losses.append(np.inf if loss is None else loss)
                if repeat == 0:
                    tested.append(test_loss(files.kind, truth, evaluator.predictions(known)))
    first = [trial["evaluation"]["loss"] for trial in few]
    means = [float(np.mean([loss, *more])) for loss, more in zip(first, again, strict=True)]
    about = {"kind": files.kind, "test_rows": len(truth)}
    return pd.DataFrame({"first": first, "mean": means, "test_loss": tested, **about})


def outcome(rows: pd.DataFrame) -> str:
    """What the second look has changed, in words."""
    second, tested = _second(rows), rows["test_loss"]
    if second == 0:
        return "the same trial is chosen"
    return f"finalist {second + 1} is chosen, {tested[second]:.4g} for {tested[0]:.4g}"


def report(known: pd.DataFrame) -> None:
    """Print how often the choice changes, and the ratio of test losses with its standard error."""
    few = [rows for _, rows in known.groupby("block")]
    first, second = (
        pd.DataFrame([rows.iloc[pick(rows)] for rows in few]) for pick in (lambda _: 0, _second)
    )
    changed = sum(_second(rows) != 0 for rows in few)
    worth, error, n_tables = ratio(second, first)
    print(f"the choice changes in {changed} of {len(few)} blocks")
    print(
        f"test loss of the second choice over the first: {worth:.3f} (standard error {error:.3f}, "
        f"{n_tables} tables)"
    )


def _second(rows: pd.DataFrame) -> int:
    """The position of the least mean loss."""
    return int(rows["mean"].to_numpy().argmin())


if __name__ == "__main__":
    main()
