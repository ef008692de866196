"""The fidelity of a query: whether it is the whole evaluation. Light, for those who only look."""

__all__ = ["ROWS_PER_CLASS", "is_full", "part_of"]

ROWS_PER_CLASS = 2
"""Rows of each class, or stratum of numbers, that a subset has at least."""


def is_full(subset: float, folds: int | None, epochs: int | None) -> bool:
    """Return whether a query takes all rows, all folds and all epochs.

    Args:
        subset: Share of the training rows.
        folds: How many of the folds; None for all.
        epochs: How many epochs; None for all.
    """
    return subset == 1.0 and folds is None and epochs is None


def part_of(whole: int | None, asked: int | None, what: str) -> int | None:
    """Return how many folds or epochs are asked for as queries say it: None for all of them.

    Args:
        whole: How many a full evaluation has; None when not known.
        asked: How many are asked for; None for all.
        what: What they are, for the message.

    Raises:
        ValueError: If more are asked for than there are.
    """
    if asked is not None and whole is not None and asked > whole:
        raise ValueError(f"{asked} {what} where a full evaluation has {whole}")
    return None if asked == whole else asked
