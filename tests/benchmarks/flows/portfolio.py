"""Make the portfolios of FLASH, and judge each portfolio on data sets left out of it.

    tests/benchmarks/run flows/portfolio  # judges the recorded losses
    tests/benchmarks/run flows/portfolio --out FOLDER [--candidates 72] [--rows 700] [--size 16]
        [--jobs 2] [--commit] [TABLE[:TARGET] ...] [--events FOLDER:LABELS|cohort:NAME ...]
    tests/benchmarks/run flows/portfolio --large [NAME ...] [--out FOLDER] [--commit]

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

The portfolio for more than 20,000 training rows is learned from the generated tables of
`peer_tools/generated_tables.py`, which `--large` names. Each candidate trains on 60,000 rows with a
single holdout, as the product does: trees and rounds grow with the rows, and boosted trees stop
early. The candidates are defaults, boosted trees with high learning rates and with strong
regularization, a quicker network, and the faster configurations of the portfolio for few rows. With
the rows, 48 leaves grow to 120 on 60,000 rows, and to 250 on 270,000. The portfolio is compared
with the portfolio for few rows by the regret after 10, 20 and 40 CPU seconds, and committed only
if not worse on average. Otherwise, the product uses the portfolio for few rows.

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
from peer_tools.generated_tables import GENERATED, generated
from peer_tools.plain_evaluation import PlainEvaluator
from peer_tools.portfolios import (
    KINDS,
    LOSSES,
    LOSSES_ON_MANY_ROWS,
    first_of,
    model_of,
    picked,
    picked_for_many_rows,
    regrets,
    unrelated,
)
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
from prefect_tune.tasks.catalogue.modern import portfolio_of
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
SIZES = {"lightgbm": "num_leaves", "xgboost": "max_depth", "catboost": "depth"}
"""The hyperparameter for the size of trees, by model."""
ON_MANY_ROWS = (
    ("lightgbm", 15, 0.2, {}),
    ("lightgbm", 24, 0.08, {"reg_lambda": 10.0, "min_child_samples": 50, "colsample_bytree": 0.4}),
    ("lightgbm", 24, 0.15, {"reg_lambda": 10.0, "min_child_samples": 50, "colsample_bytree": 0.6}),
    ("lightgbm", 48, 0.1, {"reg_lambda": 10.0, "min_child_samples": 100, "colsample_bytree": 0.5}),
    ("lightgbm", 48, 0.2, {"reg_lambda": 10.0, "min_child_samples": 50, "extra_trees": True}),
    ("lightgbm", 48, 0.2, {"reg_lambda": 30.0, "min_child_samples": 100, "colsample_bytree": 0.4}),
    ("lightgbm", 96, 0.1, {"reg_lambda": 30.0, "min_child_samples": 200, "colsample_bytree": 0.4}),
    ("xgboost", 4, 0.2, {}),
    ("xgboost", 5, 0.15, {"reg_lambda": 10.0, "min_child_weight": 10.0, "colsample_bytree": 0.5}),
    ("xgboost", 7, 0.1, {}),
    ("xgboost", 7, 0.2, {"reg_lambda": 30.0, "min_child_weight": 10.0, "colsample_bytree": 0.5}),
    ("xgboost", 9, 0.1, {"reg_lambda": 10.0, "min_child_weight": 20.0, "colsample_bytree": 0.5}),
    ("catboost", 6, 0.2, {}),
    ("catboost", 6, 0.3, {"iterations": 64}),
)
"""Boosted trees for many rows: the model, the size of trees, the learning rate, and other values;
the number of rounds is 512 unless given."""
QUICKER = {"mlp": {"nodes_per_layer": 32, "learning_rate_init": 0.01}}
SLOW = frozenset(
    {"k_nearest", "kernel_svm", "random_forest", "extra_trees", "hist_gradient_boosting"}
)
"""Models that are no candidates for many rows."""
MANY, HELD_OUT, SECONDS_ON_MANY, SIZE_ON_MANY = 75_000, "0.2", 10.0, 10
"""Rows drawn of each large table, fraction held out once, CPU seconds per candidate, and size
of a portfolio for many rows."""
DRAWN = {
    "lightgbm": 12, "xgboost": 5, "logistic_regression": 5, "catboost": 3, "extra_trees": 2,
    "random_forest": 1,
}  # fmt: skip
"""Draws of each model of events in a round."""
LOOKS = 10
SPENT = (10, 20, 40)
"""CPU seconds after which portfolios for many rows are judged."""
GOAL = 0.85
"""Of the regret of defaults alone after ten trials, at most."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE[:TARGET]", type=TableFile.of)
    parser.add_argument("--events", nargs="+", metavar="SET", type=EventSet.of, default=[])
    parser.add_argument("--large", nargs="*", metavar="NAME", choices=GENERATED)
    parser.add_argument("--out", type=Path, default=Path("portfolio"))
    parser.add_argument("--candidates", type=int, default=72)
    parser.add_argument("--rows", type=int, default=700)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--commit", action="store_true")
    chosen = parser.parse_args()
    print(describe(), flush=True)
    home, is_large = chosen.out.absolute(), chosen.large is not None
    evaluated, ending, judged = partial(evaluate, home, chosen.candidates, chosen.rows), "", judge
    named, store, size = [*chosen.tables, *chosen.events], LOSSES, chosen.size
    if is_large:
        evaluated = partial(evaluate, home, 0, MANY, is_large=True)
        named = [generated(name, home / "tables") for name in chosen.large]
        ending, judged, store, size = "_large", judge_large, LOSSES_ON_MANY_ROWS, SIZE_ON_MANY
    losses = pd.read_parquet(store)
    if named:
        with ProcessPoolExecutor(chosen.jobs, max_tasks_per_child=1) as pool:
            losses = pd.concat(pool.map(evaluated, named))
    reached = Goals()
    for kind, known in losses.groupby("kind"):
        space = space_named(KINDS[str(kind)])
        plain = known[model_of(known, space).isin(*plain_models(space).values())]
        for name, rows in (
            (space.name + ending, known),
            (f"{space.name}{ending}_without_boosting", plain),
        ):
            if judged(rows, space, name, size, reached) and chosen.commit:
                portfolio = picked(rows, size, first_of(space))
                if is_large:
                    portfolio = picked_for_many_rows(rows, size)
                text = ",\n".join(json.dumps(json.loads(c), sort_keys=True) for c in portfolio)
                (PORTFOLIOS / f"{name}.json").write_text(f"[\n{text}\n]\n")
    if chosen.commit:
        recorded = pd.read_parquet(store)
        others = recorded[~recorded["kind"].isin(losses["kind"])]
        pd.concat([others, losses], ignore_index=True).to_parquet(store, index=False)
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


