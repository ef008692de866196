"""Tables in files and DataFrames: what is read, and what is refused with the way out."""

import gzip
from collections.abc import Callable
from datetime import date, time
from pathlib import Path

import fsspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inputs import codes_of, events, table, write_meds, write_table, written
from row_forms import FRAME
from sklearn.exceptions import DataConversionWarning

from prefect_tune.optimizers import UnknownName
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import import_dataset, load_dataset
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.files import NOTES, column_names, read_table
from prefect_tune.tasks.data.location import Location
from prefect_tune.tasks.data.reading import read_features, read_source
from prefect_tune.tasks.data.row_reader import as_pandas
from prefect_tune.tasks.data.schema import like_training
from prefect_tune.tasks.data.source import GAPS, Source
from prefect_tune.tasks.data.tables import (
    checked_frame,
    frame_dataset,
    frame_name,
    with_target,
)


def read(path, **options):
    return read_source(Source(str(path), **{"target": "target", **options}))


def text_column(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(name=[f"patient {i}" for i in range(len(frame))])


def as_arff(frame: pd.DataFrame, path: Path) -> None:
    kinds = {"colour": "{red,green,blue}", "target": "{no,yes}"}
    head = [f"@ATTRIBUTE {name} {kinds.get(name, 'NUMERIC')}" for name in frame]
    rows = frame.to_csv(index=False, header=False, na_rep="?")
    path.write_text("\n".join(["@RELATION t", *head, "@DATA", rows]))


def at_url(frame: pd.DataFrame, path: Path) -> None:
    with fsspec.open(f"memory://inputs/{path.name}", "wb") as file:
        frame.to_parquet(file, index=False)


def in_parts(frame: pd.DataFrame, path: Path) -> None:
    path.mkdir()
    frame[:70].to_parquet(path / "0.parquet", index=False)
    frame[70:].to_parquet(path / "1.parquet", index=False)


WRITERS: dict[str, Callable[[pd.DataFrame, Path], object]] = {
    "t.csv": lambda frame, path: frame.to_csv(path, index=False),
    "t.csv.gz": lambda frame, path: frame.to_csv(path, index=False),
    "t.parquet": lambda frame, path: frame.to_parquet(path, index=False),
    "t.arff": as_arff,
    "memory://inputs/t.parquet": at_url,
    "parts": in_parts,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_one_table_is_the_same_data_in_every_file_and_as_a_dataframe(tmp_path, name) -> None:
    path = tmp_path / name.rpartition("/")[2]
    WRITERS[name](table(), path)
    of_file = read(name if "://" in name else path)
    assert of_file.digest() == dataset(checked_frame(table())).digest()
    store = ArtifactStore(StoreAddress(str(tmp_path / "store")))
    digest = import_dataset(of_file, store)
    back = load_dataset(store, digest)
    pd.testing.assert_frame_equal(back.X, of_file.X)
    assert back.digest() == digest == import_dataset(of_file, store)
    store.close()
    if name not in ("parts", "t.arff"):
        assert column_names(Location.at(name if "://" in name else str(path))) == list(table())


def test_a_table_becomes_numbers_and_categories_with_gaps(tmp_path) -> None:
    dataset = read(write_table(tmp_path))
    assert dataset.kind == "table"
    assert dataset.classes == ("no", "yes")
    assert [str(t) for t in dataset.X.dtypes] == ["float64"] * 4 + ["category"]
    assert dataset.X["b"].isna().sum() == dataset.X["colour"].isna().sum() == 15
    assert dataset.groups is None


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f[::-1],
        lambda f: f[["b", "a", "c", "count", "colour", "target"]],
        lambda f: f.assign(a=f["a"] + 1e-12),
        lambda f: f.assign(target=f["target"].replace("yes", "YES")),
        lambda f: f.rename(columns={"a": "A"}),
        lambda f: f.assign(colour=f["colour"].fillna("none")),
    ],
)
def test_whatever_changes_the_table_changes_its_digest(tmp_path, change) -> None:
    original = read(written(table(), tmp_path / "a.csv")).digest()
    assert read(written(change(table()), tmp_path / "b.csv")).digest() != original


@pytest.mark.parametrize(
    ("target", "classes"),
    [
        ([1, 0] * 75, (0, 1)),
        ([True, False] * 75, (False, True)),
        ([2.0, 1.0] * 75, (1.0, 2.0)),
        (["b", "a"] * 75, ("a", "b")),
        ([0.5, 1.5] * 75, (0.5, 1.5)),
        ([-0.5, -1.5, 10.5] * 50, (-1.5, -0.5, 10.5)),
    ],
)
def test_classes_may_be_of_any_type(tmp_path, target, classes) -> None:
    dataset = read(written(table().assign(target=target), tmp_path / "a.csv"))
    assert dataset.classes == classes
    assert [type(c) for c in dataset.classes] == [type(c) for c in classes]


