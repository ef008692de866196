"""Pilots: a pipeline fitted on about a thousand rows, to predict the duration of the whole trial.

A pilot takes a fraction of a second; its results are not cached, recorded or judged.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.space.configuration import Choice
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.surrogates.costs import LIKELY, Costs, cheap_configuration
from prefect_tune.optimizers.trials.objective import Objective
from prefect_tune.optimizers.trials.outcome import Pilot, StepCost
from prefect_tune.tasks.fitting.fitting import FoldData, fit_model, fit_transformer
from prefect_tune.tasks.fitting.memory_estimate import MatrixSummary
from prefect_tune.tasks.fitting.recipe import recipe, step_seed
from prefect_tune.tasks.trial.node import summary_of_rows
from prefect_tune.tasks.trial.path_run import PathRun

_WARM_ROWS, _ROWS, _HELD_OUT_ROWS = 100, 1_000, 4_000
"""Training rows to warm up libraries, training rows of the pilot, and held-out rows. The latter are
enough for the overhead of calls not to matter."""


class WillNotEnd(Exception):  # noqa: N818 - reads as an outcome
    """A trial was not started because its `pilot` predicts too long a duration."""

    def __init__(self, pilot: Pilot) -> None:
        super().__init__(
            f"the trial was not started: a fit on {pilot.rows:,} rows predicts "
            f"{pilot.seconds:.3g} s, and the limit is {pilot.limit_seconds:.3g} s"
        )
        self.pilot = pilot


def pilot(path_run: PathRun, space: Space, limit_seconds: float) -> Pilot:
    """Fit a trial's pipeline on few rows of its first fold, and predict the trial's duration."""
    split, query, dataset = path_run.split, path_run.query, path_run.dataset
    fold = path_run.folds[0]
    rows = split.training(fold, dataset.strata, groups=dataset.groups)
    held_out = split.held_out(fold)
    few_held_out = held_out[:: ceil(len(held_out) / _HELD_OUT_ROWS)]
    cheap = dict(cheap_configuration(space, query.configuration).choices)
    for n_rows in (_WARM_ROWS, _ROWS):  # the first run is slower
        share = min(n_rows / len(rows), 1.0)
        few = split.training(fold, dataset.strata, share, query.subset_draw, dataset.groups)
        steps = _fitted(path_run, cheap, few, few_held_out)
    n_rows = len(rows)
    if split.trains is not None:  # folds that look forward train on different numbers of rows
        n_rows = round(fmean(map(split.n_training, path_run.folds)))
    objective = Objective(n_rows=n_rows, n_held_out=len(held_out), n_folds=split.n_folds)
    costs = Costs(space, objective)
    shown = Pilot(len(few), len(few_held_out), steps, 0.0, limit_seconds)
    costs.tell_pilot(query.configuration, shown)
    return replace(shown, seconds=costs.seconds(query, LIKELY))


def _fitted(
    path_run: PathRun,
    cheap: Mapping[str, Choice],
    rows: NDArray[np.intp],
    held_out_rows: NDArray[np.intp],
) -> tuple[StepCost, ...]:
    dataset, context, fold = path_run.dataset, path_run.context, path_run.folds[0]
    train, held_out = dataset.rows(rows), dataset.rows(held_out_rows)
    summary = summary_of_rows(dataset, len(rows))
    labels, classes = dataset.labels[rows], dataset.learned_classes
    costs, is_balanced = [], False
    for position, (step, algorithm, choice) in enumerate(path_run.steps):
        is_balanced |= bool(algorithm.class_weights)
        if algorithm.is_passthrough:
            continue
        summary = replace(summary, n_classes=len(classes))
        how = recipe(algorithm, cheap.get(step.name, choice), summary, balanced=is_balanced)
        seed = step_seed(context.problem.seed, step.name, fold)
        # So few rows use one thread. If the trial has several, the prediction is too high until
        # measured trials correct it, also after a change of the workers.
        data = FoldData(
            train,
            held_out,
            labels,
            classes,
            context.memory_limit_bytes,
            path_run.split.n_training(fold),
        )
        if position == len(path_run.steps) - 1:
            made, _ = fit_model(how, seed, data)
        else:
            made = fit_transformer(how, seed, data)
            train, held_out = made.parts["train"], made.parts["held_out"]
            summary = MatrixSummary(**made.summary)
        cost = StepCost(step.name, fold, made.seconds, 0.0, hit=False, key="")
        costs.append(replace(cost, held_out_seconds=made.held_out_seconds))
    return tuple(costs)
