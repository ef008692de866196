"""Claims of the methods, as figures with stored records.

    tests/benchmarks/run claims  # prints the figures of the stored runs, as the pages quote them
    tests/benchmarks/run claims --rerun CLAIM ... [--seeds N] [--methods flash,smac,...] [--jobs 2]
        [--out FOLDER] [--tables FILE ...] [--commit]

A claim compares methods on equal worlds, with equal seeds:

- `paths`: FLASH's own world of 1,456 paths, additive or with interactions (planted losses);
- `artificial`: the artificial objective of ADMM's paper, in the shapes of its tables A2 and A3;
- `bounds`: a latency bound that 5, 10 or 30 % of random configurations meet (planted losses);
- `curves`: seven tables of recorded learning curves and three of synthetic curves, with a budget of
  8 full training runs; in `charged-curves`, asks take their seconds from the budget;
- `grids`: recorded grids of SVMs on subsets of three tables; small subsets of two tables mislead;
- `tables`: FLASH's space on the tables FILE (CSV or Parquet with the column `target`);
- `pairs`: ESMBO's ensembles, each of one model on one of the tables FILE (classification).

`--rerun` runs claims anew, and prints fresh figures below the recorded figures of the same methods
and seeds. FOLDER keeps the runs, so an interrupted rerun continues. `--commit` replaces the records
of the claims. Methods are written `flash:variant=paper`. Two figures are level if they differ by
less than two standard errors of their paired difference.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import inf, nan
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
from anytime import Contestant, Curve, watched
from claim_worlds import Pair, World, artificial, bounded, paths, table
from curve_replay import AT, objective_of
from curve_replay import run as run_on_curves
from curve_tables import TABLES, load_table
from kept_rows import KeptRows
from machine import describe
from methods_of_table import method_of_table
from recorded_svms import Grid
from scipy.stats import rankdata
from simulation import Simulation
from threadpoolctl import threadpool_limits

from prefect_tune.optimizers import make_optimizer
from prefect_tune.optimizers.registry import METHODS

RECORDS = Path(__file__).parent / "claim_records.parquet"
KEY = ["claim", "world", "method", "seed"]
BUDGET = 8.0
"""Full training runs of a run on curves."""
EVALUATIONS = {"fabolas": 110, "mtbo": 60, "ei": 40, "es": 40}
FULL_EVALUATIONS = 60.0
"""Seconds of a run on grids, in full evaluations."""


def course(world: World, contestant: Contestant, seed: int, trials: int) -> dict[str, Any]:
    """Return the least feasible loss so far, and the seconds so far, after each trial."""
    method, options = contestant.method, contestant.options
    optimizer = make_optimizer(method, world.space, seed, world.objective, options)
    study = Simulation(optimizer, world.outcome, trials=trials, clock=process_time)
    study.are_asks_free = True
    constraints = world.objective.constraints
    best, values, seconds, spent = inf, list[float](), list[float](), 0.0
    for stretch in study.ends():
        found = stretch.trial.evaluation
        if found is not None and all(c.excess(found.constraints) <= 0 for c in constraints):
            best = min(best, found.loss)
        spent += stretch.ended - stretch.started
        values.append(best)
        seconds.append(spent)
    return {"values": values, "seconds": seconds, "asks": sum(study.ask_seconds)}


def planted(make: Callable[[str, int], World], trials: int, key: Mapping[str, Any]) -> Any:
    """Run a method in a planted world."""
    contestant = Contestant.of(key["method"])
    return course(make(key["world"], key["seed"]), contestant, key["seed"], trials)


def on_curves(are_asks_free: bool, key: Mapping[str, Any]) -> dict[str, Any]:
    """Return regrets, and then test losses of the incumbent, at shares of the budget."""
    name, contestant = key["world"], Contestant.of(key["method"])
    found = load_table(name, Path(gettempdir()))
    optimizer = method_of_table(
        contestant.method, found, key["seed"], objective_of(name, found), contestant.options
    )
    seen = run_on_curves(optimizer, found, BUDGET, are_asks_free=are_asks_free)
    regrets = [seen.least_validated(share, found) - float(found.losses.min()) for share in AT]
    tests = [seen.incumbent_test_loss(share, found) for share in AT]
    return {"values": [*regrets, *tests], "seconds": seen.ends[-1:], "asks": sum(seen.asks)}


def on_grid(key: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cost, in full evaluations, to stay within 2, 1, 0.5 and 0.25 of the best error."""
    grid, contestant = Grid(key["world"]), Contestant.of(key["method"])
    subsets = {"fidelity": "subset"} if contestant.method in {"hyperband", "halving"} else {}
    options = {**subsets, **contestant.options}
    optimizer = make_optimizer(contestant.method, grid.space, key["seed"], grid.objective, options)
    unit = 100 * grid.full_cost  # so that asks cost little

    def outcome(query: Any) -> tuple[float, float]:
        error, seconds = grid.outcome(query)
        return error, 100 * seconds

    n = EVALUATIONS.get(contestant.method, 100_000)
    seconds = FULL_EVALUATIONS * unit
    curve: Curve = watched(optimizer, outcome, grid.full_error, evaluations=n, seconds=seconds)
    costs = [curve.lasting(grid.best + within) / unit for within in (2.0, 1.0, 0.5, 0.25)]
    return {"values": costs, "seconds": curve.ends[-1:], "asks": sum(curve.asks)}


