"""Bins of weighted rows for scikit-learn's histogram boosting, sorted once for each column.

scikit-learn 1.9 computes the 254 weighted percentiles of a column one by one, and sorts the column
for each: nine tenths of a weighted fit on 100,000 rows, by pull request 34248 of scikit-learn,
which mends it in later versions. Their function also computes all percentiles in one call, with
equal results.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, local
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BOOSTING = "sklearn.ensemble._hist_gradient_boosting."
_SLOW = "_weighted_percentile"
_ONE_AT_A_TIME = Lock()


@contextmanager
def quick_weighted_bins(estimator: Any) -> Iterator[None]:
    """Let histogram boosting find the bins of weighted rows quickly in the body.

    Args:
        estimator: The estimator to fit; others than histogram boosting are left alone.
    """
    if not type(estimator).__module__.startswith(_BOOSTING):
        yield
        return
    from sklearn.ensemble._hist_gradient_boosting import binning  # noqa: PLC0415 - slow to import

    if not hasattr(binning, _SLOW):
        yield
        return
    with _ONE_AT_A_TIME:
        original = getattr(binning, _SLOW)
        setattr(binning, _SLOW, _PercentilesOfColumns(original))
        try:
            yield
        finally:
            setattr(binning, _SLOW, original)


class _PercentilesOfColumns:
    """Answers for the percentiles of a column, asked one by one, from one call for all of them.

    Args:
        percentiles: The function of scikit-learn, which takes one percentile or many.
    """

    def __init__(self, percentiles: Callable[..., Any]) -> None:
        self._percentiles = percentiles
        self._last = local()  # columns are binned in several threads

    def __call__(
        self, column: NDArray[Any], weights: NDArray[Any], asked: float, **options: Any
    ) -> Any:
        """Return one percentile; callers ask for the lowest of a column first."""
        if np.ndim(asked):
            return self._percentiles(column, weights, asked, **options)
        if getattr(self._last, "column", None) is not column:
            bounds = np.linspace(0, 100, round(100 / asked) + 1)[1:-1]
            values = self._percentiles(column, weights, bounds, **options)
            self._last.column = column
            self._last.known = dict(zip(bounds.tolist(), values, strict=True))
        known = self._last.known.get(float(asked))
        return self._percentiles(column, weights, asked, **options) if known is None else known
