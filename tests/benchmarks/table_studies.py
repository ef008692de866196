"""Studies of tables on the real stack, without a server: searches, and tests of their ends."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from prefect_tune.flows.study.replayed import study_objective
from prefect_tune.optimizers import Budget, Evaluation, Query, Trial, make_optimizer
from prefect_tune.storage.artifacts import StoreAddress
from prefect_tune.storage.keys import predictions_record
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.data.dataset import import_dataset, load_dataset
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.split import REFIT, import_split, load_split, make_split
from prefect_tune.tasks.final.ensemble import (
    BOOTSTRAPS,
    HeldOut,
    agnostic_weights,
    blend,
    member_output,
)
from prefect_tune.tasks.objective.predictions import Predictions
from prefect_tune.tasks.problem import Problem, StudyContext, algorithm_ids, open_store
from prefect_tune.tasks.threads import one_thread
from prefect_tune.tasks.trial.evaluate import evaluate_query
from prefect_tune.tasks.trial.path_run import PathRun

__all__ = ["Pair", "TableStudy"]

PART = 0.25
"""Of the rows, those to test; of the others, those held out."""
PART_OF_DRAWN = 0.5
"""Of rows that are drawn from a larger table, those to test."""
LIMIT_SECONDS = 20.0
"""Of processor time that a trial may take; a fit in C is interrupted when it has ended."""


@dataclass(frozen=True)
class Pair:
    """A table and a space of one model, with the seed of all draws."""

    table: str
    space: str
    seed: int

    def __str__(self) -> str:
        return f"{self.table} {self.space} {self.seed}"


class TableStudy:
    """A table, split, in a store of its own.

    Args:
        pair: Which table, space and seed.
        data: Folder of the tables, `NAME.csv.gz` with the column `target`.
        home: Folder of the store.
        n_rows: Of larger tables so many rows are drawn, by class.
    """

    def __init__(self, pair: Pair, data: Path, home: Path, n_rows: int) -> None:
        self.pair, folder = pair, home / str(pair).replace(" ", "-")
        folder.mkdir(parents=True, exist_ok=True)
        self.space = space_named(pair.space)
        self.is_of_classes = self.space.target == "classes"
        table = folder / "table.csv"
        frame = pd.read_csv(data / f"{pair.table}.csv.gz")
        tested = PART if len(frame) <= n_rows else PART_OF_DRAWN
        if not table.exists():
            drawn = _drawn(frame, pair.seed, n_rows, self.is_of_classes)
            drawn.to_csv(table, index=False)
        address = StoreAddress(str(folder / "store"))
        self.store = open_store(address)
        predicts = "classes" if self.is_of_classes else "numbers"
        dataset = read_source(Source(str(table), target="target", predicts=predicts))
        self.problem = Problem(
            dataset=import_dataset(dataset, self.store),
            split=import_split(make_split(dataset, None, tested, pair.seed, PART), self.store),
            space=self.space.name,
            space_digest=self.space.digest,
            algorithms=algorithm_ids(self.space),
            metric="error" if self.is_of_classes else "neg_mean_squared_error",
            seed=pair.seed,
        )
        self.dataset = load_dataset(self.store, self.problem.dataset)
        self.split = load_split(self.store, self.problem.split)
        self.context = StudyContext(str(pair), self.problem, address)
        self._by_query = dict[str, Predictions]()

    def search(self, method: str, options: Mapping[str, Any], n_trials: int) -> dict[str, Any]:
        """Search, and return the trials as JSON values with the processor seconds of the asks."""
        metric = self.problem.find_metric()
        objective = study_objective(metric, self.dataset, self.split, self.space)
        optimizer = make_optimizer(method, self.space, self.pair.seed, objective, dict(options))
        context = replace(self.context, use_cache=False, bootstraps=optimizer.bootstraps)
        asking, started = 0.0, process_time()
        for number in range(n_trials):
            asked = process_time()
            query = optimizer.ask(Budget(number, n_trials - number))
            asking += process_time() - asked
            trial = optimizer.history[number].started()
            signal.signal(signal.SIGPROF, _too_long)
            signal.setitimer(signal.ITIMER_PROF, LIMIT_SECONDS)
            outcome = evaluate_query(context, query)
            signal.setitimer(signal.ITIMER_PROF, 0)
            is_done = isinstance(outcome, Evaluation)
            optimizer.tell(trial.completed(outcome) if is_done else trial.failed(outcome))
        seconds = process_time() - started
        trials = [_said(trial) for trial in optimizer.history]
        return {"trials": trials, "ask_seconds": asking, "seconds": seconds}

    def agnostic(self, trials: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[float]]:
        """Members of the agnostic ensemble of trials, the heaviest first, and their weights."""
        predictions = tuple((self._held_out(trial),) for trial in trials)
        metric, rng = self.problem.find_metric(), np.random.default_rng((self.pair.seed, 1))
        held_out = HeldOut(self.dataset, self.split, metric, predictions)
        weights = agnostic_weights(held_out, BOOTSTRAPS, rng)
        members = [int(i) for i in np.argsort(-weights, kind="stable") if weights[i] > 0]
        return members, [float(weight) for weight in weights[members]]

    def test_losses(
        self, trials: Sequence[Mapping[str, Any]], weights: Sequence[float]
    ) -> list[float]:
        """Loss of each test row under the members refitted on all training rows."""
        n_classes, y = len(self.dataset.classes), self.dataset.y[self.split.held_out(REFIT)]
        given = [member_output(self._refitted(trial), n_classes) for trial in trials]
        label = blend(np.average(given, axis=0, weights=weights), n_classes).label
        losses = (label != y) if n_classes else (label - y) ** 2
        return [round(float(loss), 7) for loss in losses]

    def _held_out(self, trial: Mapping[str, Any]) -> Predictions:
        parts = self.store.records.get(predictions_record(trial["predictions"][0]))
        return Predictions(parts["label"], parts.get("score"))

    def _refitted(self, trial: Mapping[str, Any]) -> Predictions:
        query = Query.from_json(trial["query"], self.space)
        name = query.configuration.canonical
        if name not in self._by_query:
            path_run = PathRun(self.context, query, [REFIT])
            with one_thread():
                for position in range(len(path_run.steps)):
                    path_run.run(position)
            self._by_query[name] = path_run.nodes(REFIT)[-1].predictions()
        return self._by_query[name]


def _drawn(frame: pd.DataFrame, seed: int, n_rows: int, is_of_classes: bool) -> pd.DataFrame:
    """Some rows of a table, drawn by class; numbers to be predicted are standardised."""
    if len(frame) > n_rows:
        of_class = frame["target"] if is_of_classes else None
        frame, _ = train_test_split(frame, train_size=n_rows, stratify=of_class, random_state=seed)
    if not is_of_classes:
        target = frame["target"]
        frame = frame.assign(target=(target - target.mean()) / target.std())
    return frame


def _said(trial: Trial) -> dict[str, Any]:
    done = trial.evaluation
    return {
        "query": trial.query.to_json(),
        "loss": trial.loss,
        "risks": [] if done is None else list(done.risks),
        "predictions": [] if done is None else list(done.predictions),
        "failure": None if trial.failure is None else trial.failure.message,
    }


def _too_long(*_: object) -> None:
    raise TimeoutError(f"it took more than {LIMIT_SECONDS:g} s of processor time")