def test_a_category_is_the_same_with_and_without_gaps_in_its_file(tmp_path) -> None:
    frame = table().assign(site=[1, 2, 3] * 50)
    frame["site"] = frame["site"].where(frame.index > 0).astype("float")
    path = written(frame, tmp_path / "t.csv")
    training = read(path, categorical=("site",))
    assert list(training.X["site"].cat.categories) == ["1", "2", "3"]
    frame.to_parquet(tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet", categorical=("site",)).digest() == training.digest()
    for sites in ([1, 2, 3], [1, None, 3], ["1", "2", "new"]):
        new = written(frame.head(3).assign(site=sites), tmp_path / "new.csv")
        known = like_training(read_features(str(new), None, training), training.row_reader)["site"]
        expected = [str(s) for s in sites if s is not None]
        assert known.dropna().tolist() == expected


def test_an_unknown_category_is_warned_of(tmp_path, caplog) -> None:
    training = read(written(table(), tmp_path / "t.csv"))
    like_training(table(5).assign(colour="mauve"), training.row_reader)
    assert "colour: 5 of 5" in caplog.text


def test_a_meds_folder_is_seen_by_itself_and_cut_at_each_prediction_time(tmp_path) -> None:
    dataset = read(write_meds(tmp_path / "meds"), target=None, labels="labels/task")
    assert dataset.kind == "events"
    assert dataset.classes == (False, True)
    assert len(dataset) == 80
    assert dataset.groups is not None
    assert len(np.unique(dataset.groups)) == 40
    assert isinstance(dataset.X, EventRows)
    seen = [set(codes_of(dataset.X, row)) for row in range(80)]
    assert "LATER" not in set.union(*seen)
    assert seen[0] == {"SEX//1", "A", "B"}


def test_a_model_of_events_takes_new_events_with_times_to_predict(tmp_path) -> None:
    meds = write_meds(tmp_path / "meds")
    dataset = read(meds, target=None, labels="labels/task")
    times = tmp_path / "times.csv"
    times.write_text("subject_id,prediction_time\n100,2020-03-01\n101,2020-03-01\n")
    assert len(read_features(str(meds), str(times), dataset)) == 2
    with pytest.raises(BadInput, match="--labels FILE"):
        read_features(str(meds), None, dataset)


def without(column: str, n: int) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Leave out the first values of a column."""
    return lambda frame: frame.assign(**{column: frame[column].where(frame.index >= n)})


def assigned(**columns: object) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda frame: frame.assign(**columns)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (None, {"target": None}, "--target"),
        (None, {"target": "targt"}, "'targt'.*'target'"),
        (assigned(target=1), {}, "1 in all"),
        (without("target", 4), {}, "4 of 150"),
        (None, {"drop": ("colr",)}, "'colour'"),
        (None, {"categorical": ("aa",)}, "'aa'"),
        (lambda f: f[["target"]], {}, "no column left"),
        (lambda f: f.rename(columns={"a": "b"}), {}, "two columns"),
        (assigned(target=[0.5, np.inf] * 75), {}, "'target'.* infinite"),
        (None, {"drop": ("target",)}, "'target'.*--target.*--drop"),
        (None, {"group": "target"}, "'target'.*--target.*--group"),
        (None, {"group": "a", "drop": ("a",)}, "'a'.*--group.*--drop"),
        (lambda f: f.head(0), {}, "no rows"),
        (None, {"format": "tabel"}, "'table'"),
        (None, {"group": "patent"}, "'patient'"),
        (assigned(patient=None), {"group": "patient"}, "150 rows.* 'patient'"),
        (None, {"test": "nowhere.csv"}, r"nowhere\.csv"),
        (None, {"test": "test.csv", "group": "patient"}, "25 values"),
        (None, {"test": "bad.csv"}, r"row 1 .*bad\.csv .*'x' .*'a'"),
        (None, {"test": "less.csv"}, r"less\.csv .*'a'"),
        (None, {"test": "gaps.csv"}, r"3 of 50.*gaps\.csv"),
        (None, {"labels": "test.csv", "format": "table"}, "with events"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_with_the_way_out(
    tmp_path, monkeypatch, change, options, message
) -> None:
    monkeypatch.chdir(tmp_path)
    frame = table().assign(patient=np.arange(150) // 2)
    first = frame[:50]
    others = {"test": first, "bad": first.assign(a="x"), "less": first.drop(columns="a"),
              "gaps": without("target", 3)(first)}  # fmt: skip
    for name, other in others.items():
        written(other, tmp_path / f"{name}.csv")
    path = written(frame if change is None else change(frame), tmp_path / "t.csv")
    with pytest.raises((BadInput, UnknownName), match=message):
        read(path, **options)


def test_a_row_with_more_fields_than_names_is_refused(tmp_path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,target\n1,3,2,0\n2,3,4,1\n")
    with pytest.raises(BadInput, match="does not match"):
        read(path)


@pytest.mark.parametrize(
    ("change_events", "change_labels", "message"),
    [
        (lambda e: e.drop(columns="code"), None, "for code"),
        (lambda e: e.drop(columns="time"), None, "for time"),
        (lambda e: e[:0], None, "no events"),
        (assigned(code=None), None, "without code"),
        (assigned(time="yesterday"), None, "'yesterday'"),
        (assigned(time=5), None, "numbers in"),
        (None, lambda t: t.assign(subject_id=t["subject_id"] + 1000), "80 labels"),
        (lambda e: e[e["time"].notna()], assigned(prediction_time=pd.Timestamp(1999, 1, 1)),
         "80 of 80"),
        (None, assigned(prediction_time=pd.NaT), "without a time"),
        (None, lambda t: t.drop(columns="boolean_value"), "of classes"),
        (None, lambda t: t[:0], "no labels"),
        (None, assigned(boolean_value=True), "True in all"),
    ],
)  # fmt: skip
def test_events_that_cannot_be_used_are_refused_with_the_reason(
    tmp_path, change_events, change_labels, message
) -> None:
    data, labels = events()
    (change_events(data) if change_events else data).to_parquet(tmp_path / "e.parquet")
    (change_labels(labels) if change_labels else labels).to_parquet(tmp_path / "l.parquet")
    with pytest.raises(BadInput, match=message):
        read(tmp_path / "e.parquet", target=None, labels=str(tmp_path / "l.parquet"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("nowhere.csv", {}, "nowhere"),
        ("table.xlsx", {}, r"\.parquet or \.arff"),
        ("broken.parquet", {}, "cannot be read"),
        ("table.csv", {"labels": "nowhere"}, "nowhere"),
        ("other", {"labels": "table.csv"}, "without data/"),
        ("other", {"format": "meds", "labels": "l.csv"}, "MEDS data"),
        ("other", {"format": "omop", "labels": "l.csv"}, "of OMOP"),
        ("other", {"format": "synthea", "labels": "l.csv"}, "of Synthea"),
        ("meds", {"labels": None}, "--labels"),
        ("table.csv", {"format": "meds", "labels": "table.csv"}, "a folder"),
        ("cohort:dmo", {}, "'demo'"),
        ("sklearn:linnerud", {}, "three targets"),
        ("sklearn:irs", {}, "'iris'"),
        ("gopher://hole/t.csv", {}, "gopher"),
    ],
)
def test_input_that_is_not_there_is_refused_by_name(
    tmp_path, monkeypatch, data, options, message
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path)
    write_meds(tmp_path / "meds")
    (tmp_path / "table.xlsx").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "l.csv").write_text("patient,date,target\n1,2020-01-01,0\n2,2020-01-01,1\n")
    (tmp_path / "broken.parquet").write_text("no parquet")
    with pytest.raises((BadInput, UnknownName, ValueError), match=message):
        read(data, **options)


def test_what_is_left_out_is_noted(tmp_path) -> None:
    read_ = read(written(table().assign(empty=np.nan, patient=range(150)), tmp_path / "t.csv"))
    assert "empty" not in read_.X
    assert [next(c for c in ("empty", "patient") if c in note) for note in read_.notes] == [
        "empty",
        "patient",
    ]


def test_decimals_are_numbers_and_lists_are_left_out_by_name(tmp_path) -> None:
    columns = pa.Table.from_pandas(table())
    columns = columns.append_column("price", pa.array(range(150)).cast(pa.decimal128(30, 2)))
    columns = columns.append_column("tags", [[[1]] * 150])
    pq.write_table(columns, tmp_path / "t.parquet")
    found = read(tmp_path / "t.parquet")
    assert "tags" not in found.X
    assert any("tags" in note for note in found.notes)
    assert found.X["price"].tolist() == list(range(150))


LOOKALIKES = (["02139", "2139", "10001"], ["1.50", "1.5", "2.25"], ["TRUE", "FALSE", "TRUE"])


@pytest.mark.parametrize("values", LOOKALIKES)
def test_categories_that_look_like_numbers_stay_texts_everywhere(tmp_path, values) -> None:
    frame = table().assign(place=values * 50)
    train, other = (written(frame, tmp_path / name) for name in ("t.csv", "test.csv"))
    data = read(train, categorical=("place",), test=other)
    assert data.X["place"].tolist() == values * 100
    new = like_training(read_features(other, None, data), data.row_reader)
    assert new["place"].tolist() == values * 50


@pytest.mark.slow
@pytest.mark.parametrize("gap", GAPS)
def test_a_gap_is_spelled_alike_in_every_kind_of_file(tmp_path, gap) -> None:
    values = ["None", gap, "Gd"] * 50
    frame = table().assign(contrast=values, kept=pd.Categorical(values))
    first, second = (read(written(frame, tmp_path / name)) for name in ("t.csv", "t.parquet"))
    for name in ("contrast", "kept"):
        assert first.X[name].isna().sum() == 50
        assert list(first.X[name].cat.categories) == ["Gd", "None"]
    assert first.digest() == second.digest()


def test_columns_may_be_named_by_numbers(tmp_path) -> None:
    frame = table().rename(columns={"target": 3, "a": 1})
    path = tmp_path / "t.parquet"
    frame[[1, "b", 3]].set_axis([1, 2, 3], axis=1).to_parquet(path, index=False)
    assert read(path, target="3").classes == ("no", "yes")


def test_the_ways_out_that_are_named_lead_out(tmp_path) -> None:
    frame = text_column(table())
    frame["target"] = frame["target"].where(frame.index > 3)
    path = written(frame, tmp_path / "t.csv")
    dropped = read(path, drop=("name",), drop_missing_target=True)
    assert len(dropped) == 146
    assert [note.partition(" ")[0] for note in dropped.notes] == ["4"]
    insisted = read(path, categorical=("name", "count"), drop_missing_target=True)
    assert str(insisted.X["count"].dtype) == str(insisted.X["name"].dtype) == "category"


def test_given_test_rows_are_marked_and_are_like_the_others(tmp_path) -> None:
    frame = table(200)
    train = written(frame[:150], tmp_path / "train.csv")
    extra = frame[150:].assign(colour="mauve", note=1)[[*reversed(frame.columns), "note"]]
    test = written(extra, tmp_path / "test.parquet")
    dataset = read(train, test=test)
    assert dataset.is_test is not None
    assert dataset.is_test.tolist() == [False] * 150 + [True] * 50
    assert list(dataset.X) == list(frame.drop(columns="target"))
    assert dataset.X["a"].tolist() == frame["a"].tolist()
    assert set(dataset.X["colour"][150:]) == {"mauve"}
    assert dataset.digest() != read(written(frame, tmp_path / "all.csv")).digest()
    store = ArtifactStore(StoreAddress(str(tmp_path / "store")))
    back = load_dataset(store, import_dataset(dataset, store))
    assert back.digest() == dataset.digest()
    assert back.is_test.tolist() == dataset.is_test.tolist()


def test_labels_for_the_test_are_of_other_patients(tmp_path) -> None:
    meds = write_meds(tmp_path / "meds")
    _, labels = events()
    is_test = labels["subject_id"] >= 130
    for name, part in (("train", labels[~is_test]), ("test", labels[is_test])):
        part.to_parquet(tmp_path / f"{name}.parquet", index=False)
    named = {n: str(tmp_path / f"{n}.parquet") for n in ("train", "test")}
    dataset = read(meds, target=None, labels=named["train"], test=named["test"])
    assert dataset.is_test.tolist() == is_test.tolist()
    with pytest.raises(BadInput, match="10 patients"):
        read(meds, target=None, labels="labels/task", test=named["test"])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_group_is_no_feature_and_keeps_large_ids_apart(tmp_path, suffix) -> None:
    patient = 2**60 + np.arange(150) // 3
    path = written(table().assign(patient=patient), tmp_path / f"t.{suffix}")
    dataset = read(path, group="patient")
    assert "patient" not in dataset.X
    assert dataset.groups.tolist() == (np.arange(150) // 3).tolist()


def test_up_to_a_hundred_texts_are_categories_even_if_they_all_differ(tmp_path) -> None:
    """More of them are free text, a category that the user names, or the rows' identifiers."""
    few, many = (read(written(text_column(table(n)), tmp_path / f"{n}.csv")) for n in (100, 101))
    assert few.X["name"].nunique() == 100
    assert "name.words" in many.X
    ids = table().assign(name=[f"i{i}" for i in range(150)])
    path = written(ids, tmp_path / "ids.csv")
    assert "name" not in read(path).X
    assert any(note.startswith("left out: name") for note in read(path).notes)
    assert read(path, categorical=("name",)).X["name"].nunique() == 150


ARFF = """% a comment
@RELATION people
@ATTRIBUTE 'body height' NUMERIC
@ATTRIBUTE colour {red,green,'light blue'}
@ATTRIBUTE note STRING
@ATTRIBUTE class {no,yes}
@DATA
1.5,red,'a, b',no
?,'light blue',?,yes
-2e3,?,c,no
"""

SPARSE = """@RELATION sparse
@ATTRIBUTE a NUMERIC
@ATTRIBUTE b INTEGER
@ATTRIBUTE class {no,yes}
@DATA
{0 1.5, 2 yes}
{1 4}
"""


def test_arff_gives_numbers_categories_and_texts_with_gaps(tmp_path) -> None:
    (tmp_path / "t.arff").write_text(ARFF)
    frame = read_table(Location.at(str(tmp_path / "t.arff")))
    assert list(frame) == ["body height", "colour", "note", "class"]
    assert frame["body height"].tolist()[::2] == [1.5, -2000.0]
    assert frame["colour"].dropna().tolist() == ["red", "light blue"]
    assert frame["note"].dropna().tolist() == ["a, b", "c"]
    assert frame.isna().sum().tolist() == [1, 1, 1, 0]


def test_sparse_arff_leaves_out_zeros_and_first_categories(tmp_path) -> None:
    (tmp_path / "t.arff.gz").write_bytes(gzip.compress(SPARSE.encode()))
    frame = read_table(Location.at(str(tmp_path / "t.arff.gz")))
    assert frame.to_numpy().tolist() == [[1.5, 0, "yes"], [0, 4, "no"]]


ARFF_OF_WEKA = """@relation t
@attribute 'the day' DATE "dd/MM/yyyy HH:mm"
@attribute x REAL [-5,5]
@attribute z\tinteger % a count
@attribute class {kr\u00e4nklich, 'sehr gesund'} % two
@data
"05/03/2024 10:30",1.5,2,kr\u00e4nklich
?,2.5,?,'sehr gesund'
"""


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_arff_may_have_dates_ranges_and_comments(tmp_path, encoding) -> None:
    (tmp_path / "t.arff").write_bytes(ARFF_OF_WEKA.encode(encoding))
    frame = read_table(Location.at(str(tmp_path / "t.arff")))
    assert frame["the day"].tolist() == [pd.Timestamp(2024, 3, 5, 10, 30), pd.NaT]
    assert frame["x"].tolist() == [1.5, 2.5]
    assert frame["z"].isna().tolist() == [False, True]
    assert frame["class"].tolist() == ["kr\u00e4nklich", "sehr gesund"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_gaps_take_no_digit_from_whole_numbers(tmp_path, suffix) -> None:
    big = 2**60 + 1
    frame = pd.DataFrame({"id": pd.array([big, None, big + 1], "Int64"), "x": [1, 2, 3]})
    path = tmp_path / f"t.{suffix}"
    frame.to_parquet(path) if suffix == "parquet" else frame.to_csv(path, index=False)
    read = read_table(Location.at(str(path)))["id"]
    assert [int(i) for i in read.dropna()] == [big, big + 1]


def test_only_the_columns_asked_for_are_read_in_letters_of_any_size(tmp_path) -> None:
    frame = pd.DataFrame({"PERSON_ID": [1], "Other": [2], "code": [3]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        read = read_table(Location.at(str(tmp_path / name)), only={"person_id", "code", "none"})
        assert list(read) == ["PERSON_ID", "code"]


VALUES = (
    st.integers(-(2**40), 2**40) | st.none(),
    st.floats(allow_nan=False, allow_infinity=False) | st.none(),
    st.sampled_from(["red", "dark green", "ä,b", 'quoted "x"']),
    st.sampled_from(["red", "blue", None]),
    st.sampled_from([True, False, None]),
    st.dates(date(1950, 1, 1), date(2100, 1, 1)).map(pd.Timestamp),
)
COLUMNS = st.sampled_from(VALUES).flatmap(lambda v: st.lists(v, min_size=12, max_size=12))
FEW = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.slow
@given(st.lists(COLUMNS, min_size=1, max_size=4))
@FEW
def test_the_same_values_as_csv_and_as_parquet_have_the_same_digest(tmp_path, columns) -> None:
    frame = pd.DataFrame({f"c{i}": typed(values) for i, values in enumerate(columns)})
    frame["always"], frame["target"] = np.arange(12) / 7, ["no", "yes"] * 6
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_csv(tmp_path / "t.csv.gz", index=False)
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    digests = {
        read_source(Source(str(tmp_path / name), "target")).digest()
        for name in ("t.csv", "t.csv.gz", "t.parquet")
    }
    assert len(digests) == 1


def typed(values: list) -> pd.Series:
    """As a user has it: whole numbers and truth values with gaps keep their type."""
    there = [v for v in values if v is not None]
    if there and isinstance(there[0], bool):
        return pd.Series(values, dtype="boolean")
    if there and isinstance(there[0], int):
        return pd.Series(values, dtype="Int64")
    return pd.Series(values)


def dataset(frame: pd.DataFrame, target: str = "target", **options: object):
    return frame_dataset(Source(frame_name(frame), target=target, **options), frame)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "called 'a'"),
        (pd.DataFrame([[1, 2]], columns=["1", 1]), "called '1'"),
        (pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}), "'a'.* sparse"),
    ],
)
def test_what_no_file_could_hold_is_refused_by_name(frame, message) -> None:
    with pytest.raises(BadInput, match=message):
        checked_frame(frame)


