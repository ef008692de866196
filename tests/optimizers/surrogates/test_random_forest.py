import numpy as np
import pytest

from prefect_tune.optimizers.surrogates.random_forest import RandomForest


def test_the_mean_is_that_of_the_trees_and_the_variance_that_of_their_leaves() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.random((80, 5)), rng.random(80)
    from sklearn.ensemble import RandomForestRegressor

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
    forest = RandomForest.fit(np.zeros((4, 2)), np.ones(4), n_trees=3, min_samples_split=2, seed=0)
    _, deviation = forest.predict(np.zeros((2, 2)))
    assert (deviation > 0).all()
