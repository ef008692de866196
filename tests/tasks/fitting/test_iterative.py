"""Which estimators train in epochs, what an epoch is, and why others have none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import SGDClassifier
from sklearn.neural_network import MLPClassifier

from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.fitting.iterative import (
    ITERATIVE,
    epoch_seed,
    iterative_algorithms,
    rounds_after,
    training_of,
    why_at_once,
)
from prefect_tune.tasks.fitting.recipe import Recipe, imported


@given(epochs=st.integers(1, 300), rounds=st.integers(1, 2000))
def test_rounds_grow_with_the_epochs_to_exactly_what_is_configured(epochs, rounds) -> None:
    counted = [rounds_after(epoch, epochs, rounds) for epoch in range(1, epochs + 1)]
    assert counted[-1] == rounds
    assert counted == sorted(counted)
    assert min(counted) >= 1
    assert all(abs(n - rounds * e / epochs) <= 0.5 or n == 1 for e, n in enumerate(counted, 1))


def test_seeds_of_epochs_differ_and_depend_on_seed_and_epoch_alone() -> None:
    seeds = [epoch_seed(seed, epoch) for seed in (0, 1) for epoch in range(1, 50)]
    assert len(set(seeds)) == len(seeds)
    assert epoch_seed(3, 7) == epoch_seed(3, 7) < 2**32


@pytest.mark.parametrize("path", ITERATIVE)
def test_an_estimator_of_the_table_with_a_seed_trains_in_epochs(path) -> None:
    assert why_at_once(imported(path)(random_state=0)) == ""
    assert "no seed" in why_at_once(imported(path)(random_state=None))


@pytest.mark.parametrize(
    ("path", "arguments", "reason"),
    [
        ("sklearn.neural_network.MLPClassifier", {"solver": "lbfgs"}, "makes no passes"),
        ("sklearn.linear_model.SGDClassifier", {"learning_rate": "adaptive"}, "would not adapt"),
        ("sklearn.linear_model.SGDRegressor", {"learning_rate": "adaptive"}, "would not adapt"),
        ("sklearn.ensemble.AdaBoostClassifier", {}, "does not train in epochs"),
        ("sklearn.linear_model.LogisticRegression", {}, "does not train in epochs"),
    ],
)
def test_a_configuration_without_epochs_is_fitted_at_once_for_a_reason(
    path, arguments, reason
) -> None:
    assert reason in why_at_once(imported(path)(random_state=0, **arguments))
    assert training_of(Recipe("m", path, arguments, "none", "", stochastic=True)) is None


def test_a_rate_that_a_network_adapts_itself_is_no_trap() -> None:
    assert why_at_once(MLPClassifier(learning_rate="adaptive", random_state=0)) == ""


class SGDClassifierOfAUser(SGDClassifier):  # type: ignore[misc]
    """It may do anything in `partial_fit`."""


def test_a_subclass_is_not_taken_for_its_parent() -> None:
    assert "does not train" in why_at_once(SGDClassifierOfAUser(random_state=0))


def test_an_estimator_that_cannot_be_made_is_left_to_its_fit() -> None:
    path, arguments = "sklearn.linear_model.SGDClassifier", {"no_such": 1}
    assert training_of(Recipe("m", path, arguments, "none", "", stochastic=True)) is None


@pytest.mark.parametrize(
    ("space", "algorithms"),
    [
        ("flash", {"extra_trees", "gradient_boosting", "random_forest", "sgd"}),
        ("regression", {"extra_trees", "gradient_boosting", "random_forest", "sgd"}),
        ("admm_large", {"extra_trees", "gradient_boosting", "mlp", "random_forest"}),
        ("svm", set()),
    ],
)
def test_the_catalogue_says_which_of_its_models_train_in_epochs(space, algorithms) -> None:
    found = iterative_algorithms(space_named(space).steps[-1], 0 if space == "regression" else 2)
    assert found - {"passive_aggressive"} == algorithms  # with scikit-learn 1.8 it does too
