"""Tables in files and DataFrames: what is read, and what is refused with the way out."""

import gzip
from datetime import date

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inputs import codes_of, events, table, write_meds, write_table

from prefect_tune.optimizers import UnknownName
from prefect_tune.storage import ArtifactStore, StoreAddress
from prefect_tune.tasks.bad_input import BadInput, shown_columns
from prefect_tune.tasks.data.dataset import import_dataset, load_dataset
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.frames import checked_frame, frame_dataset, frame_name, with_target
from prefect_tune.tasks.data.location import Location
from prefect_tune.tasks.data.reading import read_features, read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.table import like_training
from prefect_tune.tasks.data.table_files import column_names, read_table


def read(path, **options):
    return read_source(Source(str(path), **{"target": "target", **options}))


def written(frame: pd.DataFrame, path) -> str:
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False)
    return str(path)


def test_a_table_becomes_numbers_and_categories_with_gaps(tmp_path) -> None:
    dataset = read(write_table(tmp_path))
    assert dataset.kind == "table"
    assert dataset.classes == ("no", "yes")
    assert [str(t) for t in dataset.X.dtypes] == ["float64"] * 4 + ["category"]
    assert dataset.X["b"].isna().sum() == dataset.X["colour"].isna().sum() == 15
    assert dataset.groups is None


def test_the_same_table_has_the_same_digest_from_any_file(tmp_path) -> None:
    frame = table()
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_csv(tmp_path / "b.csv.gz", index=False)
    frame.to_parquet(tmp_path / "c.parquet", index=False)
    digests = {read(tmp_path / name).digest() for name in ("a.csv", "b.csv.gz", "c.parquet")}
    assert len(digests) == 1


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
        ([2.0, 1.0] * 75, (1, 2)),
        (["b", "a"] * 75, ("a", "b")),
        ([0.5, 1.5] * 75, ("0.5", "1.5")),
        ([-0.5, -1.5, 10.5] * 50, ("-0.5", "-1.5", "10.5")),
    ],
)
def test_classes_may_be_of_any_type(tmp_path, target, classes) -> None:
    dataset = read(written(table().assign(target=target), tmp_path / "a.csv"))
    assert dataset.classes == classes
    assert [type(c) for c in dataset.classes] == [type(c) for c in classes]


