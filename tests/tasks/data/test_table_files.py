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
from inputs import table

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.location import Location
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.table_files import column_names, read_table

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