def test_objects_are_taken_for_what_they_are() -> None:
    frame = pd.DataFrame(
        {"n": [1, None, 2.5], "b": [True, None, False], "t": ["x", None, "y"]}, dtype=object
    )
    X = dataset(checked_frame(frame).assign(target=[0, 1, 0])).X
    assert X["n"].tolist()[::2] == [1.0, 2.5]
    assert X["b"].tolist()[::2] == [1.0, 0.0]
    assert X["t"].tolist()[::2] == ["x", "y"]


def test_the_users_dataframe_is_not_changed() -> None:
    frame = table().set_index("count", drop=False)
    before = frame.copy(deep=True)
    checked, _ = with_target(checked_frame(frame.drop(columns="target")), frame["target"])
    dataset(checked)
    pd.testing.assert_frame_equal(frame, before)


def test_values_of_a_target_become_a_column_in_their_order() -> None:
    frame = checked_frame(table().drop(columns="target"))
    shuffled = table()["target"].rename("of another index").sample(frac=1, random_state=0)
    joined, name = with_target(frame, shuffled)
    assert name == "of another index"
    assert joined[name].tolist() == shuffled.tolist()
    assert with_target(frame, np.zeros(len(frame)))[1] == "target"
    with pytest.warns(DataConversionWarning, match="column-vector"):
        assert with_target(frame, pl.DataFrame({"y": shuffled}))[1] == "y"


