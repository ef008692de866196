"""Evaluation of configurations of our spaces without a cache, for tools that search them.

Configurations are cross-validated, unless the option `holdout` of the task is a fraction of the
training rows to hold out once.

A separate process evaluates configurations, and is ended at the time limit, like a worker of the
product.
"""

import json
import multiprocessing
from collections.abc import Mapping
from contextlib import suppress
from math import inf
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any, Self

import psutil

from peer_tools.task import Task
from prefect_tune.optimizers import Configuration, Evaluation, Query
from prefect_tune.optimizers.space.space import Space
from prefect_tune.storage.artifacts import StoreAddress
from prefect_tune.tasks.catalogue.spaces import DEFAULT_SPACES, space_named, usable_part
from prefect_tune.tasks.data.dataset import import_dataset, load_dataset
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.split import REFIT, import_split, make_split
from prefect_tune.tasks.objective.metric import Target
from prefect_tune.tasks.problem import Problem, StudyContext, algorithm_ids, open_store
from prefect_tune.tasks.threads import one_thread
from prefect_tune.tasks.trial.evaluate import evaluate_query
from prefect_tune.tasks.trial.path_run import PathRun

__all__ = ["PlainEvaluator", "problem_of", "refitted", "source_of", "space_of"]

FOLDS = 3
_TRIAL_SHARE, _LEAST_TRIAL_SECONDS = 0.1, 10.0
"""Time limit of a trial as a share of the seconds, as in `prefect-tune run`."""
_REFIT_SECONDS, _LOOK_SECONDS = 600.0, 0.05


_TARGETS: Mapping[str, Target] = {"classes": "classification", "numbers": "regression"}
"""Targets by the kind of a table."""


def space_of(task: Task) -> Space:
    """Return the space in the options or the default, without models of missing libraries.

    If several spaces are given, as in `space=flash+regression`, the space for the task's target is
    used.
    """
    target = _TARGETS[task.kind]
    named = task.options.get("space", DEFAULT_SPACES["table", target])
    (space,) = (s for s in map(space_named, named.split("+")) if s.target == target)
    return usable_part(space)


def source_of(task: Task) -> Source:
    """Return the training and test rows of a task."""
    return Source(task.train, target=task.target, test=task.test, predicts=_TARGETS[task.kind])


class PlainEvaluator:
    """Evaluates configurations of a space one after the other.

    Args:
        task: The table, and the space to search.
        source: Source of the rows, without test rows; None for the task's table.
    """

    def __init__(self, task: Task, source: Source | None = None) -> None:
        self.space, self._task = space_of(task), task
        self._source = source or source_of(task)
        self._limit = max(_LEAST_TRIAL_SECONDS, _TRIAL_SHARE * task.seconds)
        # Forked: what is imported here need not be imported again after a trial was ended.
        self._forking = multiprocessing.get_context("fork")
        self._process: Any = None
        self._pipe: Any = None
        self._problem = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def loss(self, configuration: Configuration) -> float | None:
        """Return the mean loss of the folds; None if the trial failed or took too long."""
        loss: float | None
        loss, _ = self._asked("loss", configuration, min(self._limit, self._task.left()), inf)
        return loss

    def measured(self, configuration: Configuration, limit: float) -> tuple[float | None, float]:
        """Return the mean loss of the folds, or None, and CPU seconds up to `limit`."""
        return self._asked("loss", configuration, inf, limit)

    def predictions(self, configuration: Configuration) -> Any:
        """Return classes or numbers predicted for the test rows after a fit on all training rows.

        Raises:
            RuntimeError: If the configuration cannot be fitted.
        """
        predicted, _ = self._asked("refit", configuration, _REFIT_SECONDS, inf)
        if predicted is None:
            raise RuntimeError(f"{configuration.canonical} could not be fitted on all rows")
        return predicted

    def _asked(
        self, what: str, configuration: Configuration, seconds: float, cpu_seconds: float
    ) -> tuple[Any, float]:
        if self._process is None:
            self._start()
        process, since = psutil.Process(self._process.pid), monotonic()
        before, used = sum(process.cpu_times()[:2]), 0.0
        self._pipe.send((what, configuration.to_json()))
        with suppress(EOFError, ConnectionError):
            while used < cpu_seconds and monotonic() - since < seconds:
                came = self._pipe.poll(_LOOK_SECONDS)
                used = sum(process.cpu_times()[:2]) - before
                if came:
                    return self._pipe.recv(), used
        self._end()  # it takes too long, or has died
        return None, min(cpu_seconds, monotonic() - since)

    def _start(self) -> None:
        self._pipe, theirs = self._forking.Pipe()
        arguments = (theirs, self._task, self._source, self.space, self._problem)
        self._process = self._forking.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        self._problem = self._pipe.recv()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
        self._process = None


def refitted(context: StudyContext, query: Query) -> Any:
    """Return classes or numbers predicted for the test rows after a fit on all training rows."""
    run = PathRun(context, query, [REFIT])
    with one_thread():
        for position in range(len(run.steps)):
            run.run(position)
    label = run.nodes(REFIT)[-1].predictions().label
    classes = load_dataset(run.store, context.problem.dataset).classes
    return [classes[i] for i in label] if classes else label


def _serve(pipe: Connection, task: Task, source: Source, space: Space, known: str) -> None:
    """Answer requests until the pipe is closed."""
    address = StoreAddress(str(Path(task.folder, "store")))
    read = Problem.from_json(json.loads(known)) if known else None
    problem = read or problem_of(task, source, space, address)
    pipe.send(json.dumps(problem.to_json()))
    context = StudyContext("plain", problem, address, use_cache=False)
    with suppress(EOFError):
        while True:
            what, document = pipe.recv()
            query, answer = Query(Configuration.from_json(document, space)), None
            if what == "refit":
                with suppress(Exception):
                    answer = refitted(context, query)
            elif isinstance(came := evaluate_query(context, query), Evaluation):
                answer = came.loss
            pipe.send(answer)


def problem_of(task: Task, source: Source, space: Space, address: StoreAddress) -> Problem:
    """Import the rows of a source into a store, and return the problem of a task."""
    store, dataset = open_store(address), read_source(source)
    test_size = 0.0 if source.test is None else None
    holdout = float(task.options.get("holdout", 0)) or None
    folds = None if holdout else FOLDS
    return Problem(
        dataset=import_dataset(dataset, store),
        split=import_split(make_split(dataset, folds, test_size, task.seed, holdout), store),
        space=space.name,
        space_digest=space.digest,
        algorithms=algorithm_ids(space),
        metric=task.options.get("metric", "error" if task.kind == "classes" else "r2"),
        seed=task.seed,
    )
