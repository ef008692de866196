"""Tables in files and DataFrames: targets, groups, test rows, names, and refusals."""

import gzip
from collections.abc import Callable
from datetime import date, time
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inputs import stored, table, written
from sklearn.exceptions import DataConversionWarning

from prefect_tune.optimizers import UnknownName
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.files import NOTES, column_names, read_table
from prefect_tune.tasks.data.location import Location
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.row_reader import as_pandas
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.tables import (
    checked_frame,
    frame_dataset,
    frame_name,
    with_target,
)


def read(path: Any, **options: Any) -> Dataset:
    return read_source(Source(str(path), **{"target": "target", **options}))


def dataset(frame: pd.DataFrame, target: str = "target", **options: Any) -> Dataset:
    return frame_dataset(Source(frame_name(frame), target=target, **options), frame)


@pytest.mark.parametrize("place", ["t.csv", "memory://inputs/t.parquet"])
def test_table_is_the_same_in_a_file_a_frame_and_a_store(tmp_path, monkeypatch, place) -> None:
    monkeypatch.chdir(tmp_path)
    with fsspec.open(place, "wb") as file:
        getattr(table(), f"to_{place.rpartition('.')[2]}")(file, index=False)
    of_file = read(place, group="count")
    of_frame = dataset(checked_frame(table()), group="count")
    assert of_file.digest() == of_frame.digest()
    assert of_file.X.isna().sum().to_dict() == {"a": 0, "b": 15, "c": 0, "color": 15}
    back = stored(of_file, tmp_path)
    assert back.digest() == of_file.digest()
    assert (back.kind, back.classes) == ("table", ("no", "yes"))
    assert back.y.tolist() == of_file.y.tolist()
    assert back.groups.tolist() == of_file.groups.tolist()
    rows = np.array([3, 1, 1])
    pd.testing.assert_frame_equal(back.rows(rows), of_file.rows(rows))
    assert column_names(Location.at(place)) == list(table())


def test_every_change_of_a_table_changes_the_digest() -> None:
    frame = checked_frame(table())
    changed = [
        frame[::-1].reset_index(drop=True),
        frame[["b", "a", "c", "count", "color", "target"]],
        frame.assign(a=frame["a"] + 1e-12),
        frame.assign(target=frame["target"].replace("yes", "YES")),
        frame.rename(columns={"a": "A"}),
        frame.assign(color=frame["color"].fillna("none")),
        frame.assign(color=frame["color"].replace("red", "rot")),
    ]
    assert len({dataset(other).digest() for other in (frame, *changed)}) == 8
    typed = frame.assign(count=frame["count"].astype(float))
    assert len({frame_name(other) for other in (frame, *changed, typed)}) == 9
    assert frame_name(frame) == frame_name(checked_frame(table().set_index("count", drop=False)))