def test_values_of_a_target_named_like_a_column_leave_the_column_as_it_is() -> None:
    frame = checked_frame(table())
    joined, name = with_target(frame, frame["count"] > 5)
    assert name not in (None, "count")
    pd.testing.assert_frame_equal(joined.drop(columns=name), frame)
    assert joined[name].tolist() == (frame["count"] > 5).tolist()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ([1, 0], "2 values.* 150"),
        (np.zeros((150, 2)), r"\(150, 2\)"),
        (pd.Series([1, "x"] * 75, name="y", dtype=object), "'y'.* several types"),
    ],
)
def test_values_that_are_no_target_are_refused(target, message) -> None:
    with pytest.raises(BadInput, match=message):
        with_target(checked_frame(table()), target)


def test_a_name_stands_for_the_content() -> None:
    frame = checked_frame(table())
    assert frame_name(frame) == frame_name(checked_frame(table().set_index("count", drop=False)))
    changed = {
        "value": frame.assign(a=frame["a"].where(frame.index != 3, 0.0)),
        "text": frame.assign(colour=frame["colour"].replace("red", "rot")),
        "name": frame.rename(columns={"a": "A"}),
        "order": frame[frame.columns[::-1]],
        "type": frame.assign(count=frame["count"].astype(float)),
    }
    names = {frame_name(other) for other in changed.values()}
    assert len(names | {frame_name(frame)}) == len(changed) + 1


