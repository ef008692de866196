"""Make the portfolios of FLASH, and judge each portfolio on data sets left out of it.

    tests/benchmarks/run flows/portfolio  # judges the recorded losses
    tests/benchmarks/run flows/portfolio --out FOLDER [--candidates 72] [--rows 700] [--size 16]
        [--jobs 2] [--commit] [TABLE[:TARGET] ...] [--events FOLDER:LABELS|cohort:NAME ...]

Needs `prefect-tune[boosting]`. The candidates of the modern spaces have equal numbers of each
model: the default of the simplest path, and draws from the prior. Each candidate is cross-validated
on some rows of each table, with three folds and at most 8 CPU seconds. A portfolio is picked
greedily by normalized regret (0 for the best candidate of a table, 1 for the median candidate):
each pick gives the largest decrease, per second, of the mean regret of the best pick so far. A
portfolio is judged on a table left out of it; related tables, whose names begin alike
(`cal_housing`, `cal_housing_reg`), are left out together. A second portfolio of each space is made
and judged without the models of XGBoost and CatBoost, which may be missing.

The portfolio of the space `events` is made in the same way from event sets, with all rows of each
set. Candidates for events are of three kinds: the defaults; LightGBM and logistic regression after
single changes of a cheap construction; and the cheapest of every three draws from the prior of the
faster models. All formats of an event set (`meds_gibleed`, `omop_gibleed`) are left out together,
and so are the cohorts of a family. The loss is 1 - AUROC, and a candidate may take 8 CPU seconds.
The first entry is fixed: boosted trees on few blocks of columns, because a short budget evaluates
little else on a large set.

FOLDER gets the losses, a file for each table. An interrupted run continues with the tables that
have no file yet. With `--commit`, the portfolios replace those of the catalog, and the losses
replace the recorded losses. From the recorded losses, `flows/peers` makes a portfolio that excludes
the table under test.
"""

import argparse
import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain, cycle, repeat
from pathlib import Path
from time import monotonic
from zlib import crc32

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from machine import Goals, describe
from peer_tools.event_sets import EventSet
from peer_tools.plain_evaluation import PlainEvaluator
from peer_tools.portfolios import KINDS, LOSSES, first_of, model_of, picked, regrets, unrelated
from peer_tools.tables import TableFile
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
from prefect_tune.tasks.catalogue.spaces import OPTIONAL, space_named

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE[:TARGET]", type=TableFile.of)
    parser.add_argument("--events", nargs="+", metavar="SET", type=EventSet.of, default=[])
    parser.add_argument("--out", type=Path, default=Path("portfolio"))
    parser.add_argument("--candidates", type=int, default=72)
    parser.add_argument("--rows", type=int, default=700)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--commit", action="store_true")
    chosen = parser.parse_args()
    print(describe(), flush=True)
    evaluated = partial(evaluate, chosen.out.absolute(), chosen.candidates, chosen.rows)
    losses = pd.read_parquet(LOSSES)
    if named := [*chosen.tables, *chosen.events]:
        with ProcessPoolExecutor(chosen.jobs, max_tasks_per_child=1) as pool:
            losses = pd.concat(pool.map(evaluated, named))
    reached = Goals()
    for kind, known in losses.groupby("kind"):
        space = space_named(KINDS[str(kind)])
        optional = {a.id for a in space.steps[-1].algorithms if OPTIONAL & set(a.requires)}
        plain = known[~model_of(known, space).isin(optional)]
        for name, rows in ((space.name, known), (f"{space.name}_without_boosting", plain)):
            judge(rows, space, name, chosen.size, reached)
            if chosen.commit:
                portfolio = picked(rows, chosen.size, first_of(space))
                text = ",\n".join(json.dumps(json.loads(c), sort_keys=True) for c in portfolio)
                (PORTFOLIOS / f"{name}.json").write_text(f"[\n{text}\n]\n")
    if chosen.commit:
        recorded = pd.read_parquet(LOSSES)
        others = recorded[~recorded["kind"].isin(losses["kind"])]
        pd.concat([others, losses], ignore_index=True).to_parquet(LOSSES, index=False)
    reached.end()


def candidates(space: Space, n: int) -> list[Configuration]:
    """Return the fixed candidates of a space: equal numbers per model, defaults first."""
    rng, found = np.random.default_rng(0), dict.fromkeys(defaults(space))
    while len(found) < n:
        for model in space.steps[-1].algorithms:
            part = restricted(space, {space.steps[-1].name: {model.id}})
            found[new_configuration(part, set(found), rng)] = None
    return list(found)[:n]


def restricted(space: Space, algorithms: dict[str, set[str]]) -> Space:
    """Return a copy of a space with only the given algorithms in some steps."""
    return space.restricted_to(
        {s.name: {a.id for a in s.algorithms} for s in space.searched} | algorithms
    )


def defaults(space: Space) -> Iterator[Configuration]:
    """Return each model with default values and no preprocessing, if allowed."""
    *before, model = space.searched
    plain = tuple(step.simplest.id for step in before)
    for algorithm in model.algorithms:
        path = space.canonical_path((*plain, algorithm.id))
        if space.is_feasible(path):
            yield default_configuration(space, path)


