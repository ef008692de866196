"""Random forests, each fitted to a bootstrap of the trials: their spread is what is not known."""

from typing import Self

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.surrogates.random_forest import RandomForest

__all__ = ["BaggedForests"]

_N_FORESTS = 12
_N_TREES = 8
_MIN_SPLIT = 3
"""As fANOVA's forests have it (Hutter et al. 2014)."""
_MAX_FEATURES = 0.5


class BaggedForests:
    """Forests and the out-of-bag R2 of them together; `fit` makes them.

    Args:
        forests: One for each bootstrap.
        r2: Share of the variance of the losses that is predicted for trials that were left out;
            1 is all, 0 or less is none.
    """

    def __init__(self, forests: list[RandomForest], r2: float) -> None:
        self._forests, self.r2 = forests, r2

    @classmethod
    def fit(cls, X: NDArray[np.float64], y: NDArray[np.float64], seed: int) -> Self:
        """Fit to encoded configurations, shape (n, d), and their losses, shape (n,)."""
        rng = np.random.default_rng(seed)
        forests, left_out = [], np.full((_N_FORESTS, len(y)), np.nan)
        for k in range(_N_FORESTS):
            drawn = rng.integers(len(y), size=len(y))
            forest = RandomForest.fit(
                X[drawn],
                y[drawn],
                n_trees=_N_TREES,
                min_samples_split=_MIN_SPLIT,
                max_features=_MAX_FEATURES,
                seed=int(rng.integers(2**31)),
            )
            out = np.setdiff1d(np.arange(len(y)), drawn)
            left_out[k, out] = forest.predict(X[out])[0]
            forests.append(forest)
        return cls(forests, _r2(y, left_out))

    def predict(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what each forest predicts of m configurations, shape (forests, m)."""
        return np.array([forest.predict(X)[0] for forest in self._forests])


def _r2(y: NDArray[np.float64], left_out: NDArray[np.float64]) -> float:
    """Return R2 of the mean of those predictions that had not seen the trial."""
    known = ~np.isnan(left_out).all(axis=0)
    predicted = np.nanmean(left_out[:, known], axis=0)
    spread = float(((y[known] - y[known].mean()) ** 2).sum())
    return 1 - float(((y[known] - predicted) ** 2).sum()) / spread if spread > 0 else 0.0
