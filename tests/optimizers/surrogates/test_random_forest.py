import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestRegressor

from prefect_tune.optimizers.surrogates.random_forest import RandomForest


def fitted(
    X: NDArray[np.float64],
    y: NDArray[np.float64],
    n_trees: int = 10,
    *,
    min_samples_split: int = 2,
    max_features: float = 1.0,
    seed: int = 0,
) -> RandomForest:
    return RandomForest.fit(
        X,
        y,
        n_trees=n_trees,
        min_samples_split=min_samples_split,
        max_features=max_features,
        seed=seed,
    )


def test_the_mean_is_that_of_the_trees_and_the_variance_that_of_their_leaves() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.random((80, 5)), rng.random(80)
    forest = RandomForestRegressor(10, min_samples_split=20, random_state=3).fit(X, y)
    mean, deviation = RandomForest(forest).predict(X)
    assert mean == pytest.approx(forest.predict(X))
    for row in range(5):
        means, variances = [], []
        for tree, drawn in zip(forest.estimators_, forest.estimators_samples_, strict=True):
            inside = tree.apply(X[drawn]) == tree.apply(X[[row]])
            means.append(y[drawn][inside].mean())
            variances.append(y[drawn][inside].var())
        assert deviation[row] ** 2 == pytest.approx(np.var(means) + np.mean(variances))


def test_equal_losses_leave_a_positive_deviation() -> None:
    _, deviation = fitted(np.zeros((4, 2)), np.ones(4), n_trees=3).predict(np.zeros((2, 2)))
    assert deviation == pytest.approx(1e-5)


def test_a_node_of_fewer_rows_than_asked_for_is_not_split() -> None:
    X, y = np.arange(8.0)[:, None], np.arange(8.0)
    whole = fitted(X, y, min_samples_split=9).predict(X)[0]
    assert np.ptp(whole) == 0
    assert np.ptp(fitted(X, y, min_samples_split=3).predict(X)[0]) > 3


def test_splits_are_chosen_among_a_share_of_the_columns() -> None:
    """Of ten columns one decides: it is always split first where all are looked at."""
    X = np.random.default_rng(0).random((40, 10))
    y = 1.0 * (X[:, 0] > 0.5)

    def n_split_first(max_features: float) -> int:
        forest = fitted(X, y, 20, max_features=max_features)
        return sum(int(tree.feature[0]) == 0 for tree in forest._trees)

    assert n_split_first(1.0) == 20
    assert 0 < n_split_first(0.3) < 15


def test_trees_are_as_many_as_asked_for_of_other_rows_and_of_the_seed() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.random((30, 2)), rng.random(30)
    forest = fitted(X, y, 7)
    assert len(forest._trees) == 7
    assert len({float(tree.value[0, 0, 0]) for tree in forest._trees}) == 7
    at = rng.random((5, 2))
    assert np.array_equal(forest.predict(at)[0], fitted(X, y, 7).predict(at)[0])
    assert not np.array_equal(forest.predict(at)[0], fitted(X, y, 7, seed=1).predict(at)[0])
