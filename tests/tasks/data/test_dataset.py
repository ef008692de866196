"""Data sets in the store: loaded as they were imported, by this version or an earlier one."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from inputs import write_meds, write_table

from prefect_tune.storage import ArtifactStore, StoreAddress
from prefect_tune.storage.key import dataset_record
from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.data.dataset import Dataset, import_dataset, load_dataset
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source


def read(kind: str, folder: Path) -> Dataset:
    if kind == "events":
        return read_source(Source(str(write_meds(folder / "meds")), labels="labels/task"))
    return read_source(Source(str(write_table(folder)), target="target", group="count"))


def check_same(loaded: Dataset, dataset: Dataset) -> None:
    assert loaded.digest() == dataset.digest()
    assert (loaded.kind, loaded.classes) == (dataset.kind, dataset.classes)
    assert (loaded.y == dataset.y).all()
    rows = np.array([3, 1, 1])
    if isinstance(dataset.X, pd.DataFrame):
        pd.testing.assert_frame_equal(loaded.X, dataset.X)
        pd.testing.assert_frame_equal(loaded.rows(rows), dataset.rows(rows))
        assert (loaded.groups == dataset.groups).all()
        return
    for name, frame in dataset.X.frames().items():
        pd.testing.assert_frame_equal(loaded.X.frames()[name], frame)
    for bound in ("start", "stop"):
        assert (getattr(loaded.X, bound) == getattr(dataset.X, bound)).all()
    assert (loaded.rows(rows).start == dataset.rows(rows).start).all()


def put_as_parquet(dataset: Dataset, store: ArtifactStore) -> str:
    """Keep a data set as versions did that had no Arrow files and no bounds of events."""
    about = {"name": dataset.name, "kind": dataset.kind, "classes": list(dataset.classes)}
    parts = {"about": about, "y": canonical(dataset.y)}
    if dataset.groups is not None:
        parts["groups"] = canonical(dataset.groups)
    frames = {"X": dataset.X} if isinstance(dataset.X, pd.DataFrame) else dataset.X.frames()
    parts |= {name: canonical(frame) for name, frame in frames.items()}
    digest = dataset.digest()
    store.records.put(dataset_record(digest), parts)
    return digest


@pytest.mark.parametrize("kind", ["table", "events"])
def test_a_data_set_of_an_earlier_version_is_read_and_mapped_once_imported_again(
    tmp_path, kind
) -> None:
    dataset, address = read(kind, tmp_path), StoreAddress(str(tmp_path / "store"))
    store = ArtifactStore(address)
    digest = put_as_parquet(dataset, store)
    record = dataset_record(digest)
    assert not store.records.is_mappable(record)
    check_same(load_dataset(store, digest), dataset)
    assert import_dataset(load_dataset(store, digest), store) == digest
    assert store.records.is_mappable(record)
    later = ArtifactStore(address)
    check_same(load_dataset(later, digest), dataset)
    for each in (store, later):
        each.close()
