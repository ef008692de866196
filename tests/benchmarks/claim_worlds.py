"""Worlds of the claims of the methods: planted losses, real tables, and models of real tables."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from ConfigSpace import Float, Integer
from peer_tools.plain_evaluation import PlainEvaluator, problem_of, source_of, space_of
from peer_tools.tables import TableFile
from peer_tools.task import Task
from simulation import Outcome, Simulation
from worlds import BENCHMARK, algorithm, counted_space

from prefect_tune.optimizers import (
    Algorithm,
    Configuration,
    Constraint,
    Evaluation,
    Objective,
    Query,
    Space,
    Step,
    make_optimizer,
)
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.storage.artifacts import StoreAddress
from prefect_tune.tasks.data.split import REFIT
from prefect_tune.tasks.final.ensemble import (
    BOOTSTRAPS,
    MOST_PICKS,
    HeldOut,
    blend,
    choose,
    member_output,
)
from prefect_tune.tasks.fitting.fitting import fit_model
from prefect_tune.tasks.fitting.recipe import step_seed
from prefect_tune.tasks.objective.predictions import Predictions
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial.evaluate import study_resampling
from prefect_tune.tasks.trial.path_run import PathRun, recipe_at

__all__ = ["Pair", "World", "artificial", "bounded", "paths", "table"]


@dataclass(frozen=True)
class World:
    """An objective on a simulated clock.

    Attributes:
        space: The space to search.
        objective: Metric and constraints.
        outcome: Loss and seconds of a query.
    """

    space: Space
    objective: Objective
    outcome: Callable[[Query], Outcome | Evaluation]


def paths(kind: str, seed: int) -> World:
    """Return FLASH's own world of 1,456 paths, additive or with `interactions`.

    A loss is a sum of one effect per algorithm and one parabola per hyperparameter.
    """
    rng = np.random.default_rng([5, seed])
    effects = [rng.exponential(4.0, n) for n in BENCHMARK]
    optima = [rng.uniform(0.1, 0.9, n) for n in BENCHMARK]
    curvatures = [rng.exponential(12.0, n) for n in BENCHMARK]
    pairs = {(2, 3): rng.normal(0, 4, (13, 14)), (0, 3): rng.normal(0, 2, (4, 14))}
    log_seconds = [
        rng.normal(mean, 1, n) for mean, n in zip((-3, -3, -1, 0), BENCHMARK, strict=True)
    ]

    def outcome(query: Query) -> Outcome:
        loss, seconds, chosen = 20.0, 0.0, []
        for k, (_, choice) in enumerate(query.configuration.choices):
            j = int(choice.algorithm[1:])
            distance = dict(choice.values)["h0"] - optima[k][j]
            loss += effects[k][j] + curvatures[k][j] * distance**2
            seconds += float(np.exp(log_seconds[k][j]))
            chosen.append(j)
        if kind == "interactions":
            loss += sum(pairs[a, b][chosen[a], chosen[b]] for a, b in pairs)
        return float(np.clip(loss, 0, 100)), seconds

    return World(counted_space(BENCHMARK), Objective("error", "percent", 0.0, 100.0), outcome)


Counts = tuple[tuple[tuple[int, int], ...], ...]
_A3: Counts = (
    ((0, 0), (0, 0), (0, 2), (0, 0), (0, 0), (2, 2)),
    ((0, 0), (1, 1), (0, 3)),
    ((0, 0), (1, 0), (3, 6), (0, 3), (1, 5), (1, 5)),
)
_A2: Counts = (
    ((0, 0), (0, 0), (0, 2), (0, 0), (0, 0), (2, 2), (0, 0), (0, 2)),
    (
        *((0, 0), (1, 1), (0, 1), (1, 1), (2, 3), (0, 2)),
        *((2, 4), (0, 5), (0, 3), (1, 1), (0, 3)),
    ),
    ((0, 0), (0, 1), (1, 0), (1, 0), (1, 0), (1, 0), (0, 0)),
    (
        *((0, 0), (1, 0), (3, 6), (0, 3), (1, 5), (1, 5)),
        *((1, 2), (3, 3), (0, 2), (2, 3), (2, 5)),
    ),
)
_COUNTS: Mapping[str, Counts] = {"A2": _A2, "A3": _A3}
"""Numbers and integers of each algorithm of each step, in the shapes of the paper's tables."""


