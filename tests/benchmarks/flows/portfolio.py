"""Make the portfolios that FLASH begins with, and judge them by leaving each data set out.

    tests/benchmarks/run flows/portfolio --out FOLDER [--candidates 72] [--rows 700] [--size 16]
        [--jobs 2] [--commit] [TABLE[:TARGET] ...] [--events FOLDER:LABELS|cohort:NAME ...]

With `prefect-tune[boosting]` installed. Candidates of the modern spaces, as many of each model: the
default of its simplest path, the others drawn from the prior. Each is cross-validated on some rows
of each table, by three folds and for 8 CPU seconds at most. A portfolio is picked one by one,
greedily, by the mean over tables of the normalised regret of the best so far (0 for the best
candidate of a table, 1 for the median one), for its seconds. It is judged on tables that it was not
made from: tables whose names begin alike (`cal_housing`, `cal_housing_reg`) are left out together.
A second portfolio of each space is made and judged without the models of XGBoost and CatBoost,
which not everyone has.

The portfolio of the space `events` is made in the same way from event sets, all rows of each. Its
candidates are the defaults, LightGBM and logistic regression behind single changes of a cheap
construction, and draws from the prior of the faster models, of three the cheapest. Forms of one
set (`meds_gibleed`, `omop_gibleed`) are left out together, and so are the cohorts of a family.
The loss is 1 - AUROC, and a candidate may take 8 CPU seconds. The first one is given: boosted
trees behind few blocks of columns, as a short budget sees little else of a large set.

FOLDER gets `losses.parquet`, in which an interrupted run goes on; what is there is not run again.
With `--commit` the portfolios replace those of the catalogue, and the losses those of the same
spaces beside this file, from which `flows/peers` makes a portfolio without the table that it is
measured on.
"""

import argparse
import json
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain, cycle, repeat
from pathlib import Path
from time import monotonic
from zlib import crc32

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from machine import Goals, describe
from peer_tools.plain_evaluation import PlainEvaluator
from peer_tools.portfolios import KINDS, LOSSES, Losses, begins_with, picked, related
from peer_tools.tables import EventSet, TableFile
from peer_tools.task import Task

from prefect_tune.optimizers import Configuration, Space
from prefect_tune.optimizers.methods.flash.shared_values import with_choices
from prefect_tune.optimizers.space.configuration import (
    Choice,
    default_choice,
    default_configuration,
)
from prefect_tune.optimizers.space.sampling import new_configuration
from prefect_tune.tasks.catalogue.event_windows import AGGREGATIONS, WINDOWS
from prefect_tune.tasks.catalogue.spaces import EXTRAS, space_named
from prefect_tune.tasks.data.source import Source

