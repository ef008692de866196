"""An algorithm is one declaration: nothing else knows of the one declared here."""

from typing import Any

import numpy as np
import pytest
from ConfigSpace import ConfigurationSpace, Float

from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.configuration import Choice
from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.tasks.fitting.fitting import FoldData, fit_model
from prefect_tune.tasks.fitting.memory_estimate import MatrixSummary, MemoryEstimate, WillNotFit
from prefect_tune.tasks.fitting.recipe import recipe


def neighbours(value: float, data: MatrixSummary) -> int:
    return max(1, round(value * data.rows))


def all_distances(arguments: dict[str, Any], data: MatrixSummary) -> MemoryEstimate:
    return MemoryEstimate(f"{arguments['n_neighbors']} neighbours", 8.0 * data.rows**2)


TOY = Algorithm(
    id="toy",
    estimator="sklearn.neighbors.KNeighborsClassifier",
    hyperparameters=ConfigurationSpace(space=[Float("n_neighbors", (0.0, 1.0), default=0.1)]),
    transforms={"n_neighbors": neighbours},
    memory=all_distances,
)
X = np.random.default_rng(0).normal(size=(30, 2))
Y = np.array(["a", "b"] * 15)


def toy_recipe(share: float):
    choice = Choice("toy", (("n_neighbors", share),))
    return recipe(TOY, choice, MatrixSummary.of(X), balanced=False)


def test_its_effective_values_reach_estimator_and_keys() -> None:
    made, predictions = fit_model(toy_recipe(0.1), 0, FoldData(X, X, Y, np.unique(Y)))
    assert made.parts["estimator"].n_neighbors == 3
    assert len(predictions.label) == 30
    assert toy_recipe(0.1).to_json(0) == toy_recipe(0.101).to_json(0) != toy_recipe(0.2).to_json(0)


def test_its_memory_is_estimated_before_it_starts() -> None:
    data = FoldData(X, X, Y, np.unique(Y), memory_limit_bytes=7000)
    with pytest.raises(WillNotFit, match="3 neighbours takes at least"):
        fit_model(toy_recipe(0.1), 0, data)


def test_its_description_names_its_rules_and_not_its_memory() -> None:
    described = TOY.describe()
    assert described["transforms"]["n_neighbors"].endswith(".neighbours")
    assert "memory" not in described


def test_a_users_algorithm_has_the_estimate_of_the_catalogue_for_its_estimator() -> None:
    users = Algorithm(id="mine", estimator="sklearn.decomposition.KernelPCA")
    rule = recipe(users, Choice("mine"), MatrixSummary.of(X), balanced=False).memory
    assert rule is not None
    assert rule({}, MatrixSummary.of(X)).size_bytes == 2 * 8 * 30**2


def test_a_rule_of_memory_that_does_not_exist_is_answered_with_the_nearest() -> None:
    wrong = Algorithm(id="mine", estimator="sklearn.decomposition.PCA", memory="pcs")
    with pytest.raises(UnknownName, match="Did you mean 'pca'"):
        recipe(wrong, Choice("mine"), MatrixSummary.of(X), balanced=False)
