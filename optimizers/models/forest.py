"""Random-forest regression with predictive variances, as used by SMAC (Hutter et al. 2011)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from prefect_tune.optimizers.models.log_posterior import LEAST_VARIANCE
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.vectors import ROUNDING, Array
from prefect_tune.optimizers.trials.earlier import LEAST_FITTED, OlderTrials


class RandomForest:
    """A random forest, fitted on construction.

    Args:
        X: Encoded configurations, shape (n, d).
        y: Targets, shape (n,).
        n_trees: Number of trees.
        seed: Seed of the forest.
        weights: Weights of the observations, shape (n,); None for equal weights.
        options: Further arguments of scikit-learn's forest.
    """

    def __init__(
        self,
        X: Array,
        y: Array,
        *,
        n_trees: int,
        seed: int,
        weights: Array | None = None,
        **options: Any,
    ) -> None:
        forest = RandomForestRegressor(n_trees, random_state=seed, **options)
        self._unit = 1.0 if np.allclose(y, y[0], ROUNDING, 0) else float(np.ptp(y))
        forest.fit(X, y / self._unit, sample_weight=weights)
        self._trees = [tree.tree_ for tree in forest.estimators_]

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Return means and standard deviations, shape (n,) each.

        By the law of total variance, the variance is the mean of the leaves' variances plus the
        variance of the leaves' means (Hutter et al. 2014, section 4.3.2). The variance has a
        positive lower bound, relative to the range of the targets, so that expected improvement is
        defined.
        """
        single = np.ascontiguousarray(X, dtype=np.float32)
        leaves = [tree.apply(single) for tree in self._trees]
        pairs = list(zip(self._trees, leaves, strict=True))
        means = np.array([tree.value[leaf, 0, 0] for tree, leaf in pairs])
        within = np.array([tree.impurity[leaf] for tree, leaf in pairs])
        variance = means.var(axis=0) + within.mean(axis=0)
        deviation = np.sqrt(np.maximum(variance, LEAST_VARIANCE))
        return self._unit * means.mean(axis=0), self._unit * deviation


LossMean = Callable[[Array], Array]
"""Function from inputs, shape (n, d), to expected losses, shape (n,)."""

N_TREES = 50


class OlderMean:
    """The prior mean of the loss, fitted to the observations of earlier runs.

    `inputs` encodes configurations as an array, shape (n, d).
    """

    def __init__(self, inputs: Callable[[Sequence[Configuration]], Array]) -> None:
        self._inputs = inputs
        self._forest: RandomForest | None = None

    def given(self, older: OlderTrials) -> LossMean | None:
        """Return the mean m + w (f(x) - m); None with fewer than four older observations.

        f is a forest fitted to the older losses, m is their median, and w is the weight of the
        prior.
        """
        if len(older) < LEAST_FITTED:
            return None
        if self._forest is None:
            inputs = self._inputs(older.configurations)
            self._forest = RandomForest(inputs, older.raw, n_trees=N_TREES, seed=0)
        forest, transfer = self._forest, older.transfer
        level = float(np.median(older.losses))

        def mean(inputs: Array) -> Array:
            expected = transfer.mapped(forest.predict(inputs)[0])
            return level + transfer.weight * (expected - level)

        return mean
