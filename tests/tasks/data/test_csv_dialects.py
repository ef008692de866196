"""CSV files as programs write them: separators, encodings, compression, titles and remarks."""

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.files import NOTES, column_names, read_table
from prefect_tune.tasks.data.location import Location
from prefect_tune.tasks.data.reading import read_features, read_source
from prefect_tune.tasks.data.source import Source


def read(folder: Path, content: str | bytes, name: str = "t.csv") -> pd.DataFrame:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    location = Location.at(str(path))
    frame = read_table(location)
    assert column_names(location) == list(frame)
    return frame


def notes(frame: pd.DataFrame) -> str:
    return "; ".join(frame.attrs.get(NOTES, ()))


MIXED = pd.DataFrame({"größe": [1.5, 2.25], "text": ["a;b", 'say "ü"'], "n": [1, 2]})
SEPARATORS = {",": "", ";": "semicolons", "\t": "tabs", "|": "pipes"}


@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_separators_and_encodings_are_recognized(tmp_path, separator, encoding) -> None:
    text = MIXED.to_csv(index=False, sep=separator)
    frame = read(tmp_path, text.encode(encoding))
    assert frame.to_dict("list") == MIXED.to_dict("list")
    assert SEPARATORS[separator] in notes(frame)
    assert (encoding in notes(frame)) == (encoding in {"utf-16", "cp1252"})


@pytest.mark.parametrize(
    "text",
    [
        "a,b,note\n1,2,x;y\n3,4,z;w;q\n",
        "a,note (u|v)\n1,x|y\n2,z|w\n",
        'a,"b;c;d"\n1,x;y;z\n2,u;v;w\n',
        "a,b\n1,2;3\n",
    ],
)
def test_comma_is_recognized_despite_other_separators_inside_fields(tmp_path, text) -> None:
    assert list(read(tmp_path, text)) == list(pd.read_csv(io.StringIO(text)))


def test_decimal_commas_give_the_exact_numbers(tmp_path) -> None:
    values = np.random.default_rng(0).normal(size=1000) * 1e-5
    rows = "".join(f"{value!r};x;007\n".replace(".", ",") for value in values.tolist())
    frame = read(tmp_path, "a;b;code\n1;x;010\n" + rows)
    assert frame["a"].tolist()[1:] == values.tolist()
    assert frame["code"].tolist()[:2] == ["010", "007"]
    assert "decimal commas" in notes(frame)


def archive_of(*names: str, content: bytes = b"a,b\n1,2\n") -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in names:
            archive.writestr(name, content if name.endswith("t.csv") else b"")
    return packed.getvalue()


def zipped(content: bytes) -> bytes:
    return archive_of("t.csv", content=content)


def zstandard(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "tsv": bytes, "txt": bytes, "csv.gz": gzip.compress, "csv.bz2": bz2.compress,
    "csv.xz": lzma.compress, "csv.zip": zipped, "csv.zst": zstandard, "zip": zipped,
}  # fmt: skip


@pytest.mark.parametrize("suffix", PACKERS)
def test_compressed_and_renamed_tables_are_read(tmp_path, suffix) -> None:
    frame = read(tmp_path, PACKERS[suffix](b"a\tb\n1\t2\n"), f"t.{suffix}")
    assert frame.to_dict("list") == {"a": [1], "b": [2]}
    assert bool(notes(frame)) == (suffix != "tsv")


def test_wide_and_long_tables_are_read_completely(tmp_path) -> None:
    names = [f"column number {i}" for i in range(100_000)]
    (tmp_path / "t.csv").write_text(";".join(names) + "\n" + ";".join("1" for _ in names) + "\n")
    assert column_names(Location.at(str(tmp_path / "t.csv"))) == names
    assert len(read(tmp_path, "a,b\n" + "é,1\n" * 400_000)) == 400_000


def test_codes_with_leading_zeros_stay_strings_and_numbers_stay_numeric(tmp_path) -> None:
    rows = '02139,0.5,0,-05,"007",012,01.5\n10115,0,1,05,12,,02\n'
    frame = read(tmp_path, "zip ,half, zero,signed,quoted,gap,mixed\n" + rows)
    texts = [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]
    assert texts == ["zip", "quoted", "gap"]  # without the blank in its name
    assert frame["zip"].tolist() == ["02139", "10115"]
    assert frame["gap"].isna().tolist() == [False, True]
    assert all(f"column {name} " in notes(frame) for name in texts)


