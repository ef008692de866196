"""Rows are read as the study learned its columns, each by itself, in whatever form they come."""

from dataclasses import replace
from datetime import date, time
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import table
from row_forms import FORMS, FRAME

from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import import_dataset, load_dataset
from prefect_tune.tasks.data.row_reader import LearnedColumn, RowReader, UnreadableRows, is_gap
from prefect_tune.tasks.data.schema import features_of, like_training
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.tables import checked_frame, frame_dataset, read_frame


def learned() -> tuple[pd.DataFrame, RowReader]:
    X, reader, _ = features_of(FRAME, (), (), "the table")
    return X, reader


def plain(X: pd.DataFrame) -> pd.DataFrame:
    """Features with categories as texts: which other categories occur does not matter."""
    return X.astype(dict.fromkeys(X.select_dtypes("category"), object)).reset_index(drop=True)


def test_each_column_becomes_what_its_kind_says() -> None:
    X, reader = learned()
    assert {column.name: column.kind for column in reader.columns} == {
        "number": "number",
        "whole": "number",
        "truth": "number",
        "category": "category",
        "code": "category",
        "moment": "date",
        "day": "date",
        "wait": "duration",
        "note": "text",
    }
    assert "NA" not in X["category"].cat.categories
    row = FRAME["moment"].first_valid_index()
    moment = FRAME["moment"][row]
    assert X["moment.days"][row] * 86_400 == (moment - pd.Timestamp(0)).total_seconds()
    assert X["moment.weekday"][row] == moment.weekday()
    assert "day.hour" not in X
    assert X["wait"].max() == FRAME["wait"].max().total_seconds()
    assert X["note.words"].max() == max(len(str(note).split()) for note in FRAME["note"])
    assert X.isna().sum().loc[["number", "whole", "truth", "code", "moment.days"]].eq(24).all()


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=15, deadline=None)
@given(
    order=st.permutations(range(12)),
    ends=st.lists(st.integers(0, 12), max_size=3),
    first=st.integers(0, len(FRAME) - 12),
)
def test_a_row_is_read_alike_alone_and_in_any_file_and_order(
    tmp_path_factory, form, order, ends, first
) -> None:
    X, reader = learned()
    suffix, write = FORMS[form]
    folder = tmp_path_factory.mktemp("new")
    rows = [first + position for position in order]
    bounds = sorted({0, 12, *ends})
    for start, stop in pairwise(bounds):
        path = folder / f"{start}.{suffix}"
        path.write_bytes(write(FRAME.iloc[rows[start:stop]].reset_index(drop=True)))
        new = like_training(read_frame(str(path), reader.texts), reader)
        expected = plain(X.iloc[rows[start:stop]])
        pd.testing.assert_frame_equal(plain(new), expected, check_exact=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame,
        lambda frame: frame.astype(object),
        lambda frame: frame.astype({"category": "category", "truth": object}),
        lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
        lambda frame: frame.assign(moment=frame["moment"].dt.tz_localize("UTC")),
        lambda frame: frame.astype({"code": "float64", "wait": str, "moment": str, "number": str}),
        lambda frame: frame[frame.columns[::-1]].assign(other=1),
    ],
)
def test_a_dataframe_of_any_types_is_read_as_the_file(change) -> None:
    X, reader = learned()
    for rows in (slice(0, 240), slice(7, 8), slice(30, 33)):
        new = like_training(checked_frame(change(FRAME.iloc[rows])), reader)
        pd.testing.assert_frame_equal(plain(new), plain(X.iloc[rows]), check_exact=True)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([date(2024, 1, 31), date(2024, 2, 1)], "date"),
        (["2024-01-31", "2024-02-01T08:30"], "date"),
        (["2024-01-31 08:30:00+02:00", "2024-02-01 08:30:00+01:00"], "date"),
        (["31/01/2024", "01/02/2024"], "date"),
        (["1/31/2024 8:30", "2/1/2024 9:30"], "date"),
        (["01/02/2024", "03/04/2024"], "category"),
        (["2024-01-15 03:00:00+00", "2024-01-16 03:00:00+00"], "date"),
        (["13-Jan-2020", "14-Feb-2020"], "date"),
        (["1/13/2020 3:04 PM", "1/14/2020 11:04 AM"], "date"),
        (["31.12.20", "1.2.21"], "date"),
        (["2024-01-31", "soon"], "category"),
        ([time(8, 30), time(0, 0, 1)], "duration"),
        (["08:30:00", "0:00:01"], "duration"),
        (["1 days 02:00:00", "0 days"], "duration"),
        ([Decimal("1.5"), Decimal(2)], "number"),
        ([True, None], "number"),
        (["?", 1.5], "number"),
        ([1, "x"], "category"),
        (pd.period_range("2024-01", periods=2, freq="M"), "date"),
    ],
)
def test_the_kind_of_a_column_is_found_out(values, kind) -> None:
    frame = pd.DataFrame({"a": pd.Series(values, dtype=None).repeat(5), "b": range(10)})
    X, reader, _ = features_of(frame.reset_index(drop=True), (), (), "the table")
    assert reader.columns[0].kind == kind
    pd.testing.assert_frame_equal(like_training(frame, reader), X)


