"""Studies that start from the earlier study of a series, beside studies that start from nothing.

    tests/benchmarks/run flows/warm_starts --out FOLDER DATA[:LABELS] ...
        [--budget 60] [--seeds 1] [--method flash]

Each set of data becomes a pair of two nights that differ by a fifth of their rows: the first night
lacks the last fifth of the rows in a random order, the second night the first fifth. DATA is a CSV
file with the target in its last column or, with LABELS, a set of events. A cold study is the first
run of a series on the data of the second night. A warm study is the second run of a series whose
first run had the data of the first night, with the same budget. Both have the same test rows and
folds. The share is the time of the warm study until it had the final loss of the cold study,
divided by the time of the cold study until it had it; it is infinite if it never had it. Times
count from the first ask. The share of the trials does not depend on the load.

A further pair misleads on purpose: the target of its first night depends on products of columns,
the target of its second night on their sum.

FOLDER gets one JSON file for each pair and seed; what is there is not run again.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from machine import Goals, describe

from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.ledger import Ledger

TUNE = Path(sys.executable).with_name("prefect-tune")
MISLEADING = "misleading"
say = partial(print, flush=True)


class Night(NamedTuple):
    """The data of one night, as arguments of `prefect-tune run`."""

    arguments: tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sets", nargs="*", metavar="DATA[:LABELS]")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=int, default=60, help="seconds of each study")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--method", default="flash")
    chosen = parser.parse_args(arguments)
    chosen.out.mkdir(parents=True, exist_ok=True)
    say(describe())
    shares, losses = {}, {}
    for seed in range(chosen.seeds):
        for text in [*chosen.sets, MISLEADING]:
            name = f"{Path(text.partition(':')[0]).name.split('.')[0]}-{chosen.method}-{seed}"
            path = chosen.out / f"{name}.json"
            if not path.exists():
                nights = nights_of(text, chosen.out / "data" / name, seed)
                options = ("--budget", f"{chosen.budget}s", "--method", chosen.method)
                path.write_text(json.dumps(pair(nights, chosen.out / "home" / name, options)))
            found = json.loads(path.read_text())
            share, of_trials = shares_of(found["cold"], found["warm"])
            say(
                f"{name}: cold {found['cold'][-1][1]:.4g} after {found['cold'][-1][0]:.0f} s, "
                f"warm {found['warm'][-1][1]:.4g}; share of the time {share:.2f}, of the trials "
                f"{of_trials:.2f}; "
                f"prior {found['prior']}; load {found['load']:.1f}"
            )
            if text == MISLEADING:
                losses[name] = found["warm"][-1][1] - found["cold"][-1][1]
            else:
                shares[name] = share
    goals = Goals()
    if shares:
        goals.at_most("median share of the cold study's time", median(shares.values()), 1 / 3)
    goals.at_most("loss of the warm study over the cold one, misled", median(losses.values()), 0.0)
    goals.end()


Curve = Sequence[Sequence[float]]


def shares_of(cold: Curve, warm: Curve) -> tuple[float, float]:
    """Return the shares of the cold study's time and trials until the warm one had its loss."""
    seconds, loss, n_told = cold[-1]
    at, n = next(((at, n) for at, reached, n in warm if reached <= loss), (inf, inf))
    return at / seconds, n / n_told


def nights_of(text: str, folder: Path, seed: int) -> tuple[Night, Night]:
    """Write the data of two nights, which differ by a fifth of their rows."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    if text == MISLEADING:
        return misleading_nights(folder, rng)
    data, _, labels = text.partition(":")
    path = labels or data
    table = pd.read_csv(path) if ".csv" in path else pd.read_parquet(path)
    place = pd.Series(rng.permutation(len(table)) / len(table))
    both = []
    for night, kept in enumerate((place < 0.8, place >= 0.2)):
        path = folder / f"night{night}.csv"
        table[kept.to_numpy()].to_csv(path, index=False)
        if labels:
            both.append(Night((data, "--labels", str(path.absolute()))))
        else:
            both.append(Night((str(path.absolute()), "--target", str(table.columns[-1]))))
    return both[0], both[1]


def misleading_nights(folder: Path, rng: np.random.Generator) -> tuple[Night, Night]:
    """Write two nights whose best models differ: trees in the first one, linear in the second."""
    both = []
    for night in range(2):
        X = rng.normal(size=(1500, 20))
        signal = X[:, 0] * X[:, 1] + X[:, 2] * X[:, 3] if night == 0 else X.sum(axis=1)
        noisy = signal + rng.normal(scale=signal.std() / 4, size=len(X))
        table = pd.DataFrame(X, columns=[f"x{i}" for i in range(20)])
        path = folder / f"night{night}.csv"
        table.assign(target=np.where(noisy > 0, "yes", "no")).to_csv(path, index=False)
        both.append(Night((str(path.absolute()), "--target", "target")))
    return both[0], both[1]


def pair(nights: tuple[Night, Night], home: Path, options: Sequence[str]) -> dict[str, Any]:
    """Run the cold study and the two studies of the series; return their curves."""
    load = os.getloadavg()[0]
    run_night(nights[1], "cold", home, options)
    run_night(nights[0], "warm", home, options)
    run_night(nights[1], "warm", home, options)
    warm = tune(home, "show", "warm-2")
    return {
        "cold": curve(home, "cold-1"),
        "warm": curve(home, "warm-2"),
        "prior": warm["decisions"].get("prior"),
        "load": max(load, os.getloadavg()[0]),
    }


def run_night(night: Night, series: str, home: Path, options: Sequence[str]) -> None:
    """Run one night of a series."""
    tune(home, "run", *night.arguments, "--series", series, *options, "--workers", "1")


def curve(home: Path, study: str) -> list[tuple[float, float, int]]:
    """Return seconds from the first ask, losses and numbers of ended trials at all incumbents."""
    steps, best, n_told = [], inf, 0
    ledger = Ledger(ArtifactStore(StoreAddress(str((home / "store").absolute()))).database)
    events = list(ledger.each_event(study))
    began = next(event.at for event in events if event.kind == "ask")
    for event in events:
        n_told += event.kind == "tell"
        if event.kind == "tell" and event.body["state"] == "complete":
            loss = event.body["evaluation"]["loss"]
            if loss < best:
                best = loss
                steps.append((event.at - began, best, n_told))
    return steps


def tune(home: Path, *arguments: str) -> Any:
    """Run a command of prefect-tune with `--json`, and return its output."""
    environment = {**os.environ, "PREFECT_TUNE_HOME": str(home.absolute()), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [TUNE, *arguments, "--json"], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"prefect-tune {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
