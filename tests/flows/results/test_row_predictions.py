"""A row has the same prediction in any file, by the command and by the exported model."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from finished.programs import run_without_prefect_tune
from finished.searched import searched
from row_forms import FORMS, FRAME

from prefect_tune import ArtifactStore, load_study
from prefect_tune.flows.results.exported import export
from prefect_tune.flows.results.model_card import card_facts
from prefect_tune.flows.results.predict import predict
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.final.export import estimator_classes

pytestmark = pytest.mark.slow
CLASSES = (0.5, 1.0, 1.5)
ROWS = 40


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Iterator[ArtifactStore]:
    """A study of a table with a column of each kind, whose model is an ensemble."""
    folder = tmp_path_factory.mktemp("alike")
    score = FRAME["number"].fillna(0).rank() + 100 * (FRAME["category"] == "a")
    thirds = pd.qcut(score, 3, labels=CLASSES).astype(float)
    FRAME.assign(y=thirds).to_parquet(folder / "t.parquet")
    given = {"data": str(folder / "t.parquet"), "target": "y", "trials": 4, "ensemble": 4}
    opened = searched(folder / "home", **given, space="small", seed=5).store
    yield opened
    opened.close()


def predicted(store: ArtifactStore, path: Path) -> pd.DataFrame:
    return predict(store, "s", str(path), None)


@pytest.mark.parametrize("form", FORMS)
def test_row_has_the_same_prediction_in_any_file(store, tmp_path, form) -> None:
    suffix, write = FORMS[form]

    def of(rows: list[int]) -> pd.DataFrame:
        path = tmp_path / f"new.{suffix}"
        path.write_bytes(write(FRAME.iloc[rows].reset_index(drop=True)))
        return predicted(store, path)

    rows = np.random.default_rng(1).permutation(ROWS).tolist()
    together = of(rows)
    FRAME.head(ROWS).to_parquet(tmp_path / "all.parquet")
    whole = predicted(store, tmp_path / "all.parquet").iloc[rows].reset_index(drop=True)
    pd.testing.assert_frame_equal(together, whole, check_exact=True)
    for part in (rows[:1], rows[1:2], rows[2:7], rows[7:8]):
        start = rows.index(part[0])
        expected = together.iloc[start : start + len(part)].reset_index(drop=True)
        pd.testing.assert_frame_equal(of(part), expected)


def test_model_predicts_dataframes_as_the_command_predicts_files(store, tmp_path) -> None:
    FRAME.head(ROWS).to_csv(tmp_path / "new.csv", index=False)
    expected = predicted(store, tmp_path / "new.csv")
    models = (load_study("s", store.address.url).model(), export(store, "s", "pickle").model)
    for model in models:
        for frame in (FRAME.head(ROWS), FRAME.head(ROWS).astype(object)):
            assert model.predict(frame).tolist() == expected["prediction"].tolist()
    assert set(models[0].predict(FRAME)) == set(CLASSES)
    assert list(models[0].classes_) == list(CLASSES)
    probabilities = expected[[f"probability_{label}" for label in CLASSES]]
    np.testing.assert_array_equal(models[0].predict_proba(FRAME.head(ROWS)), probabilities)


READ = """
import sys
import pandas as pd
model = pd.read_pickle(sys.argv[1])
print(*model.predict(pd.read_csv(sys.argv[2])))
"""


def test_exported_model_reads_pandas_input_without_prefect_tune(store, tmp_path) -> None:
    exported = export(store, "s", "pickle")
    assert "RowReader" in exported.own_classes
    assert "pyarrow" not in exported.packages
    script, model, new = (tmp_path / name for name in ("read.py", "model.pkl", "new.csv"))
    script.write_text(READ)
    model.write_bytes(exported.data)
    FRAME.head(ROWS).to_csv(new, index=False)
    found = run_without_prefect_tune(script, model, new)
    assert list(map(float, found.split())) == predicted(store, new)["prediction"].tolist()
    columns = card_facts(store, exported).columns["column"].tolist()
    assert columns == list(FRAME)


def test_model_of_matrices_contains_no_row_reader(store) -> None:
    exported = export(store, "s", "pickle", of_matrix=True)
    model = load_study("s", store.address.url).model(matrix=True)
    classes = {kind.__name__ for kind in estimator_classes(model)}
    assert "RowReader" not in {*exported.own_classes, *classes}
    assert classes >= set(exported.own_classes)
    assert "NamedClasses" in exported.own_classes  # of 0.5, 1.0, 1.5
    columns = set(card_facts(store, exported).columns["column"])
    assert columns > {"moment.days", "note.words"}


def test_unreadable_rows_are_skipped_on_request(store, tmp_path, caplog) -> None:
    frame = FRAME.head(ROWS).astype(object)
    FRAME.head(ROWS).to_csv(tmp_path / "whole.csv", index=False)
    frame.loc[3, "day"] = "30.02.2024"
    frame.to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(BadInput, check=lambda e: "--skip-bad-rows" in e.remedy) as refused:
        predicted(store, tmp_path / "new.csv")
    assert "30.02.2024" in refused.value.reason
    found = predict(store, "s", str(tmp_path / "new.csv"), None, skip_bad_rows=True)
    assert "data row 4" in caplog.text
    assert found.isna().any(axis=1).tolist() == [row == 3 for row in range(ROWS)]
    expected = predicted(store, tmp_path / "whole.csv").drop(index=3)
    pd.testing.assert_frame_equal(found.drop(index=3), expected, check_dtype=False)