def test_what_cannot_be_read_is_named_with_its_row() -> None:
    _, reader = learned()
    frame = FRAME.astype(object)
    frame.loc[17, "number"] = "tall"
    frame.loc[30, "day"] = "2024/31/12"
    with pytest.raises(BadInput, match=r"18 .*'tall'.*'number'"):
        like_training(checked_frame(frame), reader)
    with pytest.raises(UnreadableRows, match="row 18"):
        reader.transform(frame)
    X, cells = reader.read(checked_frame(frame))
    assert [(cell.row, cell.column) for cell in cells] == [(17, "number"), (30, "day")]
    assert np.isnan(X["number"][17])
    with pytest.raises(BadInput, match="no column 'wait'"):
        like_training(frame.drop(columns="wait"), reader)


@pytest.mark.parametrize(
    ("known", "written"),
    [
        (["00501", "02139", "90210"], [501, 2139, 90210]),
        (["00501", "02139", "90210"], ["501", 2139.0, "90210.0"]),
        (["1.50", "2.25"], [1.5, 2.25]),
        (["True", "False"], ["true", "FALSE"]),
        (["True", "False"], [1, 0.0]),
        (["true", "false"], [True, np.bool_(False)]),
        (["2020-01-01", "2020-01-02"], ["2020-01-01T00:00:00.000000", "2020-01-02 00:00:00"]),
        (["2020-01-01 00:00:00+01:00"], ["2019-12-31T23:00:00Z"]),
        (["2020-01-01 01:00:00"], [pd.Timestamp("2020-01-01T01:00", tz="UTC")]),
        (["0.1", "0.2"], [np.float32(0.1), np.float32(0.2)]),
    ],
)
def test_a_category_is_found_however_its_number_truth_or_date_is_written(known, written) -> None:
    reader = RowReader([LearnedColumn("a", "category", known=tuple(known))])
    new = like_training(pd.DataFrame({"a": pd.Series(written, dtype=object)}), reader)
    assert new["a"].tolist() == known
    codes = RowReader([LearnedColumn("a", "category", known=("250.00", "1E5", "007"))])
    other = ["250.0", "100000", 100000, "7.00"]
    assert like_training(pd.DataFrame({"a": other}, dtype=object), codes)["a"].tolist() == [
        "250.0", "100000", "100000", "7.00",
    ]  # fmt: skip
    ambiguous = RowReader([LearnedColumn("a", "category", known=("1", "1.0", "x"))])
    assert like_training(pd.DataFrame({"a": ["1.00"]}), ambiguous)["a"].tolist() == ["1.00"]


def test_categories_of_short_floats_and_truths_of_arrow_are_what_files_write() -> None:
    frame = pd.DataFrame({"a": np.array([0.1, 0.2] * 5, dtype=np.float32), "b": range(10)})
    frame["c"] = pd.Series([True, None] * 5, dtype=pd.ArrowDtype(pa.bool_()))
    X, reader, _ = features_of(frame, (), ("a",), "the table")
    assert list(X["a"].cat.categories) == ["0.1", "0.2"]
    assert reader.columns[2].kind == "number"
    cells = [np.int64(-999), np.float32(-999), Decimal(-999), "-999.0", np.str_("NA"), 1, True]
    column = pd.Series(cells, dtype=object)
    assert is_gap(column, ("-999", "NA")).tolist() == [True] * 5 + [False] * 2


def test_a_few_texts_among_numbers_that_make_them_categories_are_noted() -> None:
    frame = pd.DataFrame({"age": [*map(str, range(40)), "unknown"] * 5, "b": range(205)})
    _, reader, notes = features_of(frame, (), (), "the table")
    assert reader.columns[0].kind == "category"
    assert any("'unknown'" in note and "--na-values unknown" in note for note in notes)


def test_a_file_without_rows_has_no_features_and_no_error() -> None:
    _, reader = learned()
    assert like_training(FRAME.head(0), reader).shape == (0, 148)


COMMAS = "name;size;sales\n" + "".join(
    f"a;{170 + i},{i % 10};{1 + i // 30}.{i:03}\n" for i in range(200)
)


def test_decimal_commas_are_read_cell_by_cell_as_the_study_learned_them(tmp_path) -> None:
    """Neither a slip nor a row without a comma changes how others are read."""
    (tmp_path / "t.csv").write_text(COMMAS)
    frame = read_frame(str(tmp_path / "t.csv"), ())
    X, reader, notes = features_of(frame, (), (), "t.csv")
    assert X["size"][[0, 11]].tolist() == [170.0, 181.1]
    assert X["sales"][[0, 31]].tolist() == [1000.0, 2031.0]
    assert any("decimal commas" in note for note in notes)
    lines = COMMAS.splitlines()
    rows = {"slip.csv": [1, 2, 40], "one.csv": [40], "points.csv": [40, 41]}
    for name, chosen in rows.items():
        new = [lines[row] for row in chosen]
        if name == "slip.csv":
            new[0] = "a;k.A.;1.000"
        if name == "points.csv":
            new[1] = "a;211.5;2.040"
        (tmp_path / name).write_text("\n".join([lines[0], *new]))
        found = read_frame(str(tmp_path / name), reader.texts)
        read, cells = reader.read(found)
        assert [cell.value for cell in cells] == (["k.A."] if name == "slip.csv" else [])
        row = chosen.index(40)
        assert read.iloc[row].tolist() == X.iloc[39].tolist()