def artificial(shape: str, seed: int) -> World:
    """Return the artificial objective of Liu, Ram et al. 2020 (appendix 15).

    An algorithm has weights w and a fixed seed. With hyperparameters theta and
    v = |w . theta / sum theta|, the loss after a step is the largest |x| of ten draws of the seed
    from N(loss before, v). The paper does not state these two: hyperparameters lie in [1, 10], and
    v = |w_0| for an algorithm without hyperparameters.
    """
    rng = np.random.RandomState(seed)
    steps = [
        [
            (
                rng.normal(size=max(c + d, 1)),
                np.random.RandomState(rng.randint(2**31)).normal(size=10),
            )
            for c, d in step
        ]
        for step in _COUNTS[shape]
    ]

    def outcome(query: Query) -> Outcome:
        loss = 0.0
        for step, (_, choice) in zip(steps, query.configuration.choices, strict=True):
            w, draws = step[int(choice.algorithm[1:])]
            theta = np.array([float(value) for _, value in choice.values])
            v = abs(w @ theta / theta.sum()) if len(theta) else abs(w[0])
            loss = float(np.abs(loss + v * draws).max())
        return loss, 1.0

    space = Space(
        shape,
        tuple(
            Step(f"step{i}", tuple(_numbered(j, *counts) for j, counts in enumerate(step)))
            for i, step in enumerate(_COUNTS[shape])
        ),
    )
    return World(space, Objective(), outcome)


def _numbered(j: int, n_continuous: int, n_integers: int) -> Algorithm:
    numbers = [
        *(Float(f"c{k}", (1.0, 10.0), default=5.5) for k in range(n_continuous)),
        *(Integer(f"d{k}", (1, 10), default=5) for k in range(n_integers)),
    ]
    return algorithm(f"a{j}", *numbers, estimator="x.Y" if numbers else "")


def bounded(share: str, seed: int) -> World:
    """Return an additive world with a latency bound that a `share` of random configurations meet.

    The latency depends on the model and on the value of the model's hyperparameter.
    """
    counts, rng = (4, 4, 5), np.random.default_rng([9, seed])
    effects = [rng.exponential(0.04, n) for n in counts]
    optima = [rng.uniform(0.1, 0.9, n) for n in counts]
    curvatures = [rng.exponential(0.25, n) for n in counts]
    latencies, factors = np.exp(rng.normal(0, 1.5, counts[2])), rng.uniform(0.8, 1.3, counts[1])

    def measured(query: Query) -> tuple[float, float]:
        loss, chosen = 0.05, []
        for k, (_, choice) in enumerate(query.configuration.choices):
            j, value = int(choice.algorithm[1:]), dict(choice.values)["h0"]
            loss += effects[k][j] + curvatures[k][j] * (value - optima[k][j]) ** 2
            chosen.append((j, value))
        latency = latencies[chosen[2][0]] * (0.5 + 2 * chosen[2][1]) * factors[chosen[1][0]]
        return min(loss, 1.0), float(latency)

    space = counted_space(counts)
    draws = [Query(sample_configuration(space, np.random.default_rng([3, i]))) for i in range(400)]
    bound = float(np.quantile([measured(draw)[1] for draw in draws], float(share)))

    def outcome(query: Query) -> Evaluation:
        loss, latency = measured(query)
        return Evaluation(loss, (loss,), 1.0, 1.0, constraints={"latency": latency})

    constraints = (Constraint("latency", bound),)
    return World(space, Objective("m", "", 0.0, 1.0, constraints=constraints), outcome)


@contextmanager
def table(path: Path, folder: Path, *, seconds: float = 20.0) -> Iterator[World]:
    """Evaluate configurations of FLASH's space on a table, each within a limit of CPU seconds."""
    split = TableFile.of(str(path)).split(0, folder)
    space = {"classes": "flash", "numbers": "regression"}[split.kind]
    files = (str(split.train), str(split.test), split.target, split.kind)
    task = Task(*files, seconds, split.seed, monotonic(), str(folder), {"space": space})
    with PlainEvaluator(task) as evaluator:
        objective = Objective("loss", "", 0.0, 100.0 if split.kind == "classes" else inf)
        measured = partial(evaluator.measured, limit=seconds)
        yield World(evaluator.space, objective, lambda query: measured(query.configuration))


