"""What Hyperband's stretches cost together, in a study with all of its parts.

    tests/benchmarks/run flows/bracket_costs --home FOLDER [--data sklearn:digits] [--target COLUMN]
        [--space gradient_boosting] [--workers 1] [--fidelities epochs,subset]

One round of four rungs (49 configurations, eta 3), over 27 epochs and over subsets. Over epochs,
all seconds of evaluations are compared with those that each configuration would have taken straight
to the rung that it reached; over subsets, where each rung is a training of its own, with those of
all trainings. What steps before the model were served is served in either. Beside it stands what
training anew on each rung would have cost with nothing cached. The home keeps the studies.
"""

import argparse
import json
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

from machine import Goals, describe
from processes import COMMAND, environment

ROUND = 27 + 12 + 6 + 4
GOAL = 1.05


def printed(*arguments: object, home: Path) -> Any:
    """What a command prints as JSON, however long it takes."""
    command = [*COMMAND, *map(str, arguments), "--json"]
    done = subprocess.run(command, env=environment(home), stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def evaluations(chosen: argparse.Namespace, fidelity: str) -> list[dict[str, Any]]:
    """The trials of a round that have a loss, in the order of asking."""
    study = f"{chosen.space}-{fidelity}"
    options: list[object] = [chosen.data, "--space", chosen.space, "--method", "hyperband"]
    options += ["--option", f"fidelity={fidelity}", "--option", "n_rungs=4", "--trials", ROUND]
    options += ["--workers", chosen.workers, "--study", study]
    options += ["--target", chosen.target] if chosen.target else []
    if fidelity == "epochs":
        options += ["--epochs", 27]
    summary = printed("run", *options, "--quiet", home=chosen.home)
    print(
        f"{fidelity}: {summary['n_trials']} trials ({summary['n_failed']} failed) in "
        f"{summary['seconds']['total']:.0f} s, test loss {summary['test_loss']:.2f}",
        flush=True,
    )
    rows = printed("trials", study, home=chosen.home)
    return [row for row in rows if row["evaluation"]]


def alone(evaluation: dict[str, Any]) -> float:
    """Seconds of an evaluation whose model was trained in one go, served what it was served."""
    before = [s for s in evaluation["steps"] if s["hit"] and s["step"] != "fit model"]
    served = sum(s["seconds"] - s["load_seconds"] for s in before)
    return float(evaluation["cost_uncached_seconds"] - served)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--data", default="sklearn:digits")
    parser.add_argument("--target")
    parser.add_argument("--space", default="gradient_boosting")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--fidelities", default="epochs,subset")
    chosen = parser.parse_args()
    print(describe(), flush=True)
    goals = Goals()
    for fidelity in chosen.fidelities.split(","):
        by_configuration = defaultdict[str, list[dict[str, Any]]](list)
        for row in evaluations(chosen, fidelity):
            by_configuration[str(row["query"]["configuration"])].append(row["evaluation"])
        stretches = [e for each in by_configuration.values() for e in each]
        cost = sum(e["cost_seconds"] for e in stretches)
        anew = sum(e["cost_uncached_seconds"] for e in stretches)
        last = [each[-1] for each in by_configuration.values()]
        straight = sum(map(alone, last if fidelity == "epochs" else stretches))
        print(
            f"{fidelity}: {len(by_configuration)} configurations in {len(stretches)} stretches: "
            f"{cost:.1f} s; straight {straight:.1f} s, anew on each rung uncached {anew:.1f} s"
        )
        goals.at_most(f"cost of all evaluations over {fidelity}", cost / straight, GOAL)
    print(describe())
    goals.end()


if __name__ == "__main__":
    main()