@pytest.mark.parametrize("values", [["yes", "no"], ["low", "medium", "high"], [3, 1, 2]])
def test_classes_that_a_file_orders_otherwise_are_ours_in_order(tmp_path, values) -> None:
    target = pd.Categorical(values * (150 // len(values)), categories=values)
    dataset = read(written(table().assign(target=target), tmp_path / "a.parquet"))
    assert dataset.classes == tuple(sorted(values))
    assert dataset.labels.tolist() == list(target)
    plain = read(written(table().assign(target=list(target)), tmp_path / "a.csv"))
    assert plain.digest() == dataset.digest()


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
        known = like_training(read_features(str(new), None, training), training.X)["site"]
        expected = [str(s) for s in sites if s is not None]
        assert known.dropna().tolist() == expected


def test_a_category_of_which_nothing_is_known_is_warned_of(tmp_path, caplog) -> None:
    training = read(written(table(), tmp_path / "t.csv"))
    like_training(table(5).assign(colour="mauve"), training.X)
    assert "no value of column colour was there in training" in caplog.text


def test_an_imported_data_set_comes_back_as_it_was(tmp_path) -> None:
    store = ArtifactStore(StoreAddress(str(tmp_path / "store")))
    dataset = read(write_table(tmp_path))
    digest = import_dataset(dataset, store)
    back = load_dataset(store, digest)
    pd.testing.assert_frame_equal(back.X, dataset.X)
    assert back.digest() == digest
    assert import_dataset(dataset, store) == digest


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


def test_an_imported_cohort_comes_back_as_it_was(tmp_path) -> None:
    store = ArtifactStore(StoreAddress(str(tmp_path / "store")))
    dataset = read(write_meds(tmp_path / "meds"), target=None, labels="labels/task")
    back = load_dataset(store, import_dataset(dataset, store))
    assert back.digest() == dataset.digest()
    assert back.X.start.tolist() == dataset.X.start.tolist()
    assert back.X.stop.tolist() == dataset.X.stop.tolist()


def test_plain_events_are_the_same_data_as_their_meds_folder(tmp_path) -> None:
    data, labels = events()
    names = {"subject_id": "patient_id", "time": "timestamp", "code": "event_id"}
    data = data.rename(columns={**names, "numeric_value": "value"})
    shuffled = data.sample(frac=1, random_state=0).sort_values("timestamp", kind="stable")
    shuffled.to_parquet(tmp_path / "events.parquet", index=False)
    labels.rename(columns={**names, "prediction_time": "index_time"}).to_csv(
        tmp_path / "labels.csv", index=False
    )
    plain = read(tmp_path / "events.parquet", target=None, labels=str(tmp_path / "labels.csv"))
    assert plain.classes == (False, True)
    assert len(plain) == 80
    assert plain.X.codes == ["A", "B", "LATER", "SEX//0", "SEX//1"]


def test_patient_ids_beyond_two_to_the_53_stay_apart(tmp_path) -> None:
    data, labels = events()
    big = 2**60
    for frame in (data, labels):
        frame["subject_id"] += big
    data.to_parquet(tmp_path / "e.parquet", index=False)
    labels.to_parquet(tmp_path / "l.parquet", index=False)
    dataset = read(tmp_path / "e.parquet", target=None, labels=str(tmp_path / "l.parquet"))
    assert dataset.X.rows["subject_id"].nunique() == 40
    assert int(dataset.X.rows["subject_id"].iloc[0]) == big + 100


def test_a_date_without_a_time_hides_nothing_and_shows_nothing_of_its_day(tmp_path) -> None:
    """An event's date is the end of its day, a label's the start: the day's events are not used."""
    pd.DataFrame(
        {
            "patient_id": ["p", "p", "q", "q"],
            "time": ["2020-05-01", "2020-05-02", "2020-05-01T10:00:00Z", "2020-05-02T00:00:00Z"],
            "code": ["before", "same day", "before", "at the time"],
        }
    ).to_csv(tmp_path / "e.csv", index=False)
    pd.DataFrame(
        {"patient_id": ["p", "q"], "prediction_time": ["2020-05-02"] * 2, "label": [0, 1]}
    ).to_csv(tmp_path / "l.csv", index=False)
    dataset = read(tmp_path / "e.csv", target=None, labels=str(tmp_path / "l.csv"))
    assert [codes_of(dataset.X, r) for r in (0, 1)] == [["before"], ["before", "at the time"]]


def test_the_demo_cohort_is_the_same_every_time() -> None:
    first, second = (read_source(Source("cohort:demo")) for _ in range(2))
    assert first.digest() == second.digest()
    assert len(first) == 3000
    assert first.classes == ("case", "control")
    assert abs(first.y.mean() - 0.5) < 0.01


def test_a_model_of_events_takes_new_events_with_times_to_predict(tmp_path) -> None:
    meds = write_meds(tmp_path / "meds")
    dataset = read(meds, target=None, labels="labels/task")
    times = tmp_path / "times.csv"
    times.write_text("subject_id,prediction_time\n100,2020-03-01\n101,2020-03-01\n")
    assert len(read_features(str(meds), str(times), dataset)) == 2
    with pytest.raises(BadInput, match="--labels FILE"):
        read_features(str(meds), None, dataset)


def text_column(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(name=[f"patient {i}" for i in range(len(frame))])


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (None, {"target": None}, "say which column to predict with --target"),
        (None, {"target": "targt"}, r"no column 'targt'\. Did you mean 'target'\?"),
        (lambda f: f.assign(target=1), {}, "'target' .* is 1 in all rows"),
        (lambda f: f.assign(target=f["target"].where(f.index > 3)), {}, "4 of 150 rows"),
        (lambda f: f.assign(a=f["a"].where(f.index > 0, np.inf)), {}, "'a' .* has 1 infinite"),
        (text_column, {}, "text or identifier columns.*: name. Drop them with --drop name"),
        (None, {"drop": ("colr",)}, "Did you mean 'colour'"),
        (None, {"categorical": ("aa",)}, "no column 'aa'"),
        (lambda f: f[["target"]], {}, "no column left to learn from"),
        (lambda f: f.rename(columns={"a": "b"}), {}, "two columns called 'b'"),
        (lambda f: f.assign(target=[0.5, np.inf] * 75), {}, "'target' .* has infinite values"),
        (None, {"drop": ("target",)}, "'target' is named by --target and by --drop"),
        (None, {"group": "target"}, "'target' is named by --target and by --group"),
        (None, {"group": "a", "drop": ("a",)}, "'a' is named by --group and by --drop"),
        (lambda f: f.head(0), {}, "has no rows"),
        (None, {"format": "tabel"}, "Did you mean 'table'"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_with_the_way_out(
    tmp_path, change, options, message
) -> None:
    path = written(table() if change is None else change(table()), tmp_path / "t.csv")
    with pytest.raises((BadInput, UnknownName), match=message):
        read(path, **options)


def test_a_row_with_more_fields_than_names_is_refused(tmp_path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,target\n1,3,2,0\n2,3,4,1\n")
    with pytest.raises(BadInput, match="more fields than its first line has names"):
        read(path)


@pytest.mark.parametrize(
    ("n", "listed"),
    [
        (3, "c0, c1, c2"),
        (21, ", ".join(f"c{i}" for i in range(21))),
        (30, ", ".join(f"c{i}" for i in range(10))),
        (30, "c9, ... (10 more) ..., c20, c21"),
    ],
)
def test_of_many_columns_a_message_lists_the_first_and_the_last(n, listed) -> None:
    assert listed in shown_columns(f"c{i}" for i in range(n))


def test_columns_may_be_named_by_numbers(tmp_path) -> None:
    frame = table().rename(columns={"target": 3, "a": 1})
    path = tmp_path / "t.parquet"
    frame[[1, "b", 3]].set_axis([1, 2, 3], axis=1).to_parquet(path, index=False)
    assert read(path, target="3").classes == ("no", "yes")


def test_a_column_that_numbers_the_rows_is_noted(tmp_path) -> None:
    path = written(table().assign(patient=range(150)), tmp_path / "t.csv")
    assert any("column patient holds a different whole number" in n for n in read(path).notes)


def test_the_ways_out_that_are_named_lead_out(tmp_path) -> None:
    frame = text_column(table())
    frame["target"] = frame["target"].where(frame.index > 3)
    path = written(frame, tmp_path / "t.csv")
    dropped = read(path, drop=("name",), drop_missing_target=True)
    assert len(dropped) == 146
    assert dropped.notes == ("4 rows without target are left out",)
    insisted = read(path, categorical=("name", "count"), drop_missing_target=True)
    assert str(insisted.X["count"].dtype) == str(insisted.X["name"].dtype) == "category"


def test_a_column_without_values_is_left_out_and_said(tmp_path) -> None:
    dataset = read(written(table().assign(empty=np.nan), tmp_path / "t.csv"))
    assert "empty" not in dataset.X
    assert dataset.notes == ("column empty has no values and is left out",)


@pytest.mark.parametrize(
    ("change_events", "change_labels", "message"),
    [
        (lambda e: e.drop(columns="code"), None, "no column for code; expected one of"),
        (lambda e: e.drop(columns="time"), None, "no column for time"),
        (lambda e: e[:0], None, "has no events"),
        (lambda e: e.assign(code=None), None, "events without code"),
        (lambda e: e.assign(time="yesterday"), None, "times that do not parse.*'yesterday'"),
        (lambda e: e.assign(time=5), None, "numbers in its time column"),
        (None, lambda t: t.assign(subject_id=t["subject_id"] + 1000), "80 labels are of patients"),
        (
            None,
            lambda t: t.assign(prediction_time=pd.Timestamp(1999, 1, 1)),
            None,
        ),
        (None, lambda t: t.assign(prediction_time=pd.NaT), "80 labels without a time"),
        (None, lambda t: t.drop(columns="boolean_value"), "no column of classes"),
        (None, lambda t: t[:0], "has no labels"),
        (None, lambda t: t.assign(boolean_value=True), "is True in all rows"),
    ],
)
def test_events_that_cannot_be_used_are_refused_with_the_reason(
    tmp_path, change_events, change_labels, message
) -> None:
    data, labels = events()
    data = data[data["time"].notna()] if message is None else data
    message = message or "80 of 80 labels have no event of their patient at or before their time"
    (change_events(data) if change_events else data).to_parquet(tmp_path / "e.parquet")
    (change_labels(labels) if change_labels else labels).to_parquet(tmp_path / "l.parquet")
    with pytest.raises(BadInput, match=message):
        read(tmp_path / "e.parquet", target=None, labels=str(tmp_path / "l.parquet"))


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("nowhere.csv", {}, "there is no file or folder"),
        ("table.xlsx", {}, "use .csv, .csv.gz, .parquet or .arff"),
        ("broken.parquet", {}, "cannot be read"),
        ("table.csv", {"labels": "nowhere"}, "there are no labels at nowhere"),
        ("other", {"labels": "table.csv"}, "a folder without data/"),
        ("other", {"format": "meds", "labels": "l.csv"}, "expected events in data/"),
        ("other", {"format": "omop", "labels": "l.csv"}, "no clinical table of OMOP"),
        ("other", {"format": "synthea", "labels": "l.csv"}, "not a CSV export of Synthea"),
        ("meds", {"labels": None}, "name it with --labels"),
        ("table.csv", {"format": "meds", "labels": "table.csv"}, "a MEDS data set is a folder"),
        ("cohort:dmo", {}, "Did you mean 'demo'"),
        ("gopher://hole/t.csv", {}, "Protocol not known"),
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
    with pytest.raises((BadInput, UnknownName), match=message):
        read(data, **options)


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
    with pytest.raises(BadInput, match="10 patients have both training rows and test rows"):
        read(meds, target=None, labels="labels/task", test=named["test"])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_group_is_no_feature_and_keeps_large_ids_apart(tmp_path, suffix) -> None:
    patient = 2**60 + np.arange(150) // 3
    path = written(table().assign(patient=patient), tmp_path / f"t.{suffix}")
    dataset = read(path, group="patient")
    assert "patient" not in dataset.X
    assert dataset.groups.tolist() == (np.arange(150) // 3).tolist()


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (None, {"group": "patent"}, "Did you mean 'patient'"),
        (lambda f: f.assign(patient=None), {}, "150 rows of .* have no 'patient'"),
        (None, {"test": "nowhere.csv"}, "there is no file or folder nowhere.csv"),
        (None, {"test": "test.csv"}, "25 values of patient have both training rows"),
        (None, {"test": "bad.csv", "group": None}, "'a' held numbers .* 'x' in bad.csv"),
        (None, {"test": "less.csv", "group": None}, "less.csv has no column 'a'"),
        (None, {"labels": "test.csv", "format": "table"}, "goes with events"),
    ],
)
def test_groups_and_test_rows_that_cannot_be_used_are_refused(
    tmp_path, monkeypatch, change, options, message
) -> None:
    monkeypatch.chdir(tmp_path)
    frame = table().assign(patient=np.arange(150) // 2)
    written(frame[:50], tmp_path / "test.csv")
    written(frame[:50].assign(a="x"), tmp_path / "bad.csv")
    written(frame[:50].drop(columns="a"), tmp_path / "less.csv")
    path = written(change(frame) if change else frame, tmp_path / "t.csv")
    with pytest.raises(BadInput, match=message):
        read(path, **{"group": "patient", **options})


def test_a_test_row_without_a_target_is_refused_where_it_is(tmp_path) -> None:
    frame = table()
    train = written(frame, tmp_path / "train.csv")
    test = written(frame.assign(target=frame["target"].where(frame.index > 2)), tmp_path / "u.csv")
    with pytest.raises(BadInput, match=r"3 of 150 rows of .*u.csv have no 'target'"):
        read(train, test=test)
    assert len(read(train, test=test, drop_missing_target=True)) == 297


def test_up_to_a_hundred_texts_are_categories_even_if_they_all_differ(tmp_path) -> None:
    few = read(written(text_column(table(100)), tmp_path / "few.csv"))
    assert few.X["name"].nunique() == 100
    with pytest.raises(BadInput, match="text or identifier"):
        read(written(text_column(table(101)), tmp_path / "many.csv"))


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
    assert frame["colour"].tolist() == ["red", "light blue", None]
    assert frame["note"].tolist() == ["a, b", None, "c"]
    assert frame.isna().sum().tolist() == [1, 1, 1, 0]


def test_sparse_arff_leaves_out_zeros_and_first_categories(tmp_path) -> None:
    (tmp_path / "t.arff.gz").write_bytes(gzip.compress(SPARSE.encode()))
    frame = read_table(Location.at(str(tmp_path / "t.arff.gz")))
    assert frame.to_numpy().tolist() == [[1.5, 0, "yes"], [0, 4, "no"]]


def test_a_table_as_arff_is_learned_from(tmp_path) -> None:
    frame = table()
    head = ["@RELATION t", *(f"@ATTRIBUTE {c} NUMERIC" for c in ("a", "b", "c", "count"))]
    head += ["@ATTRIBUTE colour {red,green,blue}", "@ATTRIBUTE target {no,yes}", "@DATA"]
    rows = frame.to_csv(index=False, header=False, na_rep="?")
    (tmp_path / "t.arff").write_text("\n".join(head) + "\n" + rows)
    frame.to_csv(tmp_path / "t.csv", index=False)
    first, second = (read_source(Source(str(tmp_path / n), "target")) for n in ("t.arff", "t.csv"))
    assert first.digest() == second.digest()


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet"])
def test_any_url_of_fsspec_is_read(tmp_path, suffix) -> None:
    frame = table()
    path = tmp_path / f"t.{suffix}"
    frame.to_parquet(path) if suffix == "parquet" else frame.to_csv(path, index=False)
    with fsspec.open(f"memory://inputs/t.{suffix}", "wb") as file:
        file.write(path.read_bytes())
    remote = read_source(Source(f"memory://inputs/t.{suffix}", "target"))
    assert remote.digest() == read_source(Source(str(path), "target")).digest()
    assert column_names(Location.at(f"memory://inputs/t.{suffix}")) == list(frame)


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


def test_decimals_are_numbers_and_lists_are_refused_by_name(tmp_path) -> None:
    frame = table()
    columns = pa.Table.from_pandas(frame)
    price = pa.array(range(150)).cast(pa.decimal128(30, 2))
    pq.write_table(columns.append_column("price", price), tmp_path / "t.parquet")
    dataset = read_source(Source(str(tmp_path / "t.parquet"), "target"))
    assert dataset.X["price"].tolist() == list(range(150))
    pq.write_table(columns.append_column("tags", [[[1]] * 150]), tmp_path / "u.parquet")
    with pytest.raises(
        BadInput, match=r"column 'tags' .* holds values of type \w+, which.*--drop tags"
    ):
        read_source(Source(str(tmp_path / "u.parquet"), "target"))
    dropped = read_source(Source(str(tmp_path / "u.parquet"), "target", drop=("tags",)))
    assert "tags" not in dropped.X


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
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


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
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns called 'a'"),
        (pd.DataFrame([[1, 2]], columns=["1", 1]), "two columns called '1'"),
        (
            pd.DataFrame({"a": [1, "x", 2.5]}, dtype=object),
            "'a' .* several types .*float, int, str",
        ),
        (pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}), "column 'a' .* is sparse"),
    ],
)
def test_what_no_file_could_hold_is_refused_by_name(frame, message) -> None:
    with pytest.raises(BadInput, match=message):
        checked_frame(frame)


def test_objects_are_taken_for_what_they_are() -> None:
    frame = pd.DataFrame(
        {"n": [1, None, 2.5], "b": [True, None, False], "t": ["x", None, "y"]}, dtype=object
    )
    checked = checked_frame(frame)
    assert [checked[c].dtype.kind for c in ("n", "b", "t")] == ["f", "b", "O"]
    assert checked["n"].tolist()[::2] == [1.0, 2.5]


def test_the_users_dataframe_is_not_changed() -> None:
    frame = table().set_index("count", drop=False)
    before = frame.copy(deep=True)
    checked, _ = with_target(checked_frame(frame.drop(columns="target")), frame["target"])
    dataset(checked)
    pd.testing.assert_frame_equal(frame, before)


def test_a_dataframe_is_the_same_data_as_its_file(tmp_path) -> None:
    from prefect_tune.tasks.data.reading import read_source

    table().to_parquet(tmp_path / "table.parquet")
    of_file = read_source(Source(str(tmp_path / "table.parquet"), target="target"))
    assert dataset(checked_frame(table())).digest() == of_file.digest()


def test_values_of_a_target_become_a_column_in_their_order() -> None:
    frame = checked_frame(table().drop(columns="target"))
    shuffled = table()["target"].rename("of another index").sample(frac=1, random_state=0)
    joined, name = with_target(frame, shuffled)
    assert name == "of another index"
    assert joined[name].tolist() == shuffled.tolist()
    assert with_target(frame, np.zeros(len(frame)))[1] == "target"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ([1, 0], "2 values, and the DataFrame 150 rows"),
        (pd.Series(range(150), name="colour"), "'colour', and so is a column"),
        (np.zeros((150, 2)), r"one value a row; got the shape \(150, 2\)"),
        (pd.Series([1, "x"] * 75, name="y", dtype=object), "target 'y' .* several types"),
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


def test_gaps_in_the_target_and_texts_are_refused_as_those_of_files() -> None:
    frame = checked_frame(table())
    with pytest.raises(BadInput, match="2 of 150 rows of the DataFrame have no 'target'"):
        dataset(frame.assign(target=frame["target"].where(frame.index > 1)))
    with pytest.raises(BadInput, match="the DataFrame has text or identifier columns"):
        dataset(frame.assign(name=[f"n{i}" for i in range(150)]))
