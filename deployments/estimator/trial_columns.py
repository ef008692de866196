"""Conversion of a study's trials to the columns of scikit-learn's `cv_results_`."""

from bisect import bisect_left
from typing import Any

import numpy as np
import pandas as pd

from prefect_tune.flows.reading.opened_study import open_study, params_of
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.plan import documents_of
from prefect_tune.storage.artifacts import ArtifactStore


def trial_columns(store: ArtifactStore, study: str) -> dict[str, Any]:
    """Return the finished trials, ordered by number, as scikit-learn's `cv_results_`.

    A larger score is better. Failed trials and skipped folds have the score nan. `rank_test_score`
    ranks full evaluations first, then partial evaluations (see `fidelity`), then failed trials.
    """
    opened = open_study(store, study)
    plan = opened.plan
    metric = plan.problem.find_metric()
    with documents_of(study):
        trials = [trial for trial in opened.trials() if trial.state.is_told]
        n_folds = plan.options.folds or 1
        of_folds = [[*map(metric.score, t.fold_losses), *[np.nan] * n_folds] for t in trials]
        scores = np.array([scores[:n_folds] for scores in of_folds]).reshape(-1, n_folds)
        means = np.array([metric.score(t.loss) if t.has_loss else np.nan for t in trials])
        space = plan.problem.find_space()
        params, columns = [params_of(t.configuration, space) for t in trials], dict[str, Any]()
        for name in dict.fromkeys(name for given in params for name in given):
            column = np.ma.MaskedArray(np.empty(len(params), dtype=object), mask=True)
            for position, given in enumerate(params):
                if name in given:
                    column[position] = given[name]
            columns[f"param_{name}"] = column
        seconds = np.array([_fit_seconds(trial) for trial in trials]).reshape(-1, 2)
        order = [
            (not trial.is_full, -mean) if trial.has_loss else (True, np.inf)
            for trial, mean in zip(trials, means, strict=True)
        ]
        ordered = sorted(order)
        return {
            "trial": np.array([trial.number for trial in trials]),
            "mean_fit_time": seconds[:, 0],
            "std_fit_time": seconds[:, 1],
            "params": params,
            **columns,
            "fidelity": [plan.whole.part(trial.query) for trial in trials],
            **{f"split{fold}_test_score": scores[:, fold] for fold in range(n_folds)},
            "mean_test_score": means,
            "std_test_score": pd.DataFrame(scores).std(axis=1, ddof=0).to_numpy(),
            "rank_test_score": np.array([1 + bisect_left(ordered, o) for o in order], np.int32),
        }


def _fit_seconds(trial: TrialView) -> tuple[float, float]:
    """Return the mean and standard deviation, over the folds, of the total time of all steps."""
    of_folds: dict[int, float] = {}
    for step in trial.steps:
        of_folds[step["fold"]] = of_folds.get(step["fold"], 0.0) + step["seconds"]
    seconds = list(of_folds.values())
    return (float(np.mean(seconds)), float(np.std(seconds))) if seconds else (np.nan, np.nan)
