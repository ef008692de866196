"""Make the portfolios that FLASH begins with, and judge them by leaving each table out.

    tests/benchmarks/run flows/portfolio --out FOLDER [--candidates 72] [--rows 700] [--size 16]
        [--jobs 2] [--commit] TABLE[:TARGET] ...

With `prefect-tune[boosting]` installed. Candidates of the modern spaces, as many of each model: the
default of its plainest path, the others drawn from the prior. Each is cross-validated on some rows
of each table, by three folds and for 8 s at most. A portfolio is picked one by one, greedily, by
the mean over tables of the normalised regret of the best so far (0 for the best candidate of a
table, 1 for the median one), for its seconds. It is judged on tables that it was not made from:
tables whose names begin alike (`cal_housing`, `cal_housing_reg`) are left out together. A second
portfolio of each space is made and judged without the models of XGBoost and CatBoost, which not
everyone has.

FOLDER gets `losses.parquet`, in which an interrupted run goes on; what is there is not run again.
With `--commit` the portfolios replace those of the catalogue, and the losses those beside this
file, from which `flows/peers` makes a portfolio without the table that it is measured on.
"""

import argparse
import json
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from time import monotonic
from zlib import crc32

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from machine import Goals, describe
from peer_tools.plain_evaluation import PlainEvaluator
from peer_tools.portfolios import KINDS, LOSSES, Losses, picked, related
from peer_tools.tables import SplitFiles, TableFile
from peer_tools.task import Task

from prefect_tune.optimizers import Configuration, Space
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.sampling import new_configuration
from prefect_tune.tasks.catalogue.libraries import EXTRAS
from prefect_tune.tasks.catalogue.spaces import space_named

PORTFOLIOS = Path(__file__).parents[3] / "tasks" / "catalogue" / "portfolios"
SECONDS = 8.0
"""That a candidate may take on a table."""
LOOKS = 10
GOAL = 0.85
"""Of the regret of defaults alone after ten trials, at most."""
say = partial(print, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="+", metavar="TABLE[:TARGET]", type=TableFile.of)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--candidates", type=int, default=72)
    parser.add_argument("--rows", type=int, default=700)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--commit", action="store_true")
    chosen = parser.parse_args(arguments)
    home: Path = chosen.out.absolute()
    home.mkdir(parents=True, exist_ok=True)
    splits = [(table.name, table.split(0, home / "splits")) for table in chosen.tables]
    losses = Losses(home / "losses.parquet")
    say(describe())
    evaluated = partial(evaluate, home, chosen.candidates, chosen.rows)
    waiting = [split for split in splits if not losses.has(split[0], chosen.candidates)]
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
                portfolio = picked(rows, chosen.size)
                text = ",\n".join(json.dumps(json.loads(c), sort_keys=True) for c in portfolio)
                (PORTFOLIOS / f"{space}{ending}.json").write_text(f"[\n{text}\n]\n")
    if chosen.commit:
        shutil.copyfile(losses.path, LOSSES)
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
    plain = tuple(step.plainest.id for step in before)
    for algorithm in model.algorithms:
        path = space.settled((*plain, algorithm.id))
        if space.is_feasible(path):
            yield default_configuration(space, path)


def evaluate(
    home: Path, n: int, rows: int, named: tuple[str, SplitFiles]
) -> tuple[str, pd.DataFrame]:
    """Losses and seconds of the candidates on some rows of a table."""
    name, files = named
    folder = home / "runs" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    train = folder / "train.parquet"
    table, seed = pq.read_table(files.train), crc32(name.encode())
    drawn = np.random.default_rng(seed).permutation(len(table))[:rows]
    pq.write_table(table.take(np.sort(drawn)), train)
    options = {"space": KINDS[files.kind]}
    task = Task(
        str(train), str(files.test), files.target, files.kind, 10 * SECONDS, files.seed,
        monotonic(), str(folder), options,
    )  # fmt: skip
    found = []
    with PlainEvaluator(task) as evaluator:
        for number, configuration in enumerate(candidates(evaluator.space, n)):
            since = monotonic()
            loss = evaluator.loss(configuration, SECONDS)
            found.append(
                {
                    "table": name,
                    "kind": files.kind,
                    "candidate": number,
                    "configuration": configuration.canonical,
                    "loss": np.nan if loss is None else loss,
                    "seconds": monotonic() - since,
                }
            )
    shutil.rmtree(folder)
    return name, pd.DataFrame(found)


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
        for which, order in (("portfolio", picked(others, size)), ("defaults", of_defaults)):
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
