"""Pilots: a pipeline fitted on about a thousand rows, to predict the duration of the whole trial.

A pilot takes a fraction of a second; its results are not cached, recorded or judged.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from statistics import fmean

from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.surrogates.costs import LIKELY, Costs, cheap_configuration
from prefect_tune.optimizers.trials.objective import Objective
from prefect_tune.optimizers.trials.outcome import Pilot, StepCost
from prefect_tune.storage.waiting import Stopwatch
from prefect_tune.tasks.fitting.fitting import fit_model, fit_transformer
from prefect_tune.tasks.fitting.memory_estimate import MatrixSummary
from prefect_tune.tasks.fitting.recipe import step_seed
from prefect_tune.tasks.trial.node import Fold, summary_of_rows
from prefect_tune.tasks.trial.path_run import PathRun, PathStep, recipe_at

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


def pilot(path_run: PathRun, space: Space, limit_seconds: float) -> Pilot | None:
    """Fit a trial's pipeline on few rows of its first fold, and predict the trial's duration.

    None if the fit fails, for instance for lack of rows. Raises WillNotEnd if the prediction is
    over the limit.
    """
    try:
        shown = _predicted(path_run, space, limit_seconds)
    except Exception:
        return None
    if shown.is_over_limit:
        raise WillNotEnd(shown)
    return shown


def _predicted(path_run: PathRun, space: Space, limit_seconds: float) -> Pilot:
    stopwatch = Stopwatch()
    split, query, dataset = path_run.split, path_run.query, path_run.dataset
    fold = path_run.fold(path_run.folds[0])
    n_rows = split.n_training(fold.number)
    held_out = split.held_out(fold.number)
    few_held_out = held_out[:: ceil(len(held_out) / _HELD_OUT_ROWS)]
    cheap = dict(cheap_configuration(space, query.configuration).choices)
    path = [(step, algorithm, cheap.get(step.name, own)) for step, algorithm, own in path_run.steps]
    for most_rows in (_WARM_ROWS, _ROWS):  # the first run is slower
        share = min(most_rows / n_rows, 1.0)
        few = split.training(fold.number, dataset.strata, share, query.subset_draw, dataset.groups)
        steps = _fitted(replace(fold, training=few, held_out=few_held_out), path)
    if split.trains is not None:  # folds that look forward train on different numbers of rows
        n_rows = round(fmean(map(split.n_training, path_run.folds)))
    objective = Objective(n_rows=n_rows, n_held_out=len(held_out), n_folds=split.n_folds)
    costs = Costs(space, objective)
    shown = Pilot(len(few), len(few_held_out), steps, 0.0, limit_seconds)
    costs.tell_pilot(query.configuration, shown)
    seconds = costs.seconds(query, LIKELY)
    return replace(shown, seconds=seconds, own_seconds=stopwatch.seconds())


def _fitted(fold: Fold, path: Sequence[PathStep]) -> tuple[StepCost, ...]:
    dataset, costs = fold.dataset, list[StepCost]()
    train, held_out = dataset.rows(fold.training), dataset.rows(fold.held_out)
    summary = summary_of_rows(dataset, len(fold.training))
    for position, (step, algorithm, _) in enumerate(path):
        if algorithm.is_passthrough:
            continue
        how = recipe_at(path, position, summary, dataset)
        seed = step_seed(fold.context.problem.seed, step.name, fold.number)
        # So few rows use one thread. If the trial has several, the prediction is too high until
        # measured trials correct it, also after a change of the workers.
        data = replace(fold.data(train, held_out), most_threads=1)
        if position == len(path) - 1:
            made, _ = fit_model(how, seed, data)
        else:
            made = fit_transformer(how, seed, data)
            train, held_out = made.parts["train"], made.parts["held_out"]
            summary = MatrixSummary(**made.summary)
        cost = StepCost(step.name, fold.number, made.seconds, 0.0, hit=False, key="")
        costs.append(replace(cost, held_out_seconds=made.held_out_seconds))
    return tuple(costs)
