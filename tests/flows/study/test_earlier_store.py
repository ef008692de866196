"""Stores made by the versions before, schemas 5 and 6, with a study of three random trials.

`tests/stores/store_of_schema_5.zip` has its index, data, split and predictions, without cached
artifacts and the model.
"""

from pathlib import Path
from shutil import copy, unpack_archive

import pandas as pd
import pytest
from finished.searched import searched

from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress
from prefect_tune.storage.series import SeriesLog
from prefect_tune.tasks.data.columns import like_training
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.reading import read_source

STORES = Path(__file__).parents[2] / "stores"


@pytest.fixture(params=[5, 6])
def folder(request, tmp_path, monkeypatch) -> Path:
    """The folder in which the study was run."""
    unpack_archive(STORES / f"store_of_schema_{request.param}.zip", tmp_path)
    copy(STORES / "patients.csv", tmp_path / "t.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_study_of_an_earlier_schema_is_read_and_resumed(folder) -> None:
    store = ArtifactStore(StoreAddress(str(folder / "store")))
    stored = Ledger(store.database).study("before")
    assert stored is not None
    _plan, view = StudyPlan.from_stored(stored), read_study(store, "before")
    assert (view.n_trials, view.state) == (3, "complete")
    assert SeriesLog(store.database).names() == []
    before = [trial.body for trial in Ledger(store.database).events("before")]
    store.close()
    again = searched(
        folder, data="t.csv", target="target", study="before", space="small", trials=2, fit=False
    )
    assert [trial.body for trial in Ledger(again.store.database).events("before")][:6] == before
    assert read_study(again.store, "before").n_trials == 5
    again.store.close()


def test_rows_of_data_of_an_earlier_schema_are_read_as_its_columns_were(folder) -> None:
    store = ArtifactStore(StoreAddress(str(folder / "store")))
    plan = StudyPlan.from_stored(Ledger(store.database).study("before"))
    dataset = load_dataset(store, plan.problem.dataset)
    assert dataset.row_reader is not None
    kinds = {column.name: column.kind for column in dataset.row_reader.columns}
    assert kinds == {**dict.fromkeys(("a", "b", "c", "count", "truth", "dose"), "number"),
                     "colour": "category", "region": "category"}  # fmt: skip
    new = pd.read_csv(folder / "t.csv")
    pd.testing.assert_frame_equal(like_training(new, dataset.row_reader), dataset.X)
    assert read_source(plan.source).digest() == plan.problem.dataset
    store.close()
