"""Data sets in the store are loaded as they were imported."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from inputs import write_meds, write_table

from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
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


@pytest.mark.parametrize("kind", ["table", "events"])
def test_a_data_set_is_loaded_as_it_was_imported(tmp_path, kind) -> None:
    dataset, store = read(kind, tmp_path), ArtifactStore(StoreAddress(str(tmp_path / "store")))
    check_same(load_dataset(store, import_dataset(dataset, store)), dataset)
    store.close()
