"""Cells are read with the same kind and value in every file type and among any other cells."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from inputs import stored, table, written
from row_forms import FORMS

from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset, import_dataset, load_dataset
from prefect_tune.tasks.data.reading import read_features, read_source
from prefect_tune.tasks.data.row_reader import (
    LearnedColumn,
    RowReader,
    UnreadableRows,
    as_pandas,
)
from prefect_tune.tasks.data.schema import features_of, like_training, read_rows
from prefect_tune.tasks.data.source import GAPS, Source
from prefect_tune.tasks.data.tables import checked_frame, frame_dataset, frame_name, read_frame

ROWS = 120
TEXTS = "category"


@dataclass(frozen=True)
class Cells:
    """Cells of a column, and how each is read.

    Attributes:
        cells: First cells of the column, repeated to its end.
        kind: Kind of the column.
        values: The cells as numbers, strings, ISO 8601 dates or seconds; None is a missing value.
            The default is `cells`.
    """

    cells: list[Any]
    kind: str = "number"
    values: list[Any] | None = None

    def column(self, n: int = ROWS) -> pd.Series:
        return pd.Series((self.cells * n)[:n], dtype=None)

    def read(self, n: int = ROWS) -> list[Any]:
        return ((self.values or self.cells) * n)[:n]


COLUMNS: dict[str, Cells] = {
    "dollars": Cells(["$4,382.40", "-$5", "($7.5)", "12"], values=[4382.4, -5, -7.5, 12]),
    "reals": Cells(["R$ 1.234,50", "R$ 5,00"], values=[1234.5, 5]),
    "lakhs": Cells(["12,34,567.5", "1,200"], values=[1234567.5, 1200]),
    "euros after": Cells(["1 234,5 €", "99 €"], values=[1234.5, 99]),
    "apostrophes": Cells(["CHF 1\u2019234.50", "CHF -3"], values=[1234.5, -3]),
    "narrow blanks": Cells(["1\u202f234,50", "-7,25"], values=[1234.5, -7.25]),
    "a unit with a digit": Cells(["1,234.5 kg/m2", "-7.25 kg/m2"], values=[1234.5, -7.25]),
    "percent": Cells(["21.57%", "-3 %", "0"], values=[21.57, -3, 0]),
    "a unit": Cells(["4382.4 mg/dL", "7 mg/dL"], values=[4382.4, 7]),
    "signs": Cells(["12.5-", "\u22123", "+4"], values=[-12.5, -3, 4]),
    "decimal commas": Cells(["0,123", "1,234"], values=[0.123, 1.234]),
    "thousands": Cells(["1,234", "1,234,567"], values=[1234, 1234567]),
    "exponents": Cells(["1.5E3", "2"], values=[1500, 2]),
    "a single zero": Cells(["1.0", "1.25"], values=[1, 1.25]),
    "ranges": Cells(["1-5", "6-9"], TEXTS),
    "versions": Cells(["1.9 a", "1.10 a", "1.9 b", "x"], TEXTS),
    "padded codes": Cells(["007", "12", None], TEXTS),
    "ordinals": Cells(["1st", "2nd", "3rd"], TEXTS),
    "two minuses": Cells(["--5", "3"], TEXTS),
    "long codes": Cells(["1234567890123456789012345", "1"], TEXTS),
    "underscores": Cells(["1_000", "2"], TEXTS),
    "hexadecimal": Cells(["12", "0x10", "7"], TEXTS),
    "lookalikes": Cells(["a", "b", "1", "1.0", "True"], TEXTS),
    "a gap": Cells(["a", "NA", None, "None"], TEXTS, ["a", None, None, "None"]),
    "fractions of 2": Cells([0.5, -1.25, None, 1e-9]),
    "too large": Cells([1e300, -3.4028234663852886e38, np.inf, 0.5], values=[None] * 3 + [0.5]),
    "whole": Cells([1, None, 2**31]),
    "truth": Cells([True, None, False], values=[1, None, 0]),
    "decimal": Cells([Decimal("1.50"), Decimal("2.25")], values=[1.5, 2.25]),
    "ISO": Cells(["2024-01-31", "2024-02-01T08:30"], "date"),
    "offsets": Cells(
        ["2024-01-31 08:30:00+02:00", "2024-02-01 08:30:00+01:00"],
        "date",
        ["2024-01-31T06:30", "2024-02-01T07:30"],
    ),
    "day first": Cells(["31/01/2024", "01/02/2024"], "date", ["2024-01-31", "2024-02-01"]),
    "month first": Cells(
        ["1/31/2024 8:30", "2/1/2024 9:30"], "date", ["2024-01-31T08:30", "2024-02-01T09:30"]
    ),
    "afternoon": Cells(
        ["1/13/2020 3:04 PM", "1/14/2020 11:04 AM"],
        "date",
        ["2020-01-13T15:04", "2020-01-14T11:04"],
    ),
    "either order": Cells(["01/02/2024", "03/04/2024"], TEXTS),
    "months by name": Cells(["13-Jan-2020", "14-Feb-2020"], "date", ["2020-01-13", "2020-02-14"]),
    "German": Cells(["31.12.20", "1.2.21", None], "date", ["2020-12-31", "2021-02-01", None]),
    "days": Cells([date(2024, 1, 31), date(2024, 2, 1)], "date", ["2024-01-31", "2024-02-01"]),
    "moments": Cells(
        [pd.Timestamp(2024, 1, 31), pd.NaT, pd.Timestamp(2024, 2, 1, 8, 30)],
        "date",
        ["2024-01-31", None, "2024-02-01T08:30"],
    ),
    "zone": Cells([pd.Timestamp("2024-07-01", tz="Europe/Berlin")], "date", ["2024-06-30T22:00"]),
    "clock": Cells(["08:30:00", "0:00:01"], "duration", [30_600, 1]),
    "times": Cells([time(8, 30), time(0, 0, 1)], "duration", [30_600, 1]),
    "spans": Cells([timedelta(1, 7200), timedelta(0), None], "duration", [93_600, 0, None]),
    "written spans": Cells(["1 days 02:00:00", "0 days"], "duration", [93_600, 0]),
    "free text": Cells([f"no pain {i}" for i in range(ROWS)], "text", [3] * ROWS),
}
"""Columns of one table, whose kind and values follow from their own cells."""


def wide() -> pd.DataFrame:
    columns = {name: cells.column() for name, cells in COLUMNS.items()}
    frame = pd.DataFrame(columns).astype({"whole": "Int64", "truth": "boolean"})
    return frame.assign(y=np.arange(ROWS) % 2)


def in_parts(suffix: str) -> Callable[[pd.DataFrame, Path], Path]:
    def write(frame: pd.DataFrame, folder: Path) -> Path:
        (folder / "parts").mkdir(exist_ok=True)
        for number, part in enumerate((frame[:70], frame[70:])):
            written(part, folder / "parts" / f"{number}.{suffix}")
        return folder / "parts"

    return write


def as_csv(**options: Any) -> Callable[[pd.DataFrame, Path], Path]:
    def write(frame: pd.DataFrame, folder: Path) -> Path:
        frame.to_csv(folder / "t.csv", index=False, **options)
        return folder / "t.csv"

    return write


def as_file(form: str) -> Callable[[pd.DataFrame, Path], Path]:
    suffix, encoded = FORMS[form]

    def write(frame: pd.DataFrame, folder: Path) -> Path:
        (folder / f"t.{suffix}").write_bytes(encoded(frame))
        return folder / f"t.{suffix}"

    return write


def of_arrow(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False)


ALL_FORMS: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    **{form: as_file(form) for form in FORMS},
    "all quoted": as_csv(quoting=1),
    "semicolons": as_csv(sep=";"),
    "folder of CSV": in_parts("csv"),
    "folder of Parquet": in_parts("parquet"),
    "frame": lambda frame, _: frame,
    "frame of objects": lambda frame, _: frame.astype(object),
    "frame of Arrow": lambda frame, _: of_arrow(frame).to_pandas(types_mapper=pd.ArrowDtype),
    "frame of polars": lambda frame, _: pl.from_arrow(of_arrow(frame)),
    "frame in nanoseconds": lambda frame, _: frame.astype({"moments": "datetime64[ns]"}),
    "lazy frame": lambda frame, _: pl.from_arrow(of_arrow(frame)).lazy(),
    "table of Arrow": lambda frame, _: of_arrow(frame),
}
"""Writers of a table; each returns a file, a folder, or the table in memory."""
ALWAYS = {"CSV", "Parquet of pandas", "folder of Parquet", "frame of polars"}
"""Forms that are tried in every run."""
SAME_NAME = [form for form in ALL_FORMS if "frame" in form and form != "frame of objects"]


def rows_of(data: Any, texts: list[str]) -> pd.DataFrame:
    return (
        read_frame(str(data), texts) if isinstance(data, Path) else checked_frame(as_pandas(data))
    )


def read(data: Any, **options: Any) -> Dataset:
    options = {"target": "y", **options}
    if isinstance(data, Path):
        return read_source(Source(str(data), **options))
    return frame_dataset(Source("", **options), checked_frame(as_pandas(data)))


def found_in(X: pd.DataFrame, column: LearnedColumn) -> list[Any]:
    """Return the values of a column in the form of `Cells.values`."""
    values = X[column.features[0]]
    if column.kind == "date":
        micros = pd.Series((values * 86_400e6).round(), dtype="Int64")
        values = pd.to_datetime(micros.astype(float), unit="us")
    return values.astype(object).where(values.notna(), None).tolist()


def expected_of(cells: Cells, n: int = ROWS) -> list[Any]:
    if cells.kind != "date":
        return cells.read(n)
    return [None if text is None else pd.Timestamp(text) for text in cells.read(n)]


def plain(X: pd.DataFrame) -> pd.DataFrame:
    """Return features with categories as strings, so that lists of categories do not matter."""
    return X.astype(dict.fromkeys(X.select_dtypes("category"), object)).reset_index(drop=True)


@pytest.fixture(scope="module")
def learned() -> Dataset:
    return read(wide())


@pytest.mark.slow
@pytest.mark.parametrize(
    "form",
    [pytest.param(one, marks=() if one in ALWAYS else pytest.mark.full) for one in ALL_FORMS],
)
def test_cell_is_read_the_same_in_every_file_type(tmp_path, form, learned) -> None:
    data = read(ALL_FORMS[form](wide(), tmp_path))
    kinds = {column.name: column.kind for column in data.row_reader.columns}
    assert kinds == {name: cells.kind for name, cells in COLUMNS.items()}
    for column in data.row_reader.columns:
        assert found_in(data.X, column) == expected_of(COLUMNS[column.name]), column.name
    assert data.digest() == learned.digest()
    if form in SAME_NAME:
        frames = [rows_of(ALL_FORMS[one](wide(), tmp_path), []) for one in (form, "frame")]
        assert frame_name(frames[0]) == frame_name(frames[1])
    for rows in ([1], [2, 119, 3], []):
        part = wide().iloc[rows].reset_index(drop=True)
        new = rows_of(ALL_FORMS[form](part, tmp_path), learned.row_reader.texts)
        new = like_training(new[new.columns[::-1]].assign(other=1), learned.row_reader)
        pd.testing.assert_frame_equal(plain(new), plain(learned.X.iloc[rows]), check_exact=True)


POINT, COMMA, CODE = {"decimal": "point"}, {"decimal": "comma"}, {"categorical": ("a",)}
BESIDE: list[tuple[Cells, dict[str, Any], list[str]]] = [
    (Cells(["1,234", "5,678"], TEXTS), {}, ["--decimal", "'1,234' in row 1"]),
    (Cells(["1,234", "5,678"], values=[1234, 5678]), POINT, []),
    (Cells(["1,234", "5,678"], values=[1.234, 5.678]), COMMA, []),
    (Cells(["1.5", "2.5", "3,5"], TEXTS), {}, ["'3,5' in row 3"]),
    (Cells([f"{'$€'[i % 2]}{i}.5" for i in range(20)], TEXTS), {}, ["'€'", "row 2"]),
    (Cells([f"{i}.5" + "%" * (i % 2) for i in range(20)], TEXTS), {}, ["'0.5' in row 1"]),
    (Cells(["NA", "?", "x", None], TEXTS, [None, None, "x", None]), {}, []),
    (Cells(["NA", "?", "x", None], TEXTS), {"na_values": ("",)}, []),
    (Cells(["NA", "?", "x", None], TEXTS, ["NA", "?", None, None]), {"na_values": ("x",)}, []),
    (Cells([-999.0, 0.5, 2.0], values=[None, 0.5, 2.0]), {"na_values": ("-999",)}, []),
    (Cells(["02139", "2139", "10001"], TEXTS), CODE, []),
    (Cells(["TRUE", "FALSE", "TRUE"], TEXTS), CODE, []),
    (Cells([1.0, None, 3.0], TEXTS, ["1", None, "3"]), CODE, []),
    *((Cells(["None", gap, "Gd"], TEXTS, ["None", None, "Gd"]), {}, []) for gap in GAPS if gap),
]
"""Cells, options of the study, and what a note must name."""


@pytest.mark.parametrize(("cells", "options", "named"), BESIDE)
def test_options_decide_how_ambiguous_cells_are_read(tmp_path, cells, options, named) -> None:
    frame = pd.DataFrame({"a": cells.column(), "word": "x", "y": np.arange(ROWS) % 2})
    for form in ("Parquet of pandas", "all quoted"):
        path = ALL_FORMS[form](frame, tmp_path)
        data = read(path, test=str(path), **options)
        column = data.row_reader.columns[0]
        assert column.kind == cells.kind
        assert found_in(data.X, column) == expected_of(cells) * 2
        assert not named or any(all(text in note for text in named) for note in data.notes)
        new = read_features(str(path), None, data, gaps=Source("", **options).gaps)
        assert found_in(like_training(new, data.row_reader), column) == expected_of(cells)


@pytest.mark.parametrize("form", ["CSV", "semicolons", "Parquet of pandas", "frame"])
@pytest.mark.parametrize(("other", "first"), [("7.25", 1234), ("7,25", 1.234)])
def test_other_columns_decide_how_commas_are_read(tmp_path, form, other, first) -> None:
    columns = {"a": ["1,234", "2,345"], "other": [other, "8"], "y": [0, 1]}
    frame = pd.DataFrame({name: cells * 60 for name, cells in columns.items()})
    assert read(ALL_FORMS[form](frame, tmp_path)).X["a"][0] == first


@pytest.mark.parametrize(
    ("cells", "kind"),
    [(["?", 1.5], "number"), ([1, "x"], TEXTS), ([time(8), "?"], "duration"),
     (pd.period_range("2024-01", periods=2, freq="M"), "date")],
)  # fmt: skip
def test_cells_that_only_dataframes_can_hold_are_read(cells, kind) -> None:
    frame = pd.DataFrame({"a": pd.Series(cells).repeat(5), "b": range(10)}).reset_index(drop=True)
    X, reader, _ = features_of(frame, (), (), "the table")
    assert reader.columns[0].kind == kind
    pd.testing.assert_frame_equal(like_training(frame, reader), X)


@pytest.mark.parametrize(
    ("known", "cells"),
    [
        (["00501", "02139", "90210"], ["501", 2139, "90210.0"]),
        (["1.50", "2.25"], [1.5, 2.25]),
        (["True", "False"], ["true", "FALSE"]),
        (["True", "False"], [1, 0.0]),
        (["2020-01-01", "2020-01-02"], ["2020-01-01T00:00:00.000000", "2020-01-02 00:00:00"]),
        (["2020-01-01 00:00:00+01:00"], ["2019-12-31T23:00:00Z"]),
        (["2020-01-01 01:00:00"], [pd.Timestamp("2020-01-01T01:00", tz="UTC")]),
        (["0.1", "0.2"], [np.float32(0.1), np.float32(0.2)]),
        (["250.00", "1E5", "007"], {"250.0": "250.0", 100000: "100000", "7.00": "7.00"}),
        (["1", "1.0", "x"], {"1.00": "1.00", "+1": "+1"}),
    ],
)
def test_categories_match_in_any_notation_and_codes_stay_distinct(known, cells) -> None:
    expected = list(cells.values()) if isinstance(cells, dict) else known
    reader = RowReader([LearnedColumn("a", "category", known=tuple(known))])
    new = like_training(pd.DataFrame({"a": pd.Series([*cells], dtype=object)}), reader)
    assert new["a"].tolist() == expected


def test_dates_have_calendar_parts_and_hours_if_any_row_has_a_clock_time(learned) -> None:
    X = learned.X
    assert X["moments.hour"][[0, 2]].tolist() == [0, 8.5]
    parts = [f"moments.{part}" for part in ("year", "month", "day", "weekday", "yearday")]
    assert X[parts].iloc[2].tolist() == [2024, 2, 1, 3, 32]
    assert "days.hour" not in X


def test_numbers_in_a_column_with_a_typo_are_read_to_the_last_bit(tmp_path, learned) -> None:
    numbers = np.random.default_rng(0).normal(size=20) * 1e-7
    frame = wide().drop(columns="y")[:20].astype({"fractions of 2": object})
    frame["fractions of 2"] = ["tall", *numbers[1:].tolist()]
    frame.to_csv(tmp_path / "new.csv", index=False)
    new, cells = learned.row_reader.read(rows_of(tmp_path / "new.csv", learned.row_reader.texts))
    assert [(cell.row, cell.column) for cell in cells] == [(0, "fractions of 2")]
    assert new["fractions of 2"].tolist()[1:] == numbers[1:].tolist()


def test_categories_of_32_bit_floats_match_the_text_in_files() -> None:
    frame = pd.DataFrame({"a": np.array([0.1, 0.2] * 5, dtype=np.float32), "y": [0, 1] * 5})
    assert list(read(frame, categorical=("a",)).X["a"].cat.categories) == ["0.1", "0.2"]


def test_unseen_category_is_kept_with_a_warning(caplog) -> None:
    training = read(table().rename(columns={"target": "y"}))
    new = like_training(table(5).assign(color="mauve"), training.row_reader)
    assert set(new["color"]) == {"mauve"}
    assert "color: 5 of 5" in caplog.text


NUMBERS = [f"{i / 7:.3f}" for i in range(1, 300)]
DAYS = [str(day.date()) for day in pd.date_range("2024-01-01", periods=300)]


@pytest.mark.parametrize(
    ("cells", "named"),
    [
        ([*NUMBERS, "tall"], "'tall' in row 300"),
        ([*DAYS, "soon"], "'soon' in row 301"),
        (["-"] * 20 + NUMBERS, "'-' in row 1"),
    ],
)
def test_typo_among_numbers_or_dates_is_refused(cells, named) -> None:
    frame = pd.DataFrame({"a": cells, "y": np.arange(len(cells)) % 2})
    with pytest.raises(BadInput, match=named, check=lambda e: "--na-values" in e.remedy):
        read(frame)


@pytest.mark.parametrize(
    ("cells", "named"),
    [
        (["NA", "EU", "none"] * 50, ["'NA'", "column a"]),
        ([*map(str, range(40)), "unknown"] * 5, ["'unknown'"]),
        ([f"{'<' * (i % 8 == 0)}{i / 7:.3f}" for i in range(1, 200)] * 2, ["'<"]),
        ([f"{i},5" if i < 200 else f"{i}.5" for i in range(300)], ["left out: a", "row 201"]),
        ([*map(str, range(100)), "1" + "0" * 40] * 2, ["column a: infinite"]),
        ([f"2023-02-{i % 28 + 1:02}" if i % 2 else f"{i % 28 + 1:02}.03.2023" for i in range(240)],
         ["several formats"]),
        ([f"{i % 12 + 1:02}/{i // 12 % 12 + 1:02}/2023" for i in range(240)], ["is unclear"]),
    ],
)  # fmt: skip
def test_columns_that_stay_strings_or_lose_values_are_noted(cells, named) -> None:
    frame = pd.DataFrame({"a": cells, "b": np.arange(len(cells)) % 7})
    data = read(frame.assign(y=np.arange(len(cells)) % 2))
    assert sum(all(text in note for text in named) for note in data.notes) == 1


def test_later_rows_are_read_in_the_learned_notation_and_typos_are_named() -> None:
    frame = pd.DataFrame({"a": ["$1.50", "$2"] * 40, "day": ["31.12.2024", "1.2.2024"] * 40})
    reader = read(frame.assign(y=[0, 1] * 40)).row_reader
    new = pd.DataFrame({"a": ["$1,234.5", "3", "€3", "3%"], "day": "2024-12-31"})
    new.loc[1, "day"] = "2024/31/12"
    read_, cells = read_rows(new, reader, "new rows")
    assert read_["a"].tolist()[:2] == [1234.5, 3]
    assert read_["a"][2:].isna().all()
    strays = {(cell.row, cell.column, cell.value) for cell in cells}
    assert strays == {(2, "a", "€3"), (3, "a", "3%"), (1, "day", "2024/31/12")}
    with pytest.raises(BadInput, match="row 2"):
        like_training(new, reader)
    with pytest.raises(UnreadableRows, match="row 2"):
        reader.transform(new)
    with pytest.raises(BadInput, match="'day'"):
        like_training(new.drop(columns="day"), reader)


def test_decimal_mark_of_the_training_rows_applies_to_later_files(tmp_path) -> None:
    """Neither a typo nor a file without commas changes how a cell is read."""
    lines = ["name;size;sales;y", *(f"a;{i},5;{i}.250;{i}.500" for i in range(1, 100))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    (tmp_path / "test.csv").write_text("name;size;sales;y\na;7;3.250;3.500\na;8;4.250;4.500\n")
    data = read(tmp_path / "t.csv", test=str(tmp_path / "test.csv"))
    assert data.X["size"][[0, 98, 99]].tolist() == [1.5, 99.5, 7]
    assert data.X["sales"][[0, 98, 99]].tolist() == [1250, 99250, 3250]
    assert data.y[[0, 98, 99]].tolist() == [1500, 99500, 3500]
    assert any("decimal commas" in note for note in data.notes)
    for slip in ("", "a;k.A.;1.250\n"):
        (tmp_path / "new.csv").write_text(f"name;size;sales\na;40,5;2.250\n{slip}")
        new, cells = data.row_reader.read(read_features(str(tmp_path / "new.csv"), None, data))
        assert [cell.value for cell in cells] == ["k.A."] * bool(slip)
        assert new.iloc[0, 1:].tolist() == [40.5, 2250]


@pytest.mark.parametrize(("decimal", "first"), [(None, 1.501), ("point", 1.501), ("comma", 1501)])
def test_given_decimal_mark_overrides_the_default(tmp_path, decimal, first) -> None:
    lines = ["a\ty", *(f"{i}.{500 + i}\t{i}.{500 + i}" for i in range(1, 100))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    data = read(tmp_path / "t.csv", test=str(tmp_path / "t.csv"), decimal=decimal)
    assert data.X["a"][[0, 99]].tolist() == data.y[[0, 99]].tolist() == [first] * 2


def test_equal_numbers_in_different_notations_are_one_data_set(tmp_path) -> None:
    store = ArtifactStore(StoreAddress(str(tmp_path / "store")))
    forms = (["1.5", "2"], ["$1.50", "$2"], ["1,5", "2"])
    frames = [pd.DataFrame({"a": texts * 40, "y": [0, 0, 1, 1] * 20}) for texts in forms]
    digests = {import_dataset(read(frame), store) for frame in frames}
    assert len(digests) == 1
    loaded = load_dataset(store, digests.pop())
    found, cells = loaded.row_reader.read(pd.DataFrame({"a": ["$7", "7,5", "7.5", "1,234"]}))
    assert found["a"].tolist()[:3] == [7, 7.5, 7.5]
    assert [cell.row for cell in cells] == [3]  # another number in each notation
    store.close()


def test_reader_is_stored_and_part_of_the_digest(tmp_path, learned) -> None:
    back = stored(learned, tmp_path)
    assert back.digest() == learned.digest()
    assert back.row_reader.to_json() == learned.row_reader.to_json()
    known = [[c.known for c in data.row_reader.columns] for data in (back, learned)]
    assert known[0] == known[1]
    X, reader = learned.X, learned.row_reader
    pd.testing.assert_frame_equal(reader.transform(X), X)  # features are read as they are
    other = RowReader([*reader.columns[:-1], LearnedColumn("free text", "text", n_words=16)])
    assert learned.digest() != replace(learned, reader=other).digest()


@pytest.mark.parametrize("write", ["{:,.1f}", "${:.1f}", "{:.1f} kg"])
def test_target_of_numbers_as_strings_is_numeric_also_in_test_rows(tmp_path, write) -> None:
    numbers = np.random.default_rng(0).normal(2000, 800, 150).round(1)
    plain_ = table().assign(target=numbers)
    texts = plain_.assign(target=[write.format(number) for number in numbers])
    paths = [written(frame, tmp_path / f"{i}.csv") for i, frame in enumerate((texts, plain_))]
    for data, test in (paths, paths[::-1]):
        found = read_source(Source(data, "target", test=test))
        assert found.classes == ()
        assert found.y.tolist() == [*numbers, *numbers]
    for stray in ("<1000", "#DIV/0!"):
        slip = texts.assign(target=[stray, *texts["target"][1:]])
        with pytest.raises(BadInput, match=stray, check=lambda e: "--na-values" in e.remedy):
            read(slip, target="target")
    few = texts.assign(target=["$1", "$2"] * 75)
    assert read(few, target="target").classes == ("$1", "$2")
