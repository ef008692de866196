"""Ids of records, which are paths below `records/`: the one place that builds them.

Keys stand below their first two digits, so no folder holds all of them.
"""

__all__ = [
    "PREDICTIONS",
    "dataset_record",
    "model_record",
    "output_record",
    "predictions_record",
    "quantity_record",
    "split_record",
]


PREDICTIONS = "predictions/"
"""How the ids of held-out predictions begin."""


def dataset_record(digest: str) -> str:
    """Return the id of the record that holds a data set."""
    return f"data/{digest}"


def split_record(digest: str) -> str:
    """Return the id of the record that holds a split."""
    return f"splits/{digest}"


def predictions_record(key: str) -> str:
    """Return the id of the record that holds the held-out predictions of a model."""
    return f"{PREDICTIONS}{key[:2]}/{key}"


def quantity_record(key: str, quantity: str) -> str:
    """Return the id of the record that holds a quantity measured of a model.

    Args:
        key: Prefix key of the model.
        quantity: Digest of the quantity.
    """
    return f"quantities/{key[:2]}/{key}/{quantity[:16]}"


def model_record(study: str) -> str:
    """Return the id of the record that holds a study's final model."""
    return f"models/{study}"


def output_record(study: str, number: int) -> str:
    """Return the id of the record that holds what a trial printed."""
    return f"output/{study}/{number}"
