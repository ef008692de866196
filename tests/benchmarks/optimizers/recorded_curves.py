"""Methods that grow epochs, on learning curves recorded once: how far from the best of the table.

    tests/benchmarks/run optimizers/recorded_curves FOLDER [--tables mlp,sgd,...] [--seeds 20]
        [--methods random,halving,hyperband,bohb] [--budget 8] [--nearest]

FOLDER keeps the tables (as Parquet) and the runs (`runs.jsonl`); what is there is not made again.
Recording takes minutes of one core a table, replaying seconds. Methods begin rows of the table and
nothing else: random ones evenly, bohb those that it draws in proportion to its widened density.
With `--nearest` they draw as ever, and a configuration stands for the nearest row that is free.
A budget is that of so many full trainings of mean cost; asks are not charged. Regret is that of the
least loss seen, in hundredths of a percent point: what the tables call 1e-4 of accuracy.
"""

import argparse
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from curve_tables import EPOCHS, TABLES, Table, load_table
from machine import Goals, describe
from simulation import Outcome, Simulation
from threadpoolctl import threadpool_limits

from prefect_tune.optimizers import (
    Bohb,
    Budget,
    Configuration,
    Halving,
    Hyperband,
    Objective,
    Optimizer,
    Query,
    RandomSearch,
    SpaceExhausted,
    make_optimizer,
)
from prefect_tune.optimizers.methods.bohb.densities import KernelDensity
from prefect_tune.optimizers.space.candidate_space import CandidateSpace
from prefect_tune.optimizers.space.candidates import Candidates

METHODS = ("random", "halving", "hyperband", "bohb")
AT = (0.25, 0.5, 0.75, 1.0)
ITERATIVE = frozenset({"mlp", "sgd", "histgb", "curve"})


class FromTable:
    """Mixed into a method: new configurations are rows of a table."""

    table: Table

    def begin(self: Any, rng: np.random.Generator) -> Configuration:
        """A row that was not asked for, all with equal probability."""
        free = self.free
        return free[int(rng.integers(len(free)))]

    @property
    def free(self: Any) -> list[Configuration]:
        """Rows that were not asked for.

        Raises:
            SpaceExhausted: If there is none.
        """
        asked = self.history.asked
        free = [c for c in self.table.configurations if c not in asked]
        if not free:
            raise SpaceExhausted("all rows were asked for")
        return free


class RandomOfTable(FromTable, RandomSearch):
    def _propose(self, budget: Budget, rng: np.random.Generator) -> Query:  # noqa: ARG002
        return Query(self.begin(rng))


class HalvingOfTable(FromTable, Halving):
    pass


class HyperbandOfTable(FromTable, Hyperband):
    pass


class BohbOfTable(FromTable, Bohb):
    def begin(self, rng: np.random.Generator) -> Configuration:
        is_random = rng.random() < self.options.random_share
        proposed = None if is_random else self._by_model(rng)
        return FromTable.begin(self, rng) if proposed is None else proposed

    def near(self, good: KernelDensity, rng: np.random.Generator) -> Candidates:
        """Rows in proportion to the density with wider kernels."""
        rows = good.space.encode(self.free)
        factor = self.options.bandwidth_factor
        wide = replace(
            good, widths=factor * good.widths, leaving=np.minimum(factor * good.leaving, 1)
        )
        density = np.exp(wide.log_density(rows))
        n = min(self.options.n_samples, len(rows))
        return rows[rng.choice(len(rows), n, replace=False, p=density / density.sum())]


OF_TABLE: dict[str, type[Optimizer]] = {
    "random": RandomOfTable,
    "halving": HalvingOfTable,
    "hyperband": HyperbandOfTable,
    "bohb": BohbOfTable,
}


