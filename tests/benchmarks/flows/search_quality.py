"""Which method finds the better pipeline: `prefect-tune compare` on several tables, pooled.

    tests/benchmarks/run flows/search_quality --home FOLDER vehicle.csv.gz wind.csv.gz

Each table has its class in the column `target`, or it is named as `wind.csv.gz:column`. Every
method gets 120 s a run on one core, and 30 % of the rows, drawn anew for each repeat, are its test
rows. Five tables with three repeats of four methods take an hour and a quarter on two cores. The
home keeps what is done, so that an interrupted benchmark goes on where it was, and so that more
repeats or methods extend it. ADMM beside JOPT and random search as in its paper:

    tests/benchmarks/run flows/search_quality --home FOLDER --methods admm,jopt,random \\
        --space admm --metric auroc --test-size 0.2 --holdout 0.2 --budget 60s --repeats 5 \\
        fri_c2_1000_10.csv.gz pc4.csv.gz puma8NH.csv.gz wind.csv.gz
"""

import argparse
import os
import subprocess
from pathlib import Path

from machine import describe
from processes import COMMAND, environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="+", metavar="TABLE[:TARGET]")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--methods", default="flash,smac,tpe,random")
    parser.add_argument("--repeats", default="3")
    parser.add_argument("--budget", default="120s")
    parser.add_argument("--trial-timeout", default="10s")
    parser.add_argument("--test", help="file of test rows, in place of 30 %% of the rows")
    parser.add_argument("--space", default="flash")
    parser.add_argument("--metric", default="error")
    parser.add_argument("--test-size", default="0.3")
    parser.add_argument("--holdout", help="share held out, in place of three folds")
    chosen = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    chosen.home.mkdir(parents=True, exist_ok=True)
    test = ("--test", chosen.test) if chosen.test else ("--test-size", chosen.test_size)
    folds = ("--holdout", chosen.holdout) if chosen.holdout else ()
    print(describe(), flush=True)
    curves = []
    for entry in chosen.tables:
        table, _, target = entry.partition(":")
        name = Path(table).name.split(".")[0]
        curves.append(str(chosen.home / f"{name}.parquet"))
        run(
            chosen.home, "compare", table, "--target", target or "target", *test, *folds,
            "--methods", chosen.methods, "--repeats", chosen.repeats, "--space", chosen.space,
            "--metric", chosen.metric,
            "--budget", chosen.budget, "--trial-timeout", chosen.trial_timeout,
            "--name", name, "--out", curves[-1], "--quiet",
        )  # fmt: skip
        print(describe(), flush=True)
    if len(curves) > 1:
        run(chosen.home, "standings", *curves)


def run(home: Path, *arguments: str) -> None:
    subprocess.run([*COMMAND, *arguments], env=environment(home), check=True)


if __name__ == "__main__":
    main()
