"""Random-forest regression with a variance, the surrogate of SMAC (Hutter et al. 2011)."""

from typing import Any, Self

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from prefect_tune.optimizers.space.unit_interval import Array


class RandomForest:
    """A fitted forest, made by `fit`."""

    def __init__(self, forest: RandomForestRegressor) -> None:
        self._trees = [tree.tree_ for tree in forest.estimators_]

    @classmethod
    def fit(cls, X: Array, y: Array, *, n_trees: int, seed: int, **options: Any) -> Self:
        """Fit to encoded configurations, shape (n, d), and targets; options are scikit-learn's."""
        return cls(RandomForestRegressor(n_trees, random_state=seed, **options).fit(X, y))

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Return means and standard deviations, shape (n,) each.

        By the law of total variance over trees, the variance is the mean of the variances in the
        leaves plus the variance of their means (Hutter et al. 2014, section 4.3.2), floored so that
        EI exists.
        """
        single = np.ascontiguousarray(X, dtype=np.float32)
        leaves = [tree.apply(single) for tree in self._trees]
        pairs = list(zip(self._trees, leaves, strict=True))
        means = np.array([tree.value[leaf, 0, 0] for tree, leaf in pairs])
        within = np.array([tree.impurity[leaf] for tree, leaf in pairs])
        variance = means.var(axis=0) + within.mean(axis=0)
        return means.mean(axis=0), np.sqrt(np.maximum(variance, 1e-10))
