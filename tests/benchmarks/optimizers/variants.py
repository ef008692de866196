"""Which variants of `tpe` and `smac` find better pipelines; their defaults were chosen by it.

    tests/benchmarks/run optimizers/variants RESULTS.jsonl [--variants tpe:choices tpe:groups]
        [--worlds 16] [--trials 100] [--pending 0] [--spaces small flash admm A3]
        [--tables sonar.csv.gz vehicle.csv.gz]

Each run of a variant is a line of the results; runs that are there already are not made again, so
it can be stopped at any time. Spaces are those of the catalogue with planted losses (`planted`), in
percent, and `A3` of the paper's artificial objective; worlds are numbered from 100. A table has its
class in the column `target`; its three-fold error is measured in the space `small`, with as many
seeds as there are worlds. Losses are the mean best after 30, 60, 100 and all trials, and
the rank is that at the end. With `--pending 3`, three queries are always under way. Seconds are
processor time of asking and telling, one thread.
"""

import argparse
import json
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
from loss_worlds.artificial import A3, ArtificialLoss, artificial_space
from loss_worlds.planted import PlantedLoss
from machine import describe
from studies import context_of, outcome
from threadpoolctl import threadpool_limits
from worlds import told

from prefect_tune.optimizers import (
    Budget,
    Evaluation,
    Objective,
    Query,
    Space,
    make_optimizer,
)
from prefect_tune.tasks.catalogue.spaces import space_named

_SIXTHS = {"min_samples_split": 3, "max_features": 5 / 6}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "random": ("random", {}),
    "tpe:nothing": ("tpe", {"joint": "nothing"}),
    "tpe:choices": ("tpe", {"joint": "choices"}),
    "tpe:groups": ("tpe", {"joint": "groups"}),
    "smac": ("smac", {}),
    "smac:log": ("smac", {"improvement": "logarithm"}),
    "smac:sixths": ("smac", _SIXTHS),
    "smac:sixths,log": ("smac", {**_SIXTHS, "improvement": "logarithm"}),
}
"""By name, method and options; `sixths` is the forest of SMAC3's facade for algorithms."""
FIRST_WORLD = 100
Loss = Callable[[Query], float | None]
Run = dict[str, Any]


def planted(name: str, world: int) -> tuple[Space, Loss, Objective]:
    """A space and an objective in it that costs nothing."""
    if name == "A3":
        artificial = Objective("artificial", "", 0.0, 100.0)
        return artificial_space(A3), ArtificialLoss(A3, world), artificial
    space = space_named(name)
    return space, PlantedLoss(space, world), Objective(chance=50.0)


def measured(table: str, folder: Path) -> tuple[Space, Loss, Objective]:
    """The space `small` and the error on a table."""
    context = context_of(folder, data=Path(table))

    def loss(query: Query) -> float | None:
        came = outcome(context, query)
        return came.loss if isinstance(came, Evaluation) else None

    return context.problem.find_space(), loss, Objective(chance=50.0)


def run(
    variant: str, found: tuple[Space, Loss, Objective], seed: int, n: int, n_pending: int
) -> Run:
    """Best loss after each trial, and seconds of asking and telling."""
    space, loss_of, objective = found
    method, options = VARIANTS[variant]
    optimizer = make_optimizer(method, space, seed, objective, options)
    losses, pending, seconds = [], [], 0.0
    for number in range(n + n_pending):
        started = process_time()
        if number < n:
            left = n - number
            pending.append((number, optimizer.ask(Budget(number, left))))
        seconds += process_time() - started
        if number >= n_pending:
            ended, query = pending.pop(0)
            loss = loss_of(query)
            optimizer.tell(told(ended, query, loss))
            losses.append(100.0 if loss is None else loss)
    return {"best": [round(x, 4) for x in np.minimum.accumulate(losses)], "seconds": seconds}


def report(runs: dict[tuple[str, int], dict[str, Run]], variants: list[str], n: int) -> None:
    """Print what each variant came to, where all of them ran."""
    marks = [mark for mark in (30, 60, 100) if mark < n] + [n]
    for place in dict.fromkeys(name for name, _ in runs):
        whole = [r for (p, _), r in runs.items() if p == place and r.keys() >= set(variants)]
        if not whole:
            continue
        print(f"{place}: {len(whole)} runs, mean best after {', '.join(map(str, marks))} trials")
        for variant in variants:
            ranks = [
                1 + sum(r[v]["best"][-1] < r[variant]["best"][-1] for v in variants) for r in whole
            ]
            best = np.mean(
                [[r[variant]["best"][mark - 1] for mark in marks] for r in whole], axis=0
            )
            print(
                f"  {variant:<18} {' '.join(f'{x:6.2f}' for x in best)}; rank {np.mean(ranks):.2f};"
                f" {median(r[variant]['seconds'] for r in whole):.1f} s"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--spaces", nargs="*", default=["small", "flash", "admm", "A3"])
    parser.add_argument("--tables", nargs="*", default=[])
    parser.add_argument("--worlds", type=int, default=16)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--pending", type=int, default=0)
    chosen = parser.parse_args()
    print(describe(), flush=True)
    runs: dict[tuple[str, int], dict[str, Run]] = defaultdict(dict)
    lines = chosen.results.read_text().splitlines() if chosen.results.exists() else ()
    for line in map(json.loads, lines):
        if (line["trials"], line["pending"]) == (chosen.trials, chosen.pending):
            runs[line["place"], line["world"]][line["variant"]] = line
    places = [*chosen.spaces, *chosen.tables]
    with TemporaryDirectory() as folder:
        for world in range(FIRST_WORLD, FIRST_WORLD + chosen.worlds):
            for i, place in enumerate(places):
                for variant in chosen.variants:
                    if variant in runs[place, world]:
                        continue
                    is_table = place in chosen.tables
                    store = Path(folder, str(i))
                    found = measured(place, store) if is_table else planted(place, world)
                    line = {
                        "place": place, "world": world, "variant": variant,
                        "trials": chosen.trials, "pending": chosen.pending,
                        **run(variant, found, world, chosen.trials, chosen.pending),
                    }  # fmt: skip
                    runs[place, world][variant] = line
                    with chosen.results.open("a") as results:
                        results.write(json.dumps(line) + "\n")
    report({key: r for key, r in runs.items() if key[0] in places}, chosen.variants, chosen.trials)
    print(describe())


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        main()
