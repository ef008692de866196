"""Descriptions and ancestors of codes: read with the events and stored with the data set."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inputs import BIG, omop_tables, stored, write_meds, write_omop, written

from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.keys import dataset_record
from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset, import_dataset, load_dataset
from prefect_tune.tasks.data.reading import read_features, read_source
from prefect_tune.tasks.data.source import Source

MEDS_CODES = {
    "A": ("first", ["GROUP//1", "A"]),
    "B": (None, None),
    "GROUP//1": ("a group", ["TOP", "OTHER//7"]),
    "UNRELATED": ("of other data", ["TOP"]),
}
CONCEPTS = [
    (7, "Condition", "a condition"),
    (70, "Condition", "conditions"),
    (71, "Metadata", "all"),
    (8507, "Gender", "male"),
    (99, "Drug", "of other data"),
]
ANCESTORS = [(7, 7), (70, 7), (71, 7), (71, 70), (71, 99), (70, 70)]


def meds(folder: Path, codes: pa.Table | dict | None = None) -> Dataset:
    if not folder.exists():
        (write_meds(folder) / "metadata").mkdir()
    if isinstance(codes, dict):
        texts, parents = zip(*codes.values(), strict=True)
        columns = {"code": list(codes), "description": texts, "parent_codes": parents}
        text, lists = pa.string(), pa.list_(pa.string())
        kinds = pa.schema([("code", text), ("description", text), ("parent_codes", lists)])
        codes = pa.table(columns, schema=kinds)
    if codes is not None:
        pq.write_table(codes, folder / "metadata" / "codes.parquet")
    return read_source(Source(str(folder), labels="labels/task"))


def omop(folder: Path, *, has_concepts: bool = True) -> Dataset:
    """Write `omop_tables` with conditions of concept 7 and observation 7 with the answer 8507."""
    write_omop(folder)
    condition = omop_tables()["condition_occurrence"].head(1).assign(condition_concept_id=7)
    other = pd.DataFrame({"person_id": [BIG + 1], "observation_date": ["2020-01-01"]})
    other = other.assign(observation_concept_id=7, value_as_concept_id=8507)
    concepts = pd.DataFrame(CONCEPTS, columns=["concept_id", "domain_id", "concept_name"])
    pairs = pd.DataFrame(ANCESTORS, columns=["ancestor_concept_id", "descendant_concept_id"])
    written(condition, folder / "condition_occurrence.csv")
    written(other, folder / "observation.csv")
    written(pairs, folder / "concept_ancestor.csv")
    if has_concepts:
        written(concepts, folder / "concept.csv")
    return read_source(Source(str(folder), labels="labels.csv"))


def test_meds_codes_have_descriptions_and_all_ancestors(tmp_path) -> None:
    dataset = meds(tmp_path / "meds", MEDS_CODES)
    X = dataset.X
    assert X.code_table["code"].tolist() == sorted({*X.codes, "GROUP//1", "OTHER//7", "TOP"})
    assert X.descriptions() == {"A": "first", "GROUP//1": "a group"}
    parents = X.parents()
    assert parents["A"] == ("GROUP//1", "OTHER//7", "TOP")
    assert parents["GROUP//1"] == ("OTHER//7", "TOP")
    assert parents["B"] == parents["TOP"] == ()
    loaded = stored(dataset, tmp_path)
    for other in (loaded.X, loaded.rows(np.array([2, 0]))):
        pd.testing.assert_frame_equal(other.code_table, X.code_table)
    assert loaded.digest() == dataset.digest()
    for frame in X.frames().values():
        pd.testing.assert_frame_equal(canonical(frame), frame)


def test_omop_codes_have_descriptions_and_ancestors_by_domain(tmp_path) -> None:
    X = omop(tmp_path / "cdm").X
    parents, texts = X.parents(), X.descriptions()
    assert parents["CONDITION//7"] == ("CONCEPT//71", "CONDITION//70")
    assert parents["CONDITION//70"] == ("CONCEPT//71",)
    answered = "OBSERVATION//7//8507"
    assert parents[answered] == ("CONCEPT//71", "CONDITION//70", "OBSERVATION//7")
    assert texts[answered] == "a condition: male"
    assert (texts["GENDER//8507"], texts["CONCEPT//71"]) == ("male", "all")
    assert not any("99" in code for code in texts)
    X = omop(tmp_path / "without", has_concepts=False).X
    assert X.parents()["CONDITION//7"] == ("CONCEPT//70", "CONCEPT//71")
    assert not X.descriptions()


def test_cycle_of_parent_codes_is_refused_only_among_codes_in_the_data(tmp_path) -> None:
    loop = {"A": ("", ["X"]), "X": ("", ["C"]), "C": ("", ["A", "D"]), "D": ("", [])}
    with pytest.raises(BadInput, match="has a loop"):
        meds(tmp_path / "meds", loop)
    assert meds(tmp_path / "meds", {"X": ("", ["Y"]), "Y": ("", ["X"])}).X.code_table is None


@pytest.mark.parametrize(
    "columns", [{"description": ["first"]}, {"code": ["A"], "parent_codes": ["B"]}]
)
def test_code_table_without_the_expected_columns_is_ignored_with_a_note(tmp_path, columns) -> None:
    dataset = meds(tmp_path / "meds", pa.table(columns))
    assert dataset.X.code_table is None
    assert any("codes.parquet" in note for note in dataset.notes)


def test_ancestors_are_part_of_the_digest_and_descriptions_are_not(tmp_path) -> None:
    plain = meds(tmp_path / "meds").digest()
    described = meds(tmp_path / "meds", {"A": ("first", None)})
    assert described.digest() == plain
    above = [meds(tmp_path / "meds", {"A": ("first", [name])}).digest() for name in ("B", "C")]
    assert len({plain, *above}) == 3


def test_new_or_corrected_descriptions_replace_stored_descriptions(tmp_path) -> None:
    store = ArtifactStore(StoreAddress(str(tmp_path / "store")))
    plain = meds(tmp_path / "meds")
    digest = import_dataset(plain, store)
    described = meds(tmp_path / "meds", {"A": ("first", None)})
    assert "codes" not in store.records.parts(dataset_record(digest))
    assert import_dataset(described, store) == digest
    assert load_dataset(store, digest).X.descriptions() == {"A": "first"}
    parts = store.records.parts(dataset_record(digest))
    for same in (described, plain):
        assert import_dataset(same, store) == digest
        assert store.records.parts(dataset_record(digest)) == parts
    corrected = meds(tmp_path / "meds", {"A": ("corrected", None)})
    assert import_dataset(corrected, store) == digest
    assert load_dataset(store, digest).X.descriptions() == {"A": "corrected"}
    store.close()


def test_prediction_uses_the_code_table_of_the_new_data(tmp_path) -> None:
    training = meds(tmp_path / "meds", {"A": ("first", ["OLD"])})
    meds(tmp_path / "meds", {"A": ("first", ["NEW"])})
    X = read_features(str(tmp_path / "meds"), "labels/task", training)
    assert X.parents()["A"] == ("NEW",)