def on_table(trials: int, folder: Path, key: Mapping[str, Any]) -> dict[str, Any]:
    """Run a method on a real table."""
    contestant = Contestant.of(key["method"])
    with table(Path(key["file"]), folder) as world:
        return course(world, contestant, key["seed"], trials)


def on_pair(trials: int, key: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of `Pair.final_losses`."""
    contestant, model = Contestant.of(key["method"]), key["world"].split()[1]
    with TemporaryDirectory() as folder:
        pair = Pair(Path(key["file"]), model, key["seed"], Path(folder))
        began = process_time()
        values = pair.final_losses(contestant.method, contestant.options, trials)
        return {"values": values, "seconds": [process_time() - began], "asks": nan}


@dataclass(frozen=True)
class Claim:
    """A comparison of methods.

    Attributes:
        run: Function from a key to the values of one run.
        worlds: Names of the worlds.
        seeds: Number of runs of each method in each world.
        methods: Methods with options, separated by commas.
        at: Indices of the values that are reported as mean ranks, by the text of their column.
        against: Method whose final loss the others should reach sooner; empty for none.
        spent: `trials` or `seconds` to that loss, as a fraction of the other method's total.
        models: Spaces of the tables given on the command line, each a world with each table.
    """

    run: Callable[[Mapping[str, Any]], dict[str, Any]]
    worlds: Sequence[str]
    seeds: int
    methods: str
    at: Mapping[str, int]
    against: str = ""
    spent: str = "trials"
    models: Sequence[str] = ("",)


AFTER = {f"after {n} trials": n - 1 for n in (20, 40, 60, 100)}
CLAIMS = {
    "paths": Claim(
        partial(planted, paths, 100),
        ("additive", "interactions"),
        24,
        "flash,flash:variant=paper,stepwise,admm,smac,tpe,random",
        AFTER,
    ),
    "artificial": Claim(
        partial(planted, artificial, 100),
        ("A2", "A3"),
        12,
        "admm,admm:variant=paper,jopt",
        AFTER,
        against="jopt",
    ),
    "bounds": Claim(
        partial(planted, bounded, 60),
        ("0.05", "0.1", "0.3"),
        15,
        "admm,admm:variant=paper,jopt,flash,smac,tpe,random",
        dict(list(AFTER.items())[:3]),
    ),
    **{
        name: Claim(
            partial(on_curves, are_asks_free),
            TABLES,
            20,
            "bapi,bapi:variant=paper,bohb,hyperband,halving,binoculars,boil,random",
            {"validation loss": len(AT) - 1, "test loss": 2 * len(AT) - 1},
        )
        for name, are_asks_free in (("curves", True), ("charged-curves", False))
    },
    "grids": Claim(
        on_grid,
        ("mnist_t10k", "cal_housing", "phishing_websites"),
        10,
        "fabolas,fabolas:variant=paper,ei,hyperband,random",
        {},
    ),
    "tables": Claim(
        partial(on_table, 60, Path(gettempdir()) / "claim_tables"),
        (),
        5,
        "flash,stepwise,admm,smac,tpe,random",
        dict(list(AFTER.items())[:3]),
        against="smac",
        spent="seconds",
    ),
    "pairs": Claim(
        partial(on_pair, 150),
        (),
        1,
        "esmbo,esmbo:variant=paper,ers,jopt:n_startup=5",
        {"test loss of the final model": 0},
        models=("svm", "mlp", "random_forest"),
    ),
}


def figures(name: str, runs: pd.DataFrame) -> Iterator[str]:
    """Yield the figures of a claim as the lines of a Markdown table."""
    claim = CLAIMS[name]
    present = set(runs["method"])
    methods = [
        m for m in dict.fromkeys([*claim.methods.split(","), *sorted(present)]) if m in present
    ]
    columns = {text: column(methods, runs, i) for text, i in claim.at.items()}
    if name == "grids":
        for world, of_world in runs.groupby("world"):
            costs = of_world["values"].str[2].groupby(of_world["method"]).median()
            columns[f"full evaluations on `{world}`"] = [reached(costs[m]) for m in methods]
    if name == "bounds":
        last = [[values[-1] for values in runs.loc[runs["method"] == m, "values"]] for m in methods]
        columns["found"] = [f"{np.isfinite(x).sum()} of {len(x)}" for x in last]
    if name == "pairs" and "esmbo" in methods:
        text = "fraction of pairs on which `esmbo` has the lower test loss (ties count half)"
        columns[text] = [lower_share(runs, "esmbo", method) for method in methods]
        means = runs.groupby("method")["values"].agg(lambda values: np.mean(list(values), axis=0))
        for i, text in (
            (0, "mean test error of the final model, in percent"),
            (2, "of a member"),
            (3, "test rows on which two members differ, in percent"),
        ):
            columns[text] = [f"{means[method][i]:.1f}" for method in methods]
    if claim.against in methods:
        text = f"{claim.spent} to the final loss of `{claim.against}`, as a fraction"
        columns[f"{text} (median; never)"] = [
            median_share(claim, runs, method) for method in methods
        ]
    yield f"| | {' | '.join(columns)} |"
    yield "|---|" + "---|" * len(columns)
    for method, *texts in zip(methods, *columns.values(), strict=True):
        yield f"| {shown(method)} | {' | '.join(texts)} |"


def lower_share(runs: pd.DataFrame, method: str, other: str) -> str:
    """Return how often the first value of a method is below another's, and the standard error."""
    if method == other:
        return ""
    values = runs.assign(value=runs["values"].str[0])
    wide = values.pivot_table(index=["world", "seed"], columns="method", values="value")
    wins = (1 - np.sign((wide[method] - wide[other]).dropna())) / 2
    return f"{wins.mean():.2f} ({wins.std() / np.sqrt(len(wins)):.2f})"


def median_share(claim: Claim, runs: pd.DataFrame, method: str) -> str:
    """Return the median cost to the other method's final loss, as a fraction of its total."""
    by_run = runs.set_index(["world", "seed", "method"])
    shares = []
    for world, seed in by_run.index.droplevel("method").unique():
        own, other = by_run.loc[world, seed, method], by_run.loc[world, seed, claim.against]
        ends = {
            "trials": lambda run: np.arange(1, len(run["values"]) + 1),
            "seconds": lambda run: np.asarray(run["seconds"]),
        }[claim.spent]
        hits = np.flatnonzero(np.asarray(own["values"]) <= other["values"][-1])
        shares.append(ends(own)[hits[0]] / ends(other)[-1] if len(hits) else inf)
    return f"{reached(float(np.median(shares)))} ({np.isinf(shares).sum()} of {len(shares)})"


def reached(cost: float) -> str:
    """Return the text of a cost, which is infinite for a loss that was never reached."""
    return "not reached" if np.isinf(cost) else f"{cost:.2f}"


def shown(method: str) -> str:
    """Return the text of a method and its options in a page."""
    name, *options = method.split(":")
    return ", ".join([f"`{name}`", *(f"`{option}`" for option in options)])


def column(methods: list[str], runs: pd.DataFrame, index: int) -> list[str]:
    """Return all methods' mean ranks for one of the values; the best and its equals are bold."""
    values = runs.assign(value=runs["values"].str[index])
    wide = values.pivot_table(
        index=["world", "seed"], columns="method", values="value", aggfunc="first"
    )[methods].dropna(how="all")
    ranks = np.apply_along_axis(rankdata, 1, wide.fillna(inf).to_numpy())
    means, best = ranks.mean(axis=0), int(ranks.mean(axis=0).argmin())
    apart = ranks - ranks[:, [best]]
    errors = apart.std(axis=0, ddof=1) / np.sqrt(len(ranks))
    own = ranks.std(axis=0, ddof=1) / np.sqrt(len(ranks))
    texts = [f"{mean:.2f} ({error:.2f})" for mean, error in zip(means, own, strict=True)]
    level = apart.mean(axis=0) <= 2 * errors
    return [f"**{t}**" if is_level else t for t, is_level in zip(texts, level, strict=True)]


def made(name: str, key: dict[str, Any]) -> dict[str, Any]:
    """Run a method once, with one thread."""
    with threadpool_limits(1):
        return CLAIMS[name].run(key)


def rerun(name: str, options: argparse.Namespace) -> pd.DataFrame:
    """Return fresh runs of a claim; runs in the folder are not repeated."""
    claim = CLAIMS[name]
    named = product(claim.models, options.tables)
    files = {f"{path.name.split('.')[0]} {model}".strip(): str(path) for model, path in named}
    worlds = claim.worlds or tuple(files)
    if not worlds:
        sys.exit(f"the claim {name} needs data; name CSV or Parquet files with --tables")
    if absent := [str(path) for path in options.tables if not path.exists()]:
        sys.exit(f"no such table: {', '.join(absent)}; name CSV or Parquet files with --tables")
    revision = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip()
    kept = KeptRows(options.out / f"{name}.jsonl", "key")
    methods = (options.methods or claim.methods).split(",")
    if unknown := {m.split(":")[0] for m in methods} - {*METHODS, "binoculars", "boil"}:
        sys.exit(f"unknown methods: {', '.join(sorted(unknown))}")
    seeds = range(options.seeds or claim.seeds)
    keys = [
        {"claim": name, "world": world, "method": method, "seed": seed}
        | ({} if claim.worlds else {"file": files[world]})
        for seed, world, method in product(seeds, worlds, methods)
    ]
    stored = {tuple(row["key"][k] for k in KEY) for row in kept.rows}
    missing = [key for key in keys if tuple(key[k] for k in KEY) not in stored]
    with ProcessPoolExecutor(options.jobs) as pool:
        for key, run in zip(missing, pool.map(partial(made, name), missing), strict=True):
            more = {"revision": revision, "machine": describe()}
            kept.get_or_make({"key": key}, lambda run=run, more=more: run | more)
    rows = [{**row.pop("key"), **row} for row in map(dict, kept.rows)]
    frame = pd.DataFrame(rows).drop(columns="file", errors="ignore")
    is_asked = frame["method"].isin(methods) & frame["seed"].isin(seeds)
    return frame[is_asked & frame["world"].isin(worlds)]


def committed(name: str, fresh: pd.DataFrame) -> None:
    """Replace the records of a claim that was run anew."""
    seeds, methods = fresh["seed"].max() + 1, ",".join(fresh["method"].unique())
    command = f"tests/benchmarks/run claims --rerun {name} --seeds {seeds} --methods {methods}"
    if not CLAIMS[name].worlds:
        command += f" --tables {' '.join(sorted({w.split()[0] for w in fresh['world']}))}"
    fresh = fresh.assign(command=command)
    for column_name in ("values", "seconds"):
        arrays = (np.asarray(x, "float32") for x in fresh[column_name])
        fresh[column_name] = [np.round(x, 5) for x in arrays]
    before = pd.read_parquet(RECORDS)
    fresh = pd.concat([before[before["claim"] != name], fresh])
    fresh.sort_values(KEY).to_parquet(RECORDS, index=False, compression="zstd")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rerun", nargs="+", default=[], choices=[*CLAIMS], metavar="CLAIM")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--methods")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(gettempdir()) / "prefect-tune-claims")
    parser.add_argument("--tables", type=Path, nargs="+", default=[])
    parser.add_argument("--commit", action="store_true")
    options = parser.parse_args()
    recorded = pd.read_parquet(RECORDS)
    for name in options.rerun or CLAIMS:
        of_claim = recorded[recorded["claim"] == name]
        if options.methods:
            of_claim = of_claim[of_claim["method"].isin(options.methods.split(","))]
        if options.seeds:
            of_claim = of_claim[of_claim["seed"] < options.seeds]
        if len(of_claim):
            revisions = ", ".join(sorted(set(of_claim["revision"])))
            print(f"## {name}, recorded at {revisions}", *figures(name, of_claim), sep="\n")
            asks = of_claim.groupby("method")["asks"].median().dropna().round(2)
            print("median seconds of asks:", asks.to_dict() or "not measured")
        elif not options.rerun:
            files = "" if CLAIMS[name].worlds else " --tables FILE ..."
            print(f"## {name}: no record; run tests/benchmarks/run claims --rerun {name}{files}")
        if options.rerun:
            fresh = rerun(name, options)
            print(f"## {name}, run anew", *figures(name, fresh), sep="\n")
            if options.commit:
                committed(name, fresh)
    print(describe())


if __name__ == "__main__":
    main()
