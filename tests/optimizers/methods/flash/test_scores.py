"""FLASH's scores of paths: improvement per cost, by linear models."""

from typing import Any

import numpy as np
import pytest
from flash_worlds import TOY, counted_space, one_hot_paths
from worlds import evaluation

from prefect_tune.optimizers import History, Objective, Query, Trial
from prefect_tune.optimizers.acquisitions.expected_improvement import log_expected_improvement
from prefect_tune.optimizers.methods.flash.options import FlashOptions
from prefect_tune.optimizers.methods.flash.path_models import PathModels
from prefect_tune.optimizers.methods.flash.scores import PathScores, ranked
from prefect_tune.optimizers.space.configuration import default_configuration

SEEN = [5, 0, 1, 2]
LOSSES = [30.0, 22.0, 18.0, 26.0]
SECONDS = [20.0, 5.0, 60.0, 8.0]


def toy_history(seconds: list[float] = SECONDS, pending: tuple[int, ...] = ()) -> History:
    """The worked example of two steps of two and three algorithms."""
    space = counted_space(TOY)
    paths, history = list(space.paths()), History()
    for number, (i, loss, cost) in enumerate(zip(SEEN, LOSSES, seconds, strict=True)):
        query = Query(default_configuration(space, paths[i]))
        history.record(Trial(number, query).started().completed(evaluation(loss, cost)))
    for number, i in enumerate(pending, len(SEEN)):
        history.record(Trial(number, Query(default_configuration(space, paths[i]))))
    return history


def scores_of(**options: Any) -> PathScores:
    given = FlashOptions(**options).resolved()
    return PathModels(counted_space(TOY), 0, Objective(), given, {}).scores


def test_the_papers_models_are_those_of_equation_one_without_an_intercept() -> None:
    paths, losses = one_hot_paths(TOY), np.array(LOSSES)
    seen, inverse = paths[SEEN], np.linalg.inv(paths[SEEN].T @ paths[SEEN] + np.eye(5))
    beta = inverse @ seen.T @ losses
    deviation = np.sqrt(
        np.var(seen @ beta - losses) * (1 + np.einsum("ij,jk,ik->i", paths, inverse, paths))
    )
    log_seconds = paths @ (inverse @ seen.T @ np.log(SECONDS))
    expected = log_expected_improvement(paths @ beta, deviation, 18.0) - np.log(log_seconds)
    scores = scores_of(variant="paper").log_eips_of_many_runs(toy_history())
    assert scores == pytest.approx(expected)
    assert ranked(scores, None) == [3, 4, 0, 1, 5, 2]
    phase_two = scores_of(variant="paper").log_eips(toy_history())
    assert phase_two == pytest.approx(
        log_expected_improvement(paths @ beta, deviation, 18.0, 100.0) - np.log(log_seconds)
    )


def test_with_an_intercept_they_are_those_of_the_authors_code() -> None:
    scores = scores_of(variant="paper", intercept=True).log_eips_of_many_runs(toy_history())
    assert np.exp(scores) == pytest.approx(
        [0.003328, 0.030007, 0.000010, 0.000052, 0.000940, 2e-9], abs=5e-7
    )