class Replay:
    """A table as an objective: rows by nearness, each standing for one configuration."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.candidates = CandidateSpace(table.space)
        self.features = self.candidates.features(self.candidates.encode(table.configurations))
        self.numbers = {c: i for i, c in enumerate(table.configurations)}
        self.free = np.ones(len(table.configurations), dtype=bool)
        self.rows: dict[Configuration, int] = {}
        self.done: dict[int, int] = {}

    def __call__(self, query: Query) -> Outcome:
        """Loss at the best epoch so far, and seconds of the epochs that are new."""
        row = self._row(query.configuration)
        epochs = query.epochs or EPOCHS
        seconds = float(self.table.seconds[row, self.done.get(row, 0) : epochs].sum())
        self.done[row] = epochs
        return float(self.table.losses[row, :epochs].min()), seconds

    def _row(self, configuration: Configuration) -> int:
        if configuration not in self.rows and configuration in self.numbers:
            self.rows[configuration] = self.numbers[configuration]
        elif configuration not in self.rows:
            features = self.candidates.features(self.candidates.encode([configuration]))
            distances = ((self.features - features) ** 2).sum(axis=1)
            row = int(np.argmin(np.where(self.free, distances, np.inf)))
            self.free[row] = False
            self.rows[configuration] = row
        return self.rows[configuration]


def regrets(
    table: Table, method: str, seed: int, budget: float, *, nearest: bool = False, **options: Any
) -> dict[str, Any]:
    """One run: regret at each part of the budget, configurations begun, epochs trained."""
    objective = Objective(epochs=EPOCHS, iterative=ITERATIVE, n_folds=1)
    if nearest:
        optimizer = make_optimizer(method, table.space, seed, objective, options)
    else:
        optimizer = OF_TABLE[method](table.space, seed, objective, **options)
        optimizer.table = table
    replay = Replay(table)
    total = budget * float(table.seconds.sum(axis=1).mean())
    ends, losses = [], []
    for stretch in Simulation(optimizer, replay, seconds=total).ends():
        if stretch.ended > total:
            break
        ends.append(stretch.ended)
        losses.append(stretch.trial.loss)
    best = float(table.losses.min())
    seen = np.array(losses, dtype=float)
    at = [seen[np.array(ends) <= share * total] for share in AT]
    worst = float(table.losses.max())
    return {
        "regrets": [100 * ((x.min() if len(x) else worst) - best) for x in at],
        "configurations": len(replay.rows),
        "epochs": sum(replay.done.values()),
    }


def run_all(options: argparse.Namespace) -> dict[str, dict[str, dict[int, Any]]]:
    """All runs by table, method and seed."""
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "runs.jsonl"
    done: dict[str, dict[str, dict[int, Any]]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        run = json.loads(line)
        if all(run[k] == getattr(options, k) for k in ("budget", "nearest")):
            done.setdefault(run["table"], {}).setdefault(run["method"], {})[run["seed"]] = run
    for name in options.tables.split(","):
        table = load_table(name, folder)
        print(f"{name}: {len(table.configurations)} curves, least loss {table.losses.min():.2f} %")
        for method in options.methods.split(","):
            runs = done.setdefault(name, {}).setdefault(method, {})
            for seed in range(options.seeds):
                if seed in runs:
                    continue
                number = zlib.crc32(f"{name}{seed}".encode())
                run = regrets(table, method, number, options.budget, nearest=options.nearest)
                key = {k: getattr(options, k) for k in ("budget", "nearest")}
                key["table"] = name
                runs[seed] = {**key, "method": method, "seed": seed, **run}
                with path.open("a") as lines:
                    lines.write(json.dumps(runs[seed]) + "\n")
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--nearest", action="store_true")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--budget", type=float, default=8.0)
    options = parser.parse_args()
    print(describe())
    done = run_all(options)
    behind, shares = [], []
    for name in options.tables.split(","):
        medians = {}
        for method in options.methods.split(","):
            runs = [done[name][method][seed] for seed in range(options.seeds)]
            regret = np.array([run["regrets"] for run in runs])
            medians[method] = np.median(regret, axis=0)
            mean, error = regret[:, -1].mean(), regret[:, -1].std() / np.sqrt(len(runs))
            print(
                f"{name:<8}{method:<10} median regret at 25/50/75/100 %: "
                + " ".join(f"{x:7.1f}" for x in medians[method])
                + f"; at the end {mean:.1f} +- {error:.1f}; "
                f"{np.median([r['configurations'] for r in runs]):.0f} configurations, "
                f"{np.median([r['epochs'] for r in runs]):.0f} epochs"
            )
        if {"bohb", "hyperband"} <= medians.keys():
            behind.append(medians["bohb"][-1] > medians["hyperband"][-1])
            shares.append(medians["bohb"][-1] / max(medians["hyperband"][-1], 1e-9))
    goals = Goals()
    if shares:
        goals.at_most("tables on which bohb is behind hyperband", sum(behind), len(shares) // 4)
        goals.at_most("bohb / hyperband, median regret at the end", float(np.median(shares)), 0.999)
    print(describe())
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