ROWS = "".join(f"{i}.5,{-i},{'ill' if i % 2 else 'well'}\n" for i in range(1, 31))
PLAIN = "x,z,y\n" + ROWS
EXPORTS = {
    "titles": ("Report of the ward\nprinted 2024-05-01\n\n" + PLAIN, "line 4"),
    "title with commas": ("Ward 3, 4 and 5\n\n" + PLAIN, "line 3"),
    "comments": ("# of 2024-05-01\n# by lab 3, room 4, floor 1\n" + PLAIN, "line 3"),
    "merged cells": ("Values,,Outcome\n" + PLAIN, "line 2"),
    "stated separator": ("sep=;\n" + PLAIN.replace(",", ";"), "line 2"),
    "old line endings": (("Report\n\n" + PLAIN).replace("\n", "\r"), "line 3"),
    "dashes": ("x,z,y\n---,---,---\n" + ROWS, "(1)"),
    "a console": (
        " x | z | y \n---+---+---\n" + ROWS.replace(",", " | ") + "(30 rows)\n",
        "(30 rows)",
    ),
    "totals": (PLAIN + "Total:,5,\n", "Total:,5"),
    "empty rows": (PLAIN + ",,\n,,\n", "skipped 2 lines"),
    "a remark": (PLAIN + "\nSource: ward 3, 2024\n", "Source: ward 3, 2024"),
    "single quotes": (PLAIN.replace("ill", "'ill, or'").replace("well", "'well'"), "single quotes"),
    "blanks": (PLAIN.replace(",", ", ").replace("ill", '"ill, or"'), ""),
}
"""Exports of spreadsheets and consoles, and what the note on each names."""


@pytest.mark.parametrize("kind", EXPORTS)
def test_spreadsheet_exports_are_read_without_titles_and_totals(tmp_path, kind) -> None:
    text, named = EXPORTS[kind]
    frame = read(tmp_path, text)
    assert list(frame) == ["x", "z", "y"]
    assert frame["x"].tolist() == [i + 0.5 for i in range(1, 31)]
    assert frame["z"].tolist() == [-i for i in range(1, 31)]
    assert set(frame["y"]) <= {"ill", "well", "ill, or"}
    assert named in notes(frame)


def test_skipped_lines_of_test_rows_and_new_rows_are_noted(tmp_path, caplog) -> None:
    paths = [tmp_path / name for name in ("train.csv", "test.csv")]
    paths[0].write_text(PLAIN)
    paths[1].write_text(PLAIN + "Total:,5,\n")
    dataset = read_source(Source(str(paths[0]), target="y", test=str(paths[1])))
    assert any("Total:,5" in note for note in dataset.notes)
    read_features(str(paths[1]), None, dataset)
    assert "Total:,5" in caplog.text


@pytest.mark.parametrize(
    ("text", "n_rows"),
    [
        ("a,b\n1,2\nann,\n", 2),
        ("a,b,c\n1,2,x\n3,4,\n5\n", 3),
        ('a,b\n1,"x\ntwo lines"\n', 1),
        ("a,b\ntotal,2\nsum,3\ntotal,4\n", 3),
        ("#a,b\n1,2\n", 1),
        ("tag,b\n#1,2\n#2,3\n", 2),
        ("size (a, b);y\n1,5;ill\n2,5;well\n", 2),
    ],
)
def test_names_and_rows_are_not_taken_for_titles_or_remarks(tmp_path, text, n_rows) -> None:
    frame = read(tmp_path, text)
    assert len(frame) == n_rows
    assert "left out" not in notes(frame)
    assert "skipped" not in notes(frame)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (PLAIN + "1,2,3,4\n", "line 32"),
        ("Patient,12\nDate,2024\n" + PLAIN, "line 3"),
        ("a,b,target\n1,3,2,0\n2,3,4,1\n", "does not match"),
        (PLAIN + '1,"2,3\n', "row 31"),
        ("\n", "empty"),
        (archive_of("a.csv", "b.csv"), "2 files"),
        (archive_of("p.parquet"), r"p\.parquet"),
    ],
)
def test_error_names_the_place_where_a_table_cannot_be_parsed(tmp_path, content, named) -> None:
    with pytest.raises(BadInput, match=named, check=lambda error: "C error" not in str(error)):
        read(tmp_path, content)


@pytest.mark.parametrize("names", [["e/", "e/t.csv", "__MACOSX/e/._t.csv"], ["t.csv", ".DS_Store"]])
def test_files_added_by_macos_to_an_archive_are_ignored(tmp_path, names) -> None:
    frame = read(tmp_path, archive_of(*names), "t.csv.zip")
    assert frame.to_dict("list") == {"a": [1], "b": [2]}
