"""Ids of records: stores on disk have these paths."""

from prefect_tune.storage.key import (
    dataset_record,
    model_record,
    predictions_record,
    quantity_record,
    split_record,
)


def test_ids_are_those_of_stores_on_disk():
    key, digest = "ab" * 32, "0123456789abcdef" * 4
    assert dataset_record(digest) == f"data/{digest}"
    assert split_record(digest) == f"splits/{digest}"
    assert predictions_record(key) == f"predictions/ab/{key}"
    assert quantity_record(key, digest) == f"quantities/ab/{key}/0123456789abcdef"
    assert model_record("one") == "models/one"
