"""What members contribute, and what is predicted of it."""

import numpy as np

from prefect_tune.tasks.ensembling.held_out import blend, shares
from prefect_tune.tasks.objective.metric import Predictions


def test_models_without_probabilities_vote() -> None:
    label = np.array([0, 1, 1], dtype=np.int32)
    votes = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    decision = np.array([[1.5, -1.5], [-0.2, 0.2], [-3.0, 3.0]])
    assert (shares(Predictions(label), 2) == votes).all()
    assert (shares(Predictions(label, decision), 2) == votes).all()
    chances = np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7]])
    assert (shares(Predictions(label, chances), 2) == chances).all()
    assert (blend(chances, 2).label == label).all()


def test_numbers_are_blended_as_they_are() -> None:
    numbers = Predictions(np.array([1.0, 2.0]))
    assert blend(shares(numbers, 0), 0).label.tolist() == [1.0, 2.0]


def test_the_vote_of_the_sheet() -> None:
    """Predictions of three models with weights 1/6, 2/3 and 1/6 (the sheet, 5.3)."""
    labels, weights = [[0, 1, 1], [1, 1, 0], [1, 0, 1]], [1 / 6, 2 / 3, 1 / 6]
    votes = [shares(Predictions(np.array(label)), 2) for label in labels]
    mean = np.average(votes, axis=0, weights=weights)
    np.testing.assert_allclose(mean[:, 1], [0.8333, 0.8333, 0.3333], atol=1e-4)
    assert blend(mean, 2).label.tolist() == [1, 1, 0]


def test_of_classes_with_equal_weight_the_lowest_is_predicted() -> None:
    mean = np.array([[0.3, 0.1 + 0.2, 0.0], [0.2, 0.3, 0.1 + 0.2]])
    assert (mean.argmax(axis=1) == [1, 2]).all()  # what plain arithmetic would say
    assert blend(mean, 3).label.tolist() == [0, 1]
