"""The fidelity of a query: whether it is the whole evaluation. Light, for those who only look."""

__all__ = ["is_full"]


def is_full(subset: float, folds: int | None, epochs: int | None) -> bool:
    """Return whether a query takes all rows, all folds and all epochs.

    Args:
        subset: Share of the training rows.
        folds: How many of the folds; None for all.
        epochs: How many epochs; None for all.
    """
    return subset == 1.0 and folds is None and epochs is None
