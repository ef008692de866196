"""Refit of an ensemble: members side by side with the store, beside one by one without it.

    tests/benchmarks/run flows/ensemble_refit [--rows 6000] [--repeats 3]

Twenty members in the space `flash` on a table of scikit-learn's `make_classification`: four models
behind each of five prefixes. Two workers fit them side by side; what several begin with is made
once, and the model is put together from the store, which has nothing of it before. In turn with
that, one worker fits all of them, one after the other, without the store. Both take all that a
study takes for its final model: flow, Prefect server, Dask, held-out predictions, the saved model,
and the loss on the test rows, which is the same. Beside the ratio stands that of CPU time, of flow
and workers: on a machine that is busy with other things, two processes get no more done than one.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from uuid import UUID

import numpy as np
import pandas as pd
import psutil
from machine import Goals, describe
from prefect import flow
from prefect.runtime import flow_run
from sklearn.datasets import make_classification
from studies import problem_of

from prefect_tune.deployments.server.embedded import local_server
from prefect_tune.deployments.server.prefect_settings import QUIET_CONSOLE, set_defaults
from prefect_tune.flows.refitting import refit_model, score_model
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.optimizers import Budget, Configuration, Evaluation, Query
from prefect_tune.optimizers.space.algorithm import Step
from prefect_tune.optimizers.space.space import Space
from prefect_tune.storage import Ledger, StoreAddress
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.problem import StudyContext, TrialLimits, open_store

GOAL = 0.6
NAME = "ensemble"
PREFIXES = (
    ("standardize", "extra_trees"),
    ("minmax", "extra_trees"),
    ("standardize", "fast_ica"),
    ("minmax", "fast_ica"),
    ("standardize", "nystroem"),
)
MODELS = tuple(
    (forest, {"criterion": criterion})
    for forest in ("extra_trees", "random_forest")
    for criterion in ("gini", "entropy")
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=6_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    set_defaults(QUIET_CONSOLE)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PREFECT_TUNE_HOME"] = folder
        context = context_of(Path(folder), options.rows)
        with local_server():
            print(describe(), flush=True)
            ratios = compare(context, options.repeats)
            print(describe())
    goals = Goals()
    goals.at_most("side by side with the store / one by one without", median(ratios), GOAL)
    goals.end()


@flow(persist_result=False)
def compare(context: StudyContext, repeats: int) -> list[float]:
    """Seconds side by side, as shares of those one by one, of each repeat."""
    store, limits, ratios = open_store(context.store), TrialLimits(seconds=3600), []
    with (
        Study.opened(store, NAME) as study,
        DaskTrials.started(context, UUID(str(flow_run.id)), limits, n_workers=2) as running,
    ):
        for query in members_of(context.problem.find_space()):
            study.optimizer._propose = lambda *_, query=query: query  # type: ignore[method-assign]
            study.tell(study.start(study.ask(Budget())).ended(Evaluation(10.0)))
        trials = [study.trials[number] for number in sorted(study.trials)]
        weighted = [(trial, 1 / len(trials)) for trial in trials]
        for repeat in range(repeats):
            seconds, cpu, losses = {}, {}, {}
            for use_cache in (True, False):
                store.prune(0)
                of, before = replace(context, use_cache=use_cache), cpu_seconds()
                seconds[use_cache] = refit_model(study, running, of, weighted)
                cpu[use_cache] = cpu_seconds() - before
                losses[use_cache] = score_model(running, of).loss
            if losses[True] != losses[False]:
                raise RuntimeError(f"another model: test losses {losses}")
            ratios.append(seconds[True] / seconds[False])
            print(
                f"repeat {repeat}: {seconds[True]:.1f} s side by side, {seconds[False]:.1f} s one "
                f"by one ({seconds[False] / len(trials):.1f} s a member), ratio {ratios[-1]:.2f}; "
                f"CPU {cpu[True]:.1f} s and {cpu[False]:.1f} s, ratio {cpu[True] / cpu[False]:.2f}",
                flush=True,
            )
    return ratios


def cpu_seconds() -> float:
    """CPU time of this process and of the workers so far; the server runs apart."""
    me = psutil.Process()
    server = json.loads(Path(os.environ["PREFECT_TUNE_HOME"], "server", "server.json").read_text())
    apart = {p.pid for p in psutil.Process(server["pid"]).children(recursive=True)}
    ours = [me, *me.children(recursive=True)]
    times = [p.cpu_times() for p in ours if p.pid not in apart | {server["pid"]}]
    return sum(time.user + time.system for time in times)


def context_of(folder: Path, n_rows: int) -> StudyContext:
    """A study of a table that has its folds and its space, and no trials."""
    X, y = make_classification(
        n_rows, 40, n_informative=12, n_redundant=8, n_classes=3, flip_y=0.05, random_state=0
    )
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
    frame["colour"] = np.random.default_rng(0).choice(["red", "green", "blue"], n_rows)
    frame.assign(target=y).to_parquet(folder / "table.parquet", index=False)
    source = Source(str(folder / "table.parquet"), target="target")
    address = StoreAddress(str(folder / "store"))
    store = open_store(address)
    problem = problem_of(source, store, space_named("flash"))
    plan = StudyPlan(
        source=source, data_name="table", problem=problem, folds=3, holdout=None, test_size=0.2,
        positive=None, chance_loss=60.0, method="random",
    )  # fmt: skip
    Ledger(store.database).create_study(NAME, problem.to_json(), plan.to_json())
    return StudyContext(NAME, problem, address)


def members_of(space: Space) -> Iterator[Query]:
    """Each model behind each prefix; all other hyperparameters have their defaults."""
    for rescale, preprocess in PREFIXES:
        for model, values in MODELS:
            path = {
                "rescale": (rescale, {}),
                "balance": ("none", {}),
                "preprocess": (preprocess, {}),
                "fit model": (model, values),
            }
            document = {step.name: chosen(step, *path[step.name]) for step in space.searched}
            yield Query(Configuration.from_json(document, space))


def chosen(step: Step, algorithm: str, values: Mapping[str, str]) -> dict[str, object]:
    """An algorithm of a step as JSON, with some of its values."""
    (found,) = (a for a in step.algorithms if a.id == algorithm)
    defaults = dict(found.hyperparameters.get_default_configuration())
    return {"algorithm": algorithm, "hyperparameters": {**defaults, **values}}


if __name__ == "__main__":
    main()