def event_candidates(space: Space, n: int) -> list[Configuration]:
    """Return the candidates of the space of events, the same in each call."""
    rng = np.random.default_rng(0)
    found = dict.fromkeys(chain(defaults(space), changes(space)))
    first, *_, model = space.searched
    constructions = cycle(("windows", "windows", "aggregate"))
    models = cycle(chain.from_iterable(map(repeat, DRAWN.keys(), DRAWN.values())))
    while len(found) < n:
        part = restricted(space, {first.name: {next(constructions)}, model.name: {next(models)}})
        found[min((new_configuration(part, set(found), rng) for _ in range(3)), key=work)] = None
    return list(found)[:n]


def changes(space: Space) -> Iterator[Configuration]:
    """Return models after single changes of a cheap construction, and after each aggregation."""
    windows, aggregate = space.steps[0].algorithms
    aggregations = map(str, aggregate.hyperparameters["aggregation"].choices)
    single = [(aggregate, {"aggregation": value}) for value in aggregations]
    for base in defaults(space):
        of_model = CHANGES.get(base.path[-1], {})
        changed = [{name: value} for name, values in of_model.items() for value in values]
        built = [(windows, {**CHEAP, **values}) for values in ({}, *changed)]
        for algorithm, values in (*built, *single) if of_model else ():
            given = {**dict(default_choice(algorithm).values), **values}
            yield with_choices(base, {space.steps[0].name: Choice.of(algorithm.id, given)})


def work(configuration: Configuration) -> float:
    """Return the number of column blocks times the number of trees, as a rough cost."""
    (_, first), *_, (_, model) = configuration.choices
    built, values = dict(first.values), dict(model.values)
    blocks = 1
    if "windows" in built:
        blocks = len(WINDOWS[built["windows"]]) * len(AGGREGATIONS[built["aggregations"]])
        blocks *= 1 + (built["levels"] == "both")
    return blocks * float(values.get("n_estimators", values.get("iterations", 1)))


def evaluate(home: Path, n: int, n_rows: int, of: TableFile | EventSet) -> pd.DataFrame:
    """Return losses and seconds of the candidates on some rows of a table, or on an event set."""
    path, folder = home / f"{of.name}.parquet", home / "runs" / of.name
    if path.exists():
        return pd.read_parquet(path)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    task = Task("", "", "", "classes", 10 * SECONDS, crc32(of.name.encode()) % 2**31,
                monotonic(), str(folder))  # fmt: skip
    if isinstance(of, EventSet):
        kind, source, options = "events", of.source, {"metric": METRIC_OF_EVENTS}
    else:
        files = of.split(0, home / "splits")
        train, rows = folder / "train.parquet", pq.read_table(files.train)
        drawn = np.random.default_rng(crc32(of.name.encode())).permutation(len(rows))[:n_rows]
        pq.write_table(rows.take(np.sort(drawn)), train)
        kind, source, options = files.kind, None, {}
        task = replace(task, train=str(train), test=str(files.test), target=files.target,
                       kind=kind, seed=files.seed)  # fmt: skip
    task = replace(task, options={"space": KINDS[kind], **options})
    listed, found = event_candidates if kind == "events" else candidates, []
    with PlainEvaluator(task, source) as evaluator:
        for number, configuration in enumerate(listed(evaluator.space, n)):
            loss, seconds = evaluator.measured(configuration, SECONDS)
            found.append(
                {"table": of.name, "kind": kind, "candidate": number, "seconds": seconds,
                 "configuration": configuration.canonical,
                 "loss": np.nan if loss is None else loss}
            )  # fmt: skip
    shutil.rmtree(folder)
    pd.DataFrame(found).to_parquet(path, index=False)
    print(f"{of.name}: {len(found)} candidates; {describe()}", flush=True)
    return pd.DataFrame(found)


def judge(known: pd.DataFrame, space: Space, name: str, size: int, reached: Goals) -> None:
    """Print results of each portfolio on a table left out of it."""
    of_table, plain = regrets(known), [c.canonical for c in defaults(space)]
    found = []
    for table in of_table:
        portfolio = picked(unrelated(known, table), size, first_of(space))
        after = ([c for c in order if c in of_table.index] for order in (portfolio, plain))
        found.append([float(of_table[table].loc[order[:LOOKS]].min()) for order in after])
    of_portfolio, of_defaults = np.array(found).T
    ahead, behind = (of_portfolio < of_defaults).sum(), (of_portfolio > of_defaults).sum()
    print(f"{name}: mean normalized regret after {LOOKS} trials, each table left out once:")
    print(
        f"  portfolio {of_portfolio.mean():.4f}, defaults {of_defaults.mean():.4f}; ahead on",
        end="",
    )
    print(f" {ahead} of {len(found)} tables and behind on {behind}")
    ratio = of_portfolio.mean() / of_defaults.mean()
    reached.at_most(f"{name}: regret of the portfolio over that of defaults", ratio, GOAL)


if __name__ == "__main__":
    main()