class Pair:
    """A table and the space of one model; a third of the training rows is held out.

    The rows are prepared once, because the steps before the model have no choices.

    Args:
        path: File of the table.
        model: Name of the space.
        seed: Number of the split.
        folder: Folder for files of the study.
    """

    def __init__(self, path: Path, model: str, seed: int, folder: Path) -> None:
        split = TableFile.of(str(path)).split(seed, folder)
        options = {"space": model, "holdout": "0.33"}
        files = (str(split.train), str(split.test), split.target, split.kind)
        task = Task(*files, inf, split.seed, monotonic(), str(folder), options)
        address = StoreAddress(str(folder / "store"))
        self.space = space_of(task)
        self.problem = problem_of(task, source_of(task), self.space, address)
        context = StudyContext("pair", self.problem, address)
        query = Query(default_configuration(self.space, next(iter(self.space.paths()))))
        self._runs = {fold: PathRun(context, query, [fold]) for fold in (0, REFIT)}
        for run in self._runs.values():
            for position in range(len(run.steps) - 1):
                run.run(position)

    def predictions(self, configuration: Configuration, fold: int) -> Predictions:
        """Return the predictions of a model for the rows that a fold holds out."""
        run, position = self._runs[fold], len(self._runs[fold].steps) - 1
        rows, (step, model, _) = run.nodes(fold)[-1], run.steps[-1]
        steps = [*run.steps[:-1], (step, model, dict(configuration.choices)[step.name])]
        how = recipe_at(steps, position, rows.summary, run.dataset)
        data = rows.fold.data(rows.part("train"), rows.part("held_out"))
        return fit_model(how, step_seed(self.problem.seed, step.name, fold), data)[1]

    def final_losses(self, method: str, options: Mapping[str, object], trials: int) -> list[float]:
        """Return test losses: of the final model, of the best trial, and of a member on average.

        The last value is the average percentage of test rows on which two members differ. The final
        model is an ensemble if the method declares one, and otherwise the best trial.
        """
        run, seed = self._runs[0], self.problem.seed
        dataset, metric, n_classes = run.dataset, run.metric, len(run.dataset.classes)
        optimizer = make_optimizer(method, self.space, seed, Objective(), options)
        bootstraps = optimizer.bootstraps or Bootstraps(1, 0.0)
        resampling = study_resampling(self.problem, metric, run.store, bootstraps)
        y, found = dataset.y[run.split.held_out(0)], dict[Configuration, Predictions]()

        def outcome(query: Query) -> Evaluation:
            found[query.configuration] = predicted = self.predictions(query.configuration, 0)
            loss = metric.loss(y, predicted, n_classes)
            risks = tuple(resampling.risks([predicted]))
            return Evaluation(loss, (loss,), 1.0, 1.0, risks=risks)

        Simulation(optimizer, outcome, trials=trials).run()
        candidates = [trial.query.configuration for trial in optimizer.history.best(trials)]
        held_out = HeldOut(dataset, run.split, metric, tuple((found[c],) for c in candidates))
        kind: Any = optimizer.method.ensemble or "single"
        counted = replace(BOOTSTRAPS, share=bootstraps.share)
        chosen = choose(kind, held_out, MOST_PICKS, counted, np.random.default_rng(seed)).weights
        tests = {i: self.predictions(candidates[i], REFIT) for i in {0, *chosen}}

        def test_loss(weights: Mapping[int, float]) -> float:
            outputs = [w * member_output(tests[i], n_classes) for i, w in weights.items()]
            blended = blend(np.sum(outputs, axis=0), n_classes)
            return metric.loss(dataset.y[run.split.held_out(REFIT)], blended, n_classes)

        member = np.mean([test_loss({i: 1.0}) for i in chosen])
        labels = combinations([tests[i].label for i in chosen], 2)
        differences = [100 * np.mean(one != other) for one, other in labels]
        difference = np.mean(differences or [0.0])
        return [test_loss(chosen), test_loss({0: 1.0}), float(member), float(difference)]