def large_candidates(space: Space, n: int) -> list[Configuration]:  # noqa: ARG001 - as others
    """Return the candidates for many rows: defaults, larger boosted trees, and the portfolio."""
    model = space.steps[-1]
    plain = {c.path[-1]: c for c in defaults(space)}
    found = [c for name, c in plain.items() if name not in {*SLOW, *QUICKER}]
    rounds = {a.id: a.rounds for a in model.algorithms}
    changed = [*QUICKER.items()]
    for name, size, rate, others in ON_MANY_ROWS:
        values = {SIZES[name]: size, "learning_rate": rate, rounds[name]: 512, **others}
        changed.append((name, values))
    for name, values in changed:
        base = plain[name]
        choice = Choice.of(name, {**dict(base[model.name].values), **values})
        found.append(with_choices(base, {model.name: choice}))
    known = [portfolio_of(s)[:LOOKS] for s in (space, restricted(space, plain_models(space)))]
    known = [c for c in chain(*known) if c.path[-1] not in SLOW]
    return list(dict.fromkeys([*found, *known]))


def plain_models(space: Space) -> dict[str, set[str]]:
    """Return the models that need no optional library, by the step of models."""
    step = space.steps[-1]
    return {step.name: {a.id for a in step.algorithms if not OPTIONAL.keys() & set(a.requires)}}


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


def evaluate(
    home: Path, n: int, n_rows: int, of: TableFile | EventSet, *, is_large: bool = False
) -> pd.DataFrame:
    """Return losses and seconds of the candidates on some rows of a table, or on an event set."""
    seconds_each = SECONDS_ON_MANY if is_large else SECONDS
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
        kind, source = files.kind, None
        options = {"holdout": HELD_OUT} if is_large else {}
        task = replace(task, train=str(train), test=str(files.test), target=files.target,
                       kind=kind, seed=files.seed)  # fmt: skip
    task = replace(task, options={"space": KINDS[kind], **options})
    listed, found = event_candidates if kind == "events" else candidates, []
    listed = large_candidates if is_large else listed
    with PlainEvaluator(task, source) as evaluator:
        for number, configuration in enumerate(listed(evaluator.space, n)):
            loss, seconds = evaluator.measured(configuration, seconds_each)
            found.append(
                {"table": of.name, "kind": kind, "candidate": number, "seconds": seconds,
                 "configuration": configuration.canonical,
                 "loss": np.nan if loss is None else loss}
            )  # fmt: skip
    shutil.rmtree(folder)
    pd.DataFrame(found).to_parquet(path, index=False)
    print(f"{of.name}: {len(found)} candidates; {describe()}", flush=True)
    return pd.DataFrame(found)


def judge(known: pd.DataFrame, space: Space, name: str, size: int, reached: Goals) -> bool:
    """Print results of each portfolio on a table left out of it; always return true."""
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
    return True


def judge_large(known: pd.DataFrame, space: Space, name: str, size: int, reached: Goals) -> bool:
    """Print results of each portfolio on a table left out of it, after some CPU seconds.

    Returns:
        Whether the portfolio is at least as good as the portfolio for few rows, on average.
    """
    of_table = regrets(known)
    seconds = known.pivot_table(index="configuration", columns="table", values="seconds")
    measured = restricted(space, {space.steps[-1].name: set(model_of(known, space))})
    few = [c.canonical for c in portfolio_of(measured) if c.canonical in of_table.index]
    found = []
    for table in of_table:
        for order in (picked_for_many_rows(unrelated(known, table), size), few):
            ended, losses = seconds[table].loc[order].cumsum(), of_table[table].loc[order]
            found.append([losses[ended <= spent].min() for spent in SPENT])
    means = np.nan_to_num(found, nan=1.0).reshape(-1, 2, len(SPENT)).mean(axis=0)
    print(f"{name}: mean normalized regret, each table left out once:")
    for spent, of_many, of_few in zip(SPENT, *means, strict=True):
        text = f"after {spent} CPU seconds: regret / regret of the portfolio for few rows"
        reached.at_most(f"  {text}", of_many / of_few, 1.0)
    return bool(means[0].mean() <= means[1].mean())


if __name__ == "__main__":
    main()