@pytest.mark.parametrize(
    ("target", "classes"),
    [
        ([1, 0], (0, 1)),
        ([True, False], (False, True)),
        ([2.0, 1.0], (1.0, 2.0)),
        (["12", "007"], ("007", "12")),
        ([-0.5, -1.5, 10.5], (-1.5, -0.5, 10.5)),
        ([True, False, None], (False, True)),
        (["a", "b", "NA"], ("a", "b")),
    ],
)
def test_classes_may_be_of_any_type_with_missing_values(tmp_path, target, classes) -> None:
    values = pd.Series(target * (150 // len(target)), dtype=object)
    frame = table().assign(target=values)
    given = [dataset(frame, drop_missing_target=True)]
    if len({*map(type, target)}) == 1:  # as a file has it
        for name in ("t.csv", "t.parquet"):
            path = written(frame.infer_objects(), tmp_path / name)
            given.append(read(path, drop_missing_target=True))
    for data in given:
        assert data.classes == classes
        assert None in target or "NA" in target or type(data.classes[0]) is type(classes[0])
    alike = table().assign(target=["Yes", "yes ", "no"] * 50)
    assert any("'Yes' and 'yes '" in note for note in dataset(alike).notes)


def without(column: str, n: int) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return a function that removes the first values of a column."""
    return lambda frame: frame.assign(**{column: frame[column].where(frame.index >= n)})


def assigned(**columns: object) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda frame: frame.assign(**columns)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "options", "named"),
    [
        (None, {"target": None}, "--target"),
        (None, {"target": "targt"}, "'target'"),
        (assigned(target=1), {}, "1 in all"),
        (without("target", 4), {}, "4 of 150"),
        (None, {"drop": ("colr",)}, "'color'"),
        (lambda f: f[["target"]], {}, "no column left"),
        (lambda f: f.rename(columns={"a": "b"}), {}, "'b'"),
        (assigned(target=[0.5, np.inf] * 75), {}, "infinite"),
        (None, {"group": "target"}, "--group"),
        (None, {"group": "a", "drop": ("a",)}, "--drop"),
        (lambda f: f.head(0), {}, "no rows"),
        (None, {"format": "tabel"}, "'table'"),
        (assigned(patient=None), {"group": "patient"}, "150 rows"),
        (None, {"test": "nowhere.csv"}, r"nowhere\.csv"),
        (None, {"test": "test.csv", "group": "patient"}, "25 values"),
        (None, {"test": "bad.csv"}, "'x' in column"),
        (None, {"test": "less.csv"}, "less.csv"),
        (None, {"test": "gaps.csv"}, "3 of 50"),
        (None, {"labels": "test.csv", "format": "table"}, "--labels"),
        (None, {"data": "nowhere.csv"}, "nowhere"),
        (None, {"data": "table.xlsx"}, r"\.parquet"),
        (None, {"data": "broken.parquet"}, "cannot be read"),
        (None, {"data": "sklearn:linnerud"}, "three targets"),
        (None, {"data": "sklearn:irs"}, "'iris'"),
        (None, {"data": "gopher://hole/t.csv"}, "gopher"),
    ],
)
def test_error_names_the_cause_of_an_unusable_table(
    tmp_path, monkeypatch, change, options, named
) -> None:
    monkeypatch.chdir(tmp_path)
    frame = table().assign(patient=np.arange(150) // 2)
    first = frame[:50]
    others = {"test": first, "bad": first.assign(a="x"), "less": first.drop(columns="a")}
    for name, other in (others | {"gaps": without("target", 3)(first)}).items():
        written(other, tmp_path / f"{name}.csv")
    for name in ("table.xlsx", "broken.parquet"):
        (tmp_path / name).write_text("no table")
    path = written(frame if change is None else change(frame), tmp_path / "t.csv")
    with pytest.raises((BadInput, UnknownName), match=named):
        read_source(Source(**{"data": path, "target": "target", **options}))


def test_note_about_dropped_columns_names_the_options_that_keep_columns(tmp_path) -> None:
    frame = table().assign(empty=np.nan, patient=range(150), name=[f"i{i}" for i in range(150)])
    frame["drug"] = 10**18 + np.arange(150) % 3  # a float does not keep the last digits
    data = read(written(frame, tmp_path / "t.csv"))
    assert list(data.X) == ["a", "b", "c", "count", "color", "patient", "drug"]
    for name in ("left out: empty", "left out: name", "patient", "column drug"):
        assert any(name in note for note in data.notes)
    path = written(without("target", 4)(frame), tmp_path / "gaps.csv")
    kept = read(
        path, categorical=("name", "count", "drug"), drop=("empty",), drop_missing_target=True
    )
    assert any(note.startswith("left out: 4 rows") for note in kept.notes)
    assert str(kept.X["count"].dtype) == "category"
    assert kept.X["name"].nunique() == len(kept) == 146
    assert kept.X["drug"].nunique() == 3


def test_given_test_rows_are_marked_and_read_like_training_rows(tmp_path) -> None:
    frame = table(200)
    train = written(frame[:150], tmp_path / "train.csv")
    extra = frame[150:].assign(color="mauve", note=1)[[*reversed(frame.columns), "note"]]
    data = read(train, test=written(extra, tmp_path / "test.parquet"))
    assert data.is_test.tolist() == [False] * 150 + [True] * 50
    assert list(data.X) == list(frame.drop(columns="target"))
    assert data.X["a"].tolist() == frame["a"].tolist()
    assert set(data.X["color"][150:]) == {"mauve"}
    assert data.digest() != read(written(frame, tmp_path / "all.csv")).digest()
    back = stored(data, tmp_path)
    assert back.digest() == data.digest()
    assert back.is_test.tolist() == data.is_test.tolist()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_whole_numbers_keep_the_last_digit_and_leading_zeros(tmp_path, suffix) -> None:
    """The numbers occur as groups, next to missing values, and in frames of other libraries."""
    big, who = 2**60 + 1, np.arange(150) // 3
    frame = table().assign(patient=2**60 + who, id=pd.array([big, None, big + 1] * 50, "Int64"))
    path = written(frame, tmp_path / f"t.{suffix}")
    data = read(path, group="patient")
    assert "patient" not in data.X
    assert data.groups.tolist() == who.tolist()
    ids = read_table(Location.at(path))["id"][:3]
    assert ids.dtype == "Int64"
    of_polars = checked_frame(as_pandas(pl.DataFrame({"id": [big, None, big + 1]})))["id"]
    for column in (ids, of_polars):
        assert [int(i) for i in column.dropna()] == [big, big + 1]
    sites = written(table().assign(site=["01", "1", "2"] * 50), tmp_path / f"sites.{suffix}")
    assert len(np.unique(read(sites, group="site").groups)) == 3


ARFF = """% a comment
@RELATION people
@ATTRIBUTE 'body height' NUMERIC
@ATTRIBUTE color {red,green,'light blue'}
@ATTRIBUTE note STRING
@attribute 'the day' DATE "dd/MM/yyyy HH:mm"
@attribute x REAL [-5,5]
@attribute z\tinteger % a count
@ATTRIBUTE class {kr\u00e4nklich, 'sehr gesund'} % two
@DATA
1.5,red,'a, b',"05/03/2024 10:30",1.5,2,kr\u00e4nklich
?,'light blue',?,?,2.5,?,'sehr gesund'
-2e3,?,c,?,1,1,kr\u00e4nklich
"""
SPARSE = """@RELATION sparse
@ATTRIBUTE a NUMERIC
@ATTRIBUTE b INTEGER
@ATTRIBUTE class {no,yes}
@DATA
{0 1.5, 2 yes}
{1 4}
"""


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_arff_gives_numbers_categories_strings_dates_and_missing_values(tmp_path, encoding) -> None:
    (tmp_path / "t.arff").write_bytes(ARFF.encode(encoding))
    frame = read_table(Location.at(str(tmp_path / "t.arff")))
    assert list(frame) == ["body height", "color", "note", "the day", "x", "z", "class"]
    assert frame["body height"].tolist()[::2] == [1.5, -2000.0]
    assert frame["color"].dropna().tolist() == ["red", "light blue"]
    assert frame["note"].dropna().tolist() == ["a, b", "c"]
    assert frame["the day"].tolist() == [pd.Timestamp(2024, 3, 5, 10, 30), pd.NaT, pd.NaT]
    assert frame["class"].tolist()[:2] == ["kr\u00e4nklich", "sehr gesund"]
    assert frame.isna().sum().tolist() == [1, 1, 1, 2, 0, 1, 0]


def test_sparse_arff_omits_zeros_and_first_categories(tmp_path) -> None:
    (tmp_path / "t.arff.gz").write_bytes(gzip.compress(SPARSE.encode()))
    frame = read_table(Location.at(str(tmp_path / "t.arff.gz")))
    assert frame.to_numpy().tolist() == [[1.5, 0, "yes"], [0, 4, "no"]]


@pytest.mark.parametrize(
    ("frame", "named"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "'a'"),
        (pd.DataFrame([[1, 2]], columns=["1", 1]), "'1'"),
        (pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}), "'a'"),
        (pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", "b_c"), ("a_b", "c")])),
         "'a_b_c'"),
    ],
)  # fmt: skip
def test_error_names_the_cause_of_an_unusable_dataframe(frame, named) -> None:
    with pytest.raises(BadInput, match=named):
        checked_frame(frame)


def test_target_given_as_values_becomes_a_column_and_the_frame_is_unchanged() -> None:
    given = table().set_index("count", drop=False)
    before = given.copy(deep=True)
    frame = checked_frame(given)
    shuffled = table()["target"].rename("of another index").sample(frac=1, random_state=0)
    joined, name = with_target(frame.drop(columns="target"), shuffled)
    assert name == "of another index"
    assert joined[name].tolist() == shuffled.tolist()
    dataset(joined, name)
    pd.testing.assert_frame_equal(given, before)
    joined, name = with_target(frame, frame["count"] > 5)  # named like a column
    assert name not in {None, "count"}
    assert joined["count"].tolist() == frame["count"].tolist()
    assert joined[name].tolist() == (frame["count"] > 5).tolist()
    with pytest.warns(DataConversionWarning):
        assert with_target(frame, pl.DataFrame({"y": shuffled}))[1] == "y"
    mixed = pd.Series([1, "x"] * 75, name="y", dtype=object)
    for no_target, named in (([1, 0], "2 values"), (np.zeros((150, 2)), "2"), (mixed, "'y'")):
        with pytest.raises(BadInput, match=named):
            with_target(frame, no_target)


def with_column(*parts: pa.Array) -> Callable[[Path], str]:
    """Return a writer of `table` as Parquet files whose column `added` has these parts."""

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
        WHOLE.dictionary_encode(),
    ],
    ids=str,
)
def test_parts_with_missing_or_converted_numbers_do_not_change_the_type(tmp_path, other) -> None:
    for name, parts in (("first", (other, WHOLE)), ("last", (WHOLE, other))):
        X = read(with_column(*parts)(tmp_path / name)).X
        assert X["added"].dtype == np.float64
        assert X["added"].notna().sum() == 120 - other.null_count
        assert list(X) == [*table().drop(columns="target"), "added"]


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
    listed = with_column(pa.array([[0], [1]] * 30))(tmp_path / "t")
    assert "added" not in read(listed).X
    assert any("added" in note for note in read(listed).notes)
    with pytest.raises(BadInput, match="'added'"):
        read(listed, target="added")


def in_two_levels() -> pd.DataFrame:
    names = [("B" if name == "target" else "A", name) for name in table()]
    return table().set_axis(pd.MultiIndex.from_tuples(names), axis=1)


@pytest.mark.parametrize("target", ["('B', 'target')", "B_target"])
def test_two_level_column_names_are_joined(tmp_path, target) -> None:
    in_two_levels().to_parquet(tmp_path / "t.parquet")
    of_file = read(tmp_path / "t.parquet", target=target, drop=("('A', 'count')",))
    assert list(of_file.X) == ["A_a", "A_b", "A_c", "A_color"]
    frame = checked_frame(in_two_levels())
    assert "A_a" in frame.attrs[NOTES][0]
    assert dataset(frame, target, drop=("A_count",)).digest() == of_file.digest()
    assert with_target(frame, ("B", "target"))[1] == "B_target"
    new = in_two_levels().drop(columns=[("B", "target"), ("A", "count")])
    pd.testing.assert_frame_equal(of_file.row_reader.transform(new), of_file.X)


def test_column_names_may_be_numbers(tmp_path) -> None:
    frame = table()[["a", "b", "target"]].set_axis([1, 2, 3], axis=1)
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    data = read(tmp_path / "t.parquet", target="3")
    assert data.classes == ("no", "yes")
    reader = dataset(checked_frame(frame), "3").row_reader
    pd.testing.assert_frame_equal(reader.transform(frame[[1, 2]]), data.X)


def test_index_of_a_dataframe_is_no_feature_unless_named_by_an_option(tmp_path) -> None:
    frame = table().set_index("count")
    frame.to_parquet(tmp_path / "named.parquet")
    lists = dict.fromkeys(("drop", "categorical", "key"), ("count",))
    for name, value in {"group": "count", **lists}.items():
        of_frame = dataset(checked_frame(frame), **{name: value})
        of_column = dataset(checked_frame(table()), **{name: value})
        assert read(tmp_path / "named.parquet", **{name: value}).digest() == of_frame.digest()
        of_key = {"count"} if name == "key" else set()  # an index that is a key is no feature
        assert set(of_frame.X) == set(of_column.X) - of_key
    for found in (read(tmp_path / "named.parquet"), dataset(checked_frame(frame))):
        assert "count" not in found.X
        assert any("count: the index" in note for note in found.notes)
    for plain in (table().rename_axis("row"), table().set_axis(range(5, 155))):
        plain.to_parquet(tmp_path / "plain.parquet")
        assert read(tmp_path / "plain.parquet").digest() == dataset(table()).digest()
    table().rename_axis("row").to_parquet(tmp_path / "range.parquet")
    assert len(set(read(tmp_path / "range.parquet", key=("row",)).ids)) == len(frame)
