"""The steps of a trial in each of its folds: recipes, seeds, and the shape of their data.

They follow from the shapes of what the steps before made, which the index of a store keeps. Where
it has none, because the study kept nothing, the steps before the model run once more, here; of a
trial that failed, those before the step that failed, which may take any time and memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from sklearn.pipeline import Pipeline

from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.query import Query
from prefect_tune.tasks.exporting.plain import FALLBACK
from prefect_tune.tasks.fitting.matrix_summary import MatrixSummary
from prefect_tune.tasks.fitting.recipe import Recipe, recipe, step_seed
from prefect_tune.tasks.node import Node
from prefect_tune.tasks.path_run import PathRun, StepFailed
from prefect_tune.tasks.study_context import StudyContext

__all__ = ["StepInFold", "steps_in_folds"]


@dataclass(frozen=True, slots=True)
class StepInFold:
    """One step of a trial in one of its folds.

    Attributes:
        name: Of the step.
        algorithm: What it does.
        recipe: What that is for its data.
        seed: Of its random numbers.
        given: Shape of the training rows that reach it.
        keeps_one: Whether it may be a selection that would have left no column, and kept one.
        rarest: Training rows of the rarest class; 0 where numbers are predicted.
        is_reached: Whether its data is known; else it is taken for that of a step before.
    """

    name: str
    algorithm: Algorithm
    recipe: Recipe
    seed: int
    given: MatrixSummary
    keeps_one: bool
    rarest: int
    is_reached: bool


def steps_in_folds(
    context: StudyContext, query: Query, failed_step: str | None = None
) -> list[tuple[StepInFold, ...]]:
    """Return the steps of a query that do something, in order, each as it is in all the folds.

    Args:
        context: The study.
        query: What its trial evaluated, or tried to.
        failed_step: Name of the step that failed, empty where that is not known; None if none did.
    """
    path_run = PathRun(context, query)
    names = [step.name for step, _, _ in path_run.steps]
    last = len(names) - 1
    if failed_step is not None:
        last = names.index(failed_step) if failed_step in names else 0
    if not _is_known(path_run, last):
        path_run = PathRun(replace(context, use_cache=False), query)
        _prepare(path_run, last)
    folds = [_steps(path_run, fold) for fold in path_run.folds]
    return list(zip(*folds, strict=True))


def _is_known(path_run: PathRun, last: int) -> bool:
    """Return whether all that reaches the steps up to the last one is known without running one."""
    return all(
        path_run.node_at(fold, position) is not None
        for position, (_, algorithm, _) in enumerate(path_run.steps[: last + 1])
        if not algorithm.is_passthrough
        for fold in path_run.folds
    )


def _prepare(path_run: PathRun, last: int) -> None:
    """Run the steps before the last one, as far as they can be."""
    for position in range(last):
        try:
            path_run.run(position)
        except StepFailed:
            return


def _steps(path_run: PathRun, fold: int) -> Iterator[StepInFold]:
    problem, n_classes = path_run.context.problem, len(path_run.dataset.classes)
    summary, is_balanced = MatrixSummary(0, 0, "frame"), False
    rarest = _rarest(path_run, fold)
    for position, (step, algorithm, choice) in enumerate(path_run.steps):
        is_balanced |= bool(algorithm.class_weights)
        if algorithm.is_passthrough:
            continue
        node = path_run.node_at(fold, position)
        seed = step_seed(problem.seed, step.name, fold)
        if node is not None and node.parent.summary is not None:
            summary, how, one = node.parent.summary, node.recipe, _keeps_one(node)
            yield StepInFold(step.name, algorithm, how, seed, summary, one, rarest, True)
            summary = node.summary or summary
        else:
            of_classes = replace(summary, n_classes=n_classes)
            how = recipe(algorithm, choice, of_classes, balanced=is_balanced)
            yield StepInFold(step.name, algorithm, how, seed, summary, False, rarest, False)


def _keeps_one(node: Node) -> bool:
    """Return whether a step may have kept one column instead of none; its estimator knows."""
    if node.summary is None or node.summary.columns != 1 or node.is_model:
        return False
    estimator = node.kept_estimator()
    selection = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    return selection is None or hasattr(selection, FALLBACK)


def _rarest(path_run: PathRun, fold: int) -> int:
    dataset, query = path_run.dataset, path_run.query
    if not dataset.classes:
        return 0
    rows = path_run.split.training(
        fold, dataset.strata, query.subset, query.subset_draw, dataset.groups
    )
    return int(np.unique(dataset.y[rows], return_counts=True)[1].min())
