"""The loss of predictions of test rows, one for all tools."""

from typing import Any

import numpy as np

__all__ = ["test_loss"]


def test_loss(kind: str, truth: Any, predictions: Any) -> float:
    """Loss of predictions of test rows.

    Args:
        kind: `classes`: the error in percent; `numbers`: 1 - R2, inf for what is not finite.
        truth: What the rows have, shape (n,).
        predictions: For the same rows, shape (n,).

    Raises:
        ValueError: If these are not as many.
    """
    truth, predictions = np.asarray(truth), np.asarray(predictions).ravel()
    if len(truth) != len(predictions):
        raise ValueError(f"{len(predictions)} predictions of {len(truth)} test rows")
    if kind == "classes":
        return float(100 * np.mean(truth.astype(str) != predictions.astype(str)))
    y, predicted = truth.astype(np.float64), predictions.astype(np.float64)
    if not np.isfinite(predicted).all():
        return float("inf")
    return float(np.sum((y - predicted) ** 2) / np.sum((y - y.mean()) ** 2))