ANY_FRAME = FRAME.assign(
    code=FRAME["code"].astype("Int64"),
    date=[date(2024, 1, 1 + row % 28) if row % 9 else None for row in range(len(FRAME))],
    target=[row % 2 for row in range(len(FRAME))],
)


def of_arrow(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False)


def with_unit(unit: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda frame: frame.astype(dict.fromkeys(["moment", "date"], f"datetime64[{unit}]"))


@pytest.mark.parametrize(
    "form",
    [
        pl.from_pandas,
        lambda frame: pl.from_pandas(frame).lazy(),
        of_arrow,
        lambda frame: of_arrow(frame).combine_chunks().to_batches()[0],
        lambda frame: of_arrow(frame).to_pandas(types_mapper=pd.ArrowDtype),
        lambda frame: of_arrow(frame).to_pandas(),
        lambda frame: frame.convert_dtypes(),
        with_unit("s"),
        with_unit("ms"),
        with_unit("ns"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"categorical": ("date", "moment")}, {"group": "date"}])
def test_equal_frames_of_all_libraries_have_one_name_and_digest(form, options) -> None:
    given = ANY_FRAME.dropna(subset=["date"])
    source = Source("", target="target", **options)
    same = [checked_frame(as_pandas(frame)) for frame in (given, form(given))]
    assert frame_name(same[0]) == frame_name(same[1])
    one, other = (frame_dataset(source, frame) for frame in same)
    assert (one.digest(), one.notes) == (other.digest(), other.notes)


def test_large_whole_numbers_beside_gaps_keep_their_last_digit() -> None:
    ids = pl.DataFrame({"id": [2**60, None, 2**60 + 1]})
    assert checked_frame(as_pandas(ids))["id"].tolist()[::2] == [2**60, 2**60 + 1]


def with_column(*parts: pa.Array) -> Callable[[Path], str]:
    """Writer of `table` as a folder of Parquet files whose column `added` has these parts."""

    def write(folder: Path) -> str:
        folder.mkdir()
        for number, part in enumerate(parts):
            columns = pa.Table.from_pandas(table(len(part), seed=number), preserve_index=False)
            pq.write_table(columns.append_column("added", part), folder / f"{number}.parquet")
        return str(folder)

    return write


WHOLE = pa.array(range(60), pa.int64())


@pytest.mark.parametrize(
    "other",
    [
        pa.nulls(60),
        WHOLE.cast(pa.float64()),
        WHOLE.cast(pa.decimal128(25, 2)),
        WHOLE.cast(pa.uint8()),
        WHOLE.dictionary_encode(),
    ],
    ids=str,
)
def test_a_part_with_gaps_or_other_numbers_does_not_change_the_type(tmp_path, other) -> None:
    for name, parts in (("first", (other, WHOLE)), ("last", (WHOLE, other))):
        X = read(with_column(*parts)(tmp_path / name)).X
        assert X["added"].dtype == np.float64
        assert X["added"].notna().sum() == 120 - other.null_count
        assert list(X) == [*table().drop(columns="target"), "added"]


@pytest.mark.parametrize("kind", [pa.string_view(), pa.large_string(), pa.string()], ids=str)
def test_gaps_are_gaps_in_every_kind_of_text(tmp_path, kind) -> None:
    texts = pa.array(["NA", "u", None, "v"] * 15).cast(kind)
    X = read(with_column(texts)(tmp_path / "t")).X
    assert X["added"].isna().sum() == 30
    log, labels = events()
    columns = pa.Table.from_pandas(log.assign(numeric_value=1.0), preserve_index=False)
    place = columns.column_names.index("code")
    codes = columns.column("code").cast(kind)
    pq.write_table(columns.set_column(place, "code", codes), tmp_path / "e.parquet")
    path = written(labels, tmp_path / "l.parquet")
    dataset = read(tmp_path / "e.parquet", target=None, labels=path)
    assert {"A", "B"} <= set(dataset.X.codes)


def test_nested_values_times_and_dates_of_parquet_are_read(tmp_path) -> None:
    columns = {
        "list": pa.array([["a"], None], pa.list_(pa.string_view())),
        "struct": pa.array([{"q": 1}, None]),
        "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
        "bytes": pa.array([b"a", None]),
        "time": pa.array([time(1), None], pa.time64("us")),
        "date": pa.array([date(2020, 1, 1), None]),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    frame = read_table(Location.at(str(tmp_path / "t.parquet")), of_rows=True)
    assert [frame[name].dtype.kind for name in columns] == list("OOOOmM")
    assert frame["time"][0] == pd.Timedelta(hours=1)
    assert frame["struct"][0] == {"q": 1}


@pytest.mark.parametrize("values", [[[0], [1]], [{"q": 0}, {"q": 1}]])
def test_a_list_or_struct_is_no_target(tmp_path, values) -> None:
    folder = with_column(pa.array(values * 30))(tmp_path / "t")
    with pytest.raises(BadInput, match="'added'"):
        read(folder, target="added")


def in_two_levels() -> pd.DataFrame:
    frame = table()
    return frame.set_axis(
        pd.MultiIndex.from_tuples([("B" if c == "target" else "A", c) for c in frame]), axis=1
    )


@pytest.mark.parametrize("target", ["('B', 'target')", "B_target"])
def test_names_of_two_levels_are_joined(tmp_path, target) -> None:
    in_two_levels().to_parquet(tmp_path / "t.parquet")
    of_file = read(tmp_path / "t.parquet", target=target, drop=("('A', 'count')",))
    assert list(of_file.X) == ["A_a", "A_b", "A_c", "A_colour"]
    frame = checked_frame(in_two_levels())
    assert "A_a" in frame.attrs[NOTES][0]
    assert dataset(frame, target, drop=("A_count",)).digest() == of_file.digest()
    assert with_target(frame, ("B", "target"))[1] == "B_target"


def test_names_that_are_equal_once_joined_are_refused() -> None:
    columns = pd.MultiIndex.from_tuples([("a", "b_c"), ("a_b", "c")])
    with pytest.raises(BadInput, match=r"'a_b_c'.*'b_c'.*'a_b'"):
        checked_frame(pd.DataFrame([[1, 2]], columns=columns))


def test_the_index_of_a_dataframe_is_no_feature(tmp_path) -> None:
    table().rename_axis("patient").to_parquet(tmp_path / "t.parquet")
    table().set_axis(range(5, 155)).to_parquet(tmp_path / "unnamed.parquet")
    digest = read(written(table(), tmp_path / "t.csv")).digest()
    assert read(tmp_path / "t.parquet").digest() == digest
    assert read(tmp_path / "unnamed.parquet").digest() == digest


def test_a_named_index_is_a_column_where_an_option_names_it(tmp_path) -> None:
    frame = table().set_index("count")
    frame.to_parquet(tmp_path / "named.parquet")
    lists = dict.fromkeys(("drop", "categorical", "key"), ("count",))
    for name, value in {"group": "count", **lists}.items():
        source = Source("t.csv", "target", **{name: value})
        of_frame = frame_dataset(source, checked_frame(frame))
        of_file = read(tmp_path / "named.parquet", **{name: value})
        of_column = frame_dataset(source, checked_frame(table()))
        assert of_file.digest() == of_frame.digest()
        of_key = {"count"} if name == "key" else set()  # an index that is a key is no feature
        assert set(of_frame.X) == set(of_column.X) - of_key
        assert not any("index" in note for note in of_frame.notes)
    of_frame = frame_dataset(Source("t.csv", "target"), checked_frame(frame))
    for found in (read(tmp_path / "named.parquet"), of_frame):
        assert "count" not in found.X
        assert any("count: the index" in note for note in found.notes)


@pytest.mark.parametrize(
    ("written", "note"),
    [
        (("%m/%d/2023", "%d.%m.2023"), "several formats, such as"),
        (("%Y/%m/%d", "%Y-%m-%d"), "several formats, such as"),
        (("%m/%d/2023",), "either order"),
    ],
)
def test_dates_that_make_no_column_of_dates_get_a_note(written, note) -> None:
    days = pd.date_range("2022-01-13", periods=240)
    of_month = days[days.day <= 12] if len(written) == 1 else days[days.day > 12]
    texts = [day.strftime(written[i * len(written) // 240]) for i, day in enumerate(of_month)]
    frame = pd.DataFrame(
        {"day": texts, "b": range(len(texts)), "target": np.arange(len(texts)) % 2}
    )
    found = frame_dataset(Source("", target="target"), frame)
    assert sum("column day" in text for text in found.notes) == 1
    assert any(note in text for text in found.notes)
    kept = frame_dataset(Source("", target="target", categorical=("day",)), frame)
    assert not any("column day" in text for text in kept.notes)


def test_the_named_range_of_rows_of_a_parquet_file_is_a_column(tmp_path) -> None:
    path = tmp_path / "t.parquet"
    frame = table().rename_axis("row")
    frame.to_parquet(path)
    found = read_source(Source(str(path), "target", key=("row",)))
    assert found.ids is not None
    assert len(set(found.ids)) == len(frame)
    assert "row" not in read_source(Source(str(path), "target")).X
