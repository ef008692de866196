"""What random configurations of a space come to: how many complete, and why the others do not.

    tests/benchmarks/run tasks/random_configurations --home FOLDER \\
        "space_ga.csv.gz --target target --space flash" \\
        "ada_prior.csv.gz --target target --space flash" \\
        "omop_gibleed --labels labels/gi_bleed_90d.parquet --space healthcare"

Each argument is what stands behind `prefect-tune run`. Every one gets 100 random configurations,
60 s and 4 GB each. The home is kept, so that an interrupted benchmark goes on where it was.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
from collections import Counter
from pathlib import Path

import psutil
from machine import Goals, describe
from processes import COMMAND, environment, run_json

LIMITS = ("--trial-timeout", "60s", "--trial-memory", "4GB")
DOCUMENTED = (
    r"was not started: .* takes at least .* GB",
    r"leaves no column|No feature|no feature|0 feature\(s\)",
    r"makes values that are not finite|Input .* contains (NaN|infinity)|not finite",
    r"covariance.* not full rank|singular|SVD did not converge|LinAlgError",
    r"unbalance|does not support multi",
    r"negative eigenvalues|not positive|Gram matrix",
    r"no code occurs in",
    r"cannot be used when X contains zero vectors",
)
"""Reasons that the catalogue names for a step that cannot work on some data."""


def reason(failure: dict[str, object]) -> str:
    """A failure's kind and place, and its message without numbers."""
    message = re.sub(r"\d[\d.,e+-]*", "#", str(failure["message"]))[:90]
    return f"{failure['kind']:<8} {failure['step']}: {message}"


def is_documented(failure: dict[str, object]) -> bool:
    return failure["kind"] in {"timeout", "memory"} or any(
        re.search(pattern, str(failure["message"])) for pattern in DOCUMENTED
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--trials", default=100, type=int)
    parser.add_argument("--workers", default=str(os.cpu_count()))
    chosen = parser.parse_args()
    print(describe())
    total: Counter[str] = Counter()
    undocumented: list[str] = []
    for number, data in enumerate(chosen.data):
        study = f"random-{number}"
        options = ("--method", "random", "--study", study, "--trials", str(chosen.trials))
        workers = ("--workers", chosen.workers, "--quiet", "--json")
        words = ("run", *shlex.split(data), *options, *LIMITS, *workers)
        summary = json.loads(
            subprocess.check_output([*COMMAND, *words], env=environment(chosen.home))
        )
        trials = run_json("trials", study, home=chosen.home)
        failures = [t["failure"] for t in trials if t["failure"]]
        kinds = Counter(str(f["kind"]) for f in failures)
        total += Counter({"trials": len(trials), **kinds})
        print(f"{data}: {len(trials)} trials, {dict(kinds)}, {summary['seconds']['total']:.0f} s")
        for why, times in Counter(map(reason, failures)).most_common():
            print(f"  {times:3d}  {why}")
        undocumented += [reason(f) for f in failures if not is_documented(f)]
    failed = sum(n for kind, n in total.items() if kind != "trials")
    in_time = total["trials"] - total["timeout"]
    goals = Goals()
    goals.at_least("complete, timeouts aside", 1 - (failed - total["timeout"]) / in_time, 0.9)
    goals.at_least("complete, timeouts included", 1 - failed / total["trials"], 0.8)
    goals.at_most("failures for no documented reason", len(undocumented), 0)
    print("\n".join(undocumented))
    left = [p for p in psutil.Process().children(recursive=True) if p.is_running()]
    goals.at_most("processes left behind", len(left), 0)
    goals.end()


if __name__ == "__main__":
    main()
