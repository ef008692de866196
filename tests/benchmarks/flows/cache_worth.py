"""What the cache is worth to FLASH: trials per hour with it and without it.

    tests/benchmarks/run flows/cache_worth --home FOLDER [--option NAME=VALUE] [--spaces healthcare]

Two studies of the same cohort run side by side, each with one worker and on all folds, one of them
with `--no-cache`: first in `healthcare` with none but linear models, naive Bayes and trees, where
the construction of features takes most of the time, then in the whole of it. The home keeps what is
done, so that an interrupted benchmark goes on where it was.
"""

import argparse
import json
import os
import subprocess
from pathlib import Path

from machine import Goals, describe
from processes import COMMAND, environment

SPACES = {
    "linear and trees": f"{Path(__file__).parent / 'linear_and_trees.py'}:space",
    "healthcare": "healthcare",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--data", default="cohort:paper?n_patients=10000")
    parser.add_argument("--budget", default="5m")
    parser.add_argument("--option", action="append", default=[], help="of FLASH, with a cache")
    parser.add_argument("--spaces", default=",".join(SPACES))
    chosen = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    print(describe(), flush=True)
    goals = Goals()
    for name in chosen.spaces.split(","):
        space = SPACES[name]
        command = [
            *COMMAND, "run", chosen.data, "--space", space, "--method", "flash", "--workers", "1",
            "--budget", chosen.budget, "--study", name.replace(" ", "-"), "--quiet", "--json",
            "--no-race", "--ensemble", "single",
        ]  # fmt: skip
        own = [word for option in chosen.option for word in ("--option", option)]
        running = {
            which: subprocess.Popen(
                [*command, *options],
                env=environment(chosen.home / which),
                stdout=subprocess.PIPE,
                text=True,
            )
            for which, options in (("cached", own), ("uncached", ["--no-cache"]))
        }
        per_hour = {}
        for which, process in running.items():
            summary = json.loads(process.communicate()[0])
            seconds = summary["seconds"]["total"]
            per_hour[which] = 3600 * summary["n_trials"] / seconds
            print(
                f"{name}, {which}: {summary['n_trials']} trials ({summary['n_failed']} failed) in "
                f"{seconds:.0f} s, {per_hour[which]:.0f} per hour, "
                f"{summary['cache']['hits']} steps served; error "
                f"{summary['incumbent']['loss']:.2f} %, test error {summary['test_loss']:.2f} %",
                flush=True,
            )
        share = prefix_share(chosen.home / "cached", name.replace(" ", "-"))
        print(f"{name}: {share:.0%} of the seconds before the model were served")
        ratio = per_hour["cached"] / per_hour["uncached"]
        if name == "healthcare":
            print(f"{name}: {ratio:.2f} times as many trials per hour with the cache")
        else:
            goals.at_least(f"{name}: times as many trials per hour with the cache", ratio, 2)
    print(describe())
    goals.end()


def prefix_share(home: Path, study: str) -> float:
    """Share of the seconds of all steps before the model that the cache has served."""
    said = subprocess.run(
        [*COMMAND, "trials", study, "--json"],
        env=environment(home),
        stdout=subprocess.PIPE,
        check=True,
    )
    outcomes = [t["evaluation"] or t["failure"] or {} for t in json.loads(said.stdout)]
    steps = [s for o in outcomes for s in o.get("steps", ()) if s["step"] != "fit model"]
    served = sum(step["seconds"] for step in steps if step["hit"])
    return served / max(sum(step["seconds"] for step in steps), 1e-9)


if __name__ == "__main__":
    main()