def test_columns_of_two_levels_or_numbers_as_names_are_read_as_they_were_called() -> None:
    two = pd.concat({"A": FRAME[["number"]], "B": FRAME[["whole"]]}, axis=1)
    X, reader, _ = features_of(checked_frame(two), (), (), "the table")
    pd.testing.assert_frame_equal(reader.transform(two), X)
    numbered = pd.DataFrame({0: range(10), 1: range(10)})
    X, reader, _ = features_of(checked_frame(numbered), (), (), "the table")
    pd.testing.assert_frame_equal(reader.transform(numbered), X)


@pytest.mark.parametrize("column", ["1.5 2.5 x", "2024-01-01 2024-01-02 soon"])
def test_a_slip_among_numbers_or_dates_is_named(column) -> None:
    *right, slip = column.split()
    if right[0].startswith("2024"):
        right = [str(day.date()) for day in pd.date_range("2024-01-01", periods=300)]
    else:
        right = [f"{i}.5" for i in range(300)]
    frame = pd.DataFrame({"a": [*right, slip], "b": range(301)})
    with pytest.raises(BadInput, match=rf"{slip}.*301.*--na-values"):
        features_of(frame, (), (), "the table")


def test_a_target_in_a_dataframe_has_its_type_and_its_gaps() -> None:
    frame = table().drop(columns="target")
    targets: list[tuple[tuple, list]] = [
        ((False, True), [True, False, None]),
        ((0, 1), [0, 1, "NA"]),
        (("a", "b"), ["a", "b", "NA"]),
        ((0.5, 1.5), [0.5, 1.5, None]),
    ]
    for classes, values in targets:
        given = frame.assign(y=pd.Series(values * 50, dtype=object))
        source = Source("the DataFrame", target="y", drop_missing_target=True)
        assert frame_dataset(source, given).classes == classes


def test_the_user_says_which_texts_are_missing() -> None:
    frame = table().assign(region=["NA", "EU", "none"] * 50)
    of_options = {None: ["EU", "none"], ("none",): ["EU", "NA"], ("",): ["EU", "NA", "none"]}
    for named, expected in of_options.items():
        data = frame_dataset(Source("", target="target", na_values=named), frame)
        assert list(data.X["region"].cat.categories) == expected
        assert data.row_reader is not None
        new = like_training(frame, data.row_reader)
        assert list(new["region"].cat.categories) == expected
    numbers = table().assign(dose=[-999, 1, 2] * 50, code=pd.Categorical([-999, 1, 2] * 50))
    data = frame_dataset(Source("", target="target", na_values=("-999",)), numbers)
    assert data.X[["dose", "code"]].isna().sum().tolist() == [50, 50]
    for kind in (float, str, object):
        new = like_training(numbers.astype({"dose": kind, "code": kind}), data.row_reader)
        pd.testing.assert_frame_equal(new, data.X)
    [note] = [n for n in frame_dataset(Source("", target="target"), frame).notes if "'NA'" in n]
    assert "region" in note


def test_the_reader_is_stored_with_the_data_set_and_is_part_of_its_digest(tmp_path) -> None:
    dataset = frame_dataset(Source("", target="y"), FRAME.assign(y=[0, 1] * 120))
    store = ArtifactStore(StoreAddress(str(tmp_path / "store")))
    back = load_dataset(store, import_dataset(dataset, store))
    assert back.row_reader is not None
    assert back.row_reader.to_json() == dataset.row_reader.to_json()
    assert [c.known for c in back.row_reader.columns] == [
        c.known for c in dataset.row_reader.columns
    ]
    X, reader = dataset.X, dataset.row_reader
    other = RowReader([*reader.columns[:-1], LearnedColumn("note", "text", n_words=16)])
    assert dataset.digest() != replace(dataset, reader=other).digest()
    pd.testing.assert_frame_equal(reader.transform(X), X)  # features are read as they are
    store.close()


def test_features_of_csv_rows_come_from_what_stands_in_the_file(tmp_path) -> None:
    """A column of numbers with one text is read row by row, to the last bit."""
    _, reader = learned()
    some = FRAME.head(20).astype({"number": object})
    some.loc[3, "number"] = "tall"
    some.to_csv(tmp_path / "new.csv", index=False)
    read, cells = reader.read(read_frame(str(tmp_path / "new.csv"), reader.texts))
    assert [cell.row for cell in cells] == [3]
    expected = FRAME["number"].head(20).astype(float)
    expected[3] = np.nan
    assert read["number"].tolist() == pytest.approx(expected.tolist(), abs=0, rel=0, nan_ok=True)
