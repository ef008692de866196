"""How good predictions are part by part: by class, or by quarter of the numbers predicted."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefect_tune.tasks.objective.predictions import Predictions

__all__ = ["by_class", "by_quarter"]

_PARTS = 4


def by_class(
    y: NDArray[Any], predictions: Predictions, classes: Sequence[Any]
) -> list[dict[str, Any]]:
    """Return rows, recall, error and precision of each class, as JSON values.

    Recall and error are shares of the rows of the class, in percent; precision is the share of what
    is predicted as it that is of it. None where that is a share of nothing.

    Args:
        y: Positions of the true classes, shape (n,).
        predictions: For the same rows.
        classes: All classes as the user wrote them.

    >>> found = by_class(np.array([0, 0, 1]), Predictions(np.array([0, 1, 1])), ("no", "yes"))
    >>> found[0]
    {'class': 'no', 'rows': 2, 'recall': 50.0, 'error': 50.0, 'precision': 100.0}
    """
    rows = []
    for position, label in enumerate(classes):
        true, said = y == position, predictions.label == position
        recall = _percent((true & said).sum(), true.sum())
        rows.append(
            {
                "class": label,
                "rows": int(true.sum()),
                "recall": recall,
                "error": None if recall is None else 100 - recall,
                "precision": _percent((true & said).sum(), said.sum()),
            }
        )
    return rows


def by_quarter(y: NDArray[Any], predictions: Predictions) -> list[dict[str, Any]]:
    """Return range, rows and errors of each quarter of the true numbers, the smallest first.

    A mean error above 0 says that numbers of that quarter are predicted too large.

    Args:
        y: True numbers, shape (n,).
        predictions: For the same rows.

    >>> found = by_quarter(np.arange(8.0), Predictions(np.full(8, 3.0)))
    >>> found[0]
    {'from': 0.0, 'to': 1.0, 'rows': 2, 'mean_absolute_error': 2.5, 'mean_error': 2.5}
    """
    quarters = np.array_split(np.argsort(y, kind="stable"), _PARTS)
    return [
        {
            "from": float(y[rows].min()),
            "to": float(y[rows].max()),
            "rows": len(rows),
            "mean_absolute_error": float(np.abs(predictions.label[rows] - y[rows]).mean()),
            "mean_error": float((predictions.label[rows] - y[rows]).mean()),
        }
        for rows in quarters
        if len(rows)
    ]


def _percent(part: np.intp, whole: np.intp) -> float | None:
    return float(100 * part / whole) if whole else None
