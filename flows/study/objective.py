"""The objective of a study as a method may know it: the metric, its bounds, the data's size."""

from dataclasses import replace

import numpy as np

from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.objective import Constraint, Objective
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.split import TEST, Split
from prefect_tune.tasks.fitting.iterative import iterative_algorithms
from prefect_tune.tasks.objective.metric import Metric

__all__ = ["study_objective"]


def study_objective(
    metric: Metric,
    dataset: Dataset,
    split: Split,
    space: Space,
    *,
    constraints: tuple[Constraint, ...] = (),
    epochs: int | None = None,
) -> Objective:
    """Return the objective of a study, with all that a method may know of it.

    Args:
        metric: What is minimised.
        dataset: The rows.
        split: Their folds and test part; the test part does not enter.
        space: What is searched.
        constraints: What an incumbent must meet.
        epochs: Epochs of a full training; None when models are fitted at once.
    """
    n_classes = len(dataset.classes)
    folds = [split.training(fold, dataset.strata) for fold in range(split.n_folds)]
    rarest = min(int(np.bincount(dataset.strata[rows]).min()) for rows in folds)
    return replace(
        metric.objective(dataset.y[split.fold != TEST], n_classes),
        constraints=constraints,
        n_rows=min(len(rows) for rows in folds),
        n_held_out=min(len(split.held_out(fold)) for fold in range(split.n_folds)),
        n_classes=n_classes,
        n_rarest=rarest,
        n_folds=split.n_folds,
        epochs=epochs,
        iterative=iterative_algorithms(space.steps[-1], n_classes) if epochs else frozenset(),
    )