PORTFOLIOS = Path(__file__).parents[3] / "tasks" / "catalogue" / "portfolios"
SECONDS = 8.0
"""CPU seconds that a candidate may take on a table or an event set."""
METRIC_OF_EVENTS = "auroc"
"""Of few patients, of whom few have the outcome, the error tells little."""
CHEAP = {"windows": "all", "aggregations": "count", "levels": "code", "scaling": "none"}
"""The construction whose values are changed one at a time."""
CHANGES = {
    "lightgbm": {
        "windows": ("30", "30_365", "7_30_90_365_1095"),
        "aggregations": tuple(AGGREGATIONS)[1:],
        "levels": ("prefixes", "both"),
    },
    "logistic_regression": {"scaling": ("log1p", "binary", "tfidf")},
}
DRAWN = {
    "lightgbm": 12, "xgboost": 5, "logistic_regression": 5, "catboost": 3, "extra_trees": 2,
    "random_forest": 1,
}  # fmt: skip
"""Draws of each model of events in a round."""
LOOKS = 10
GOAL = 0.85
"""Of the regret of defaults alone after ten trials, at most."""
say = partial(print, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE[:TARGET]", type=TableFile.of)
    parser.add_argument("--events", nargs="+", metavar="SET", type=EventSet.of, default=[])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--candidates", type=int, default=72)
    parser.add_argument("--rows", type=int, default=700)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--commit", action="store_true")
    chosen = parser.parse_args(arguments)
    home: Path = chosen.out.absolute()
    home.mkdir(parents=True, exist_ok=True)
    losses = Losses(home / "losses.parquet")
    say(describe())
    evaluated = partial(evaluate, home, chosen.candidates, chosen.rows)
    named = [*chosen.tables, *chosen.events]
    waiting = [one for one in named if not losses.has(one.name, chosen.candidates)]
    with ProcessPoolExecutor(chosen.jobs, max_tasks_per_child=1) as pool:
        for name, rows in pool.map(evaluated, waiting):
            losses.add(rows)
            say(f"{name}: {len(rows)} candidates, {rows['loss'].min():.4g} the best; {describe()}")
    reached = Goals()
    for kind, space in KINDS.items():
        known = losses.of(kind)
        if not len(known):
            continue
        for ending, rows in (("", known), ("_without_boosting", plain(known, space_named(space)))):
            judge(rows, space_named(space), f"{space}{ending}", chosen.size, reached)
            if chosen.commit:
                portfolio = picked(rows, chosen.size, begins_with(space_named(space)))
                text = ",\n".join(json.dumps(json.loads(c), sort_keys=True) for c in portfolio)
                (PORTFOLIOS / f"{space}{ending}.json").write_text(f"[\n{text}\n]\n")
    if chosen.commit:
        recorded = Losses(LOSSES)
        others = ~recorded.frame["kind"].isin(set(losses.frame["kind"]))
        recorded.frame = recorded.frame[others]
        recorded.add(losses.frame)
    reached.end()


def candidates(space: Space, n: int) -> list[Configuration]:
    """The candidates of a space, the same at each call: as many of each model, defaults first."""
    rng, found = np.random.default_rng(0), dict.fromkeys(defaults(space))
    models = [algorithm.id for algorithm in space.steps[-1].algorithms]
    while len(found) < n:
        for model in models:
            part = space.restricted_to(
                {s.name: {a.id for a in s.algorithms} for s in space.searched[:-1]}
                | {space.steps[-1].name: {model}}
            )
            found[new_configuration(part, set(found), rng)] = None
    return list(found)[:n]


def defaults(space: Space) -> Iterator[Configuration]:
    """Each model with default values and nothing before it, as far as it allows."""
    *before, model = space.searched
    plain = tuple(step.simplest.id for step in before)
    for algorithm in model.algorithms:
        path = space.canonical_path((*plain, algorithm.id))
        if space.is_feasible(path):
            yield default_configuration(space, path)


def event_candidates(space: Space, n: int) -> list[Configuration]:
    """The candidates of the space of events, the same at each call."""
    rng = np.random.default_rng(0)
    found = dict.fromkeys(chain(defaults(space), changes(space)))
    first, *_, model = space.searched
    constructions = cycle(("windows", "windows", "aggregate"))
    models = cycle(chain.from_iterable(map(repeat, DRAWN.keys(), DRAWN.values())))
    while len(found) < n:
        part = space.restricted_to(
            {s.name: {a.id for a in s.algorithms} for s in space.searched}
            | {first.name: {next(constructions)}, model.name: {next(models)}}
        )
        found[min((new_configuration(part, set(found), rng) for _ in range(3)), key=work)] = None
    return list(found)[:n]


def changes(space: Space) -> Iterator[Configuration]:
    """Models behind single changes of a cheap construction, and behind each single aggregation."""
    windows, aggregate = space.steps[0].algorithms
    for base in defaults(space):
        if (of_model := CHANGES.get(base.path[-1])) is None:
            continue
        given = default_choice(windows)
        changed = [{name: value} for name, values in of_model.items() for value in values]
        for values in ({}, *changed):
            choice = Choice.of(windows.id, {**dict(given.values), **CHEAP, **values})
            yield with_choices(base, {space.steps[0].name: choice})
        given = default_choice(aggregate)
        for value in aggregate.hyperparameters["aggregation"].choices:
            choice = Choice.of(aggregate.id, {**dict(given.values), "aggregation": str(value)})
            yield with_choices(base, {space.steps[0].name: choice})


def work(configuration: Configuration) -> float:
    """Blocks of columns times trees, by which draws are compared."""
    (_, first), *_, (_, model) = configuration.choices
    built, values = dict(first.values), dict(model.values)
    blocks = 1
    if "windows" in built:
        blocks = len(WINDOWS[built["windows"]]) * len(AGGREGATIONS[built["aggregations"]])
        blocks *= 1 + (built["levels"] == "both")
    return blocks * float(values.get("n_estimators", values.get("iterations", 1)))


def evaluate(home: Path, n: int, rows: int, of: TableFile | EventSet) -> tuple[str, pd.DataFrame]:
    """Losses and seconds of the candidates on some rows of a table, or on an event set."""
    folder = home / "runs" / of.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if isinstance(of, EventSet):
        kind, listed = "events", event_candidates
        task = Task(
            "", "", "", "classes", 10 * SECONDS, crc32(of.name.encode()) % 2**31,
            monotonic(), str(folder), {"space": KINDS[kind], "metric": METRIC_OF_EVENTS},
        )  # fmt: skip
        source = Source(of.data, labels=of.labels)
    else:
        task, source = _task(of, home, folder, rows), None
        kind, listed = task.kind, candidates
    found = []
    with PlainEvaluator(task, source) as evaluator:
        for number, configuration in enumerate(listed(evaluator.space, n)):
            loss, seconds = evaluator.measured(configuration, SECONDS)
            found.append(
                {
                    "table": of.name,
                    "kind": kind,
                    "candidate": number,
                    "configuration": configuration.canonical,
                    "loss": np.nan if loss is None else loss,
                    "seconds": seconds,
                }
            )
    shutil.rmtree(folder)
    return of.name, pd.DataFrame(found)


def _task(table: TableFile, home: Path, folder: Path, rows: int) -> Task:
    """The task on some training rows of a table."""
    files = table.split(0, home / "splits")
    train = folder / "train.parquet"
    everything, seed = pq.read_table(files.train), crc32(table.name.encode())
    drawn = np.random.default_rng(seed).permutation(len(everything))[:rows]
    pq.write_table(everything.take(np.sort(drawn)), train)
    return Task(
        str(train), str(files.test), files.target, files.kind, 10 * SECONDS, files.seed,
        monotonic(), str(folder), {"space": KINDS[files.kind]},
    )  # fmt: skip


def plain(known: pd.DataFrame, space: Space) -> pd.DataFrame:
    """The rows of candidates that need no extra."""
    model = space.steps[-1]
    optional = {a.id for a in model.algorithms if EXTRAS.keys() & set(a.requires)}
    models = known["configuration"].map(lambda c: json.loads(c)[model.name]["algorithm"])
    return known[~models.isin(optional)]


def judge(known: pd.DataFrame, space: Space, name: str, size: int, reached: Goals) -> None:
    """Print what portfolios reach on tables that they were not made from."""
    regrets = Losses.regrets(known)
    of_defaults = [c.canonical for c in defaults(space)]
    after: dict[str, list[float]] = {"portfolio": [], "defaults": []}
    for table in regrets:
        others = known[~known["table"].map(partial(related, table))]
        for which, order in (
            ("portfolio", picked(others, size, begins_with(space))),
            ("defaults", of_defaults),
        ):
            known_ones = [c for c in order if c in regrets.index][:LOOKS]
            after[which].append(float(regrets[table].loc[known_ones].min()))
    means = {which: float(np.mean(found)) for which, found in after.items()}
    differences = np.array(after["portfolio"]) - np.array(after["defaults"])
    say(f"{name}: {len(known['table'].unique())} tables, each left out once")
    for which, mean in means.items():
        say(f"  {which}: mean normalised regret after {LOOKS} trials {mean:.4f}")
    ahead, behind = int((differences < 0).sum()), int((differences > 0).sum())
    say(f"  the portfolio is ahead on {ahead} tables and behind on {behind}")
    ratio = means["portfolio"] / means["defaults"]
    reached.at_most(f"{name}: regret of the portfolio over that of defaults", ratio, GOAL)


if __name__ == "__main__":
    main()
