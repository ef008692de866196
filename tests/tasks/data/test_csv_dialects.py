"""CSV files as programs write them: separators, encodings, compression, gaps and padded codes."""

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
from inputs import events, table, written

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.files import NOTES, column_names, read_table
from prefect_tune.tasks.data.location import Location
from prefect_tune.tasks.data.reading import read_features, read_source
from prefect_tune.tasks.data.source import Source


def read(folder: Path, content: str | bytes, name: str = "t.csv", **options) -> pd.DataFrame:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    location = Location.at(str(path))
    frame = read_table(location, **options)
    assert column_names(location) == list(frame)
    return frame


def notes(frame: pd.DataFrame) -> str:
    return "; ".join(frame.attrs.get(NOTES, ()))


MIXED = pd.DataFrame({"größe": [1.5, 2.25], "text": ["a;b", 'say "ü"'], "n": [1, 2]})


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_separators_and_encodings_are_recognised(tmp_path, separator, encoding) -> None:
    text = MIXED.to_csv(index=False, sep=separator)
    frame = read(tmp_path, text.encode(encoding))
    assert frame.to_dict("list") == MIXED.to_dict("list")
    named = {"semicolons": ";", "tabs": "\t", "pipes": "|"}
    assert [word for word in named if word in notes(frame)] == [
        word for word, mark in named.items() if mark == separator
    ]
    assert (encoding in notes(frame)) == (encoding in ("utf-16", "cp1252"))


@pytest.mark.parametrize(
    "text",
    [
        "a,b,note\n1,2,x;y\n3,4,z;w;q\n",
        "a,note (u|v)\n1,x|y\n2,z|w\n",
        'a,"b;c;d"\n1,x;y;z\n2,u;v;w\n',
        "a,b\n1,2;3\n",
    ],
)
def test_other_marks_in_fields_do_not_break_commas(tmp_path, text) -> None:
    expected = pd.read_csv(io.StringIO(text))
    assert list(read(tmp_path, text)) == list(expected)


def test_decimal_commas_give_the_exact_numbers(tmp_path) -> None:
    values = np.random.default_rng(0).normal(size=1000) * 1e-5
    rows = "".join(f"{value!r};x\n".replace(".", ",") for value in values.tolist())
    frame = read(tmp_path, "a;b\n1;x\n" + rows)
    assert frame["a"].tolist()[1:] == values.tolist()
    assert "decimal commas" in notes(frame)
    mixed = read(tmp_path, "a;b\n1,5;2.5\n")
    assert mixed.iloc[0].tolist() == [1.5, 2.5]


@pytest.mark.parametrize("name", ["t.tsv", "t.txt"])
def test_tables_may_be_called_otherwise(tmp_path, name) -> None:
    frame = read(tmp_path, "a\tb\n1\t2\n", name)
    assert frame.to_dict("list") == {"a": [1], "b": [2]}
    assert bool(notes(frame)) == (name == "t.txt")


def zipped(content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("t.csv", content)
    return packed.getvalue()


def zstandard(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zip": zipped, "zst": zstandard,
}  # fmt: skip


@pytest.mark.parametrize("suffix", PACKERS)
def test_compressed_tables_are_unpacked(tmp_path, suffix) -> None:
    frame = read(tmp_path, PACKERS[suffix](b"a,b\n1,2\n"), f"t.csv.{suffix}")
    assert frame.to_dict("list") == {"a": [1], "b": [2]}


def test_long_tables_have_the_names_of_their_first_line(tmp_path) -> None:
    names = [f"column number {i}" for i in range(100_000)]
    text = ";".join(names) + "\n" + ";".join("1" for _ in names) + "\n"
    (tmp_path / "t.csv").write_text(text)
    assert column_names(Location.at(str(tmp_path / "t.csv"))) == names
    assert len(read(tmp_path, "a,b\n" + "é,1\n" * 400_000)) == 400_000


def test_codes_with_leading_zeros_stay_texts_and_numbers_numbers(tmp_path) -> None:
    frame = read(
        tmp_path,
        'zip,half,zero,signed,quoted,gap,mixed\n02139,0.5,0,-05,"007",012,01.5\n'
        "10115,0,1,05,12,,02\n",
    )
    texts = [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]
    assert texts == ["zip", "quoted", "gap"]
    assert frame["zip"].tolist() == ["02139", "10115"]
    assert frame["gap"].isna().tolist() == [False, True]
    assert all(f"column {name} " in notes(frame) for name in texts)


def test_blanks_around_column_names_are_no_part_of_them(tmp_path) -> None:
    content = "code ,n, text\n007,1,a\n010,2,b\n"
    frame = read(tmp_path, content)
    assert frame["code"].tolist() == ["007", "010"]
    part = read_table(Location.at(str(tmp_path / "t.csv")), only={"n", "code"})
    assert list(part) == ["code", "n"]


def test_padded_codes_may_be_small_in_a_table_with_decimal_commas(tmp_path) -> None:
    frame = read(tmp_path, "code;x\n007;1,5\n010;2,5\n")
    assert frame["code"].tolist() == ["007", "010"]


def test_classes_and_groups_keep_their_leading_zeros(tmp_path) -> None:
    frame = table().assign(target=["007", "12"] * 75, site=["01", "1", "2"] * 50)
    dataset = read_source(Source(written(frame, tmp_path / "t.csv"), "target", group="site"))
    assert dataset.classes == ("007", "12")
    assert len(np.unique(dataset.groups)) == 3


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("given", "gaps"), [(None, 3), (("",), 1), (("unknown",), 2), (("NA", "unknown"), 3)]
)
def test_na_values_replace_the_texts_that_count_as_missing(tmp_path, suffix, given, gaps) -> None:
    texts = ["NA", "?", "unknown", None, "x", "y"]
    path = written(pd.DataFrame({"a": texts, "target": [0, 1] * 3}), tmp_path / f"t.{suffix}")
    source = Source(path, "target", na_values=given)
    assert read_source(source).X["a"].isna().sum() == gaps


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_number_may_stand_for_a_gap(tmp_path, suffix) -> None:
    frame = table().assign(count=[-999, 1, 2] * 50, a=[-999.0, 0.5, 2.0] * 50)
    path = written(frame, tmp_path / f"t.{suffix}")
    source = Source(path, "target", test=path, na_values=("-999",))
    X = read_source(source).X
    assert X["count"].isna().sum() == X["a"].isna().sum() == 100
    new = read_features(path, None, read_source(source), gaps=source.gaps)
    assert new["count"].isna().sum() == 50


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_events_called_na_need_a_list_of_their_own(tmp_path, suffix) -> None:
    log, labels = events()
    log["code"] = log["code"].replace("B", "NA")
    log["time"] = log["time"].astype(object).where(log["time"].notna(), pd.Timestamp(2019, 1, 1))
    paths = [written(f, tmp_path / f"{n}.{suffix}") for n, f in (("e", log), ("l", labels))]
    with pytest.raises(BadInput, match=r"160 .*NA.*--na-values"):
        read_source(Source(paths[0], labels=paths[1]))
    dataset = read_source(Source(paths[0], labels=paths[1], na_values=("?",)))
    assert "NA" in dataset.X.codes
    with pytest.raises(BadInput, match="NA"):
        read_features(paths[0], paths[1], dataset)
    assert read_features(paths[0], paths[1], dataset, gaps=("", "?")).events.equals(
        dataset.X.events
    )


ROWS = "".join(f"{i}.5,{-i},{'ill' if i % 2 else 'well'}\n" for i in range(1, 31))
PLAIN = "x,z,y\n" + ROWS
EXPORTS = {
    "titles": ("Report of the ward\nprinted 2024-05-01\n\n" + PLAIN, "line 4"),
    "title with commas": ("Ward 3, 4 and 5\n\n" + PLAIN, "line 3"),
    "titles in cells": ("Report,,\n,,\n" + PLAIN, "line 3"),
    "comments": ("# of 2024-05-01\n# by lab 3, room 4, floor 1\n" + PLAIN, "line 3"),
    "merged cells": ("Values,,Outcome\n" + PLAIN, "line 2"),
    "stated separator": ("sep=;\n" + PLAIN.replace(",", ";"), "line 2"),
    "old line ends": (("Report\n\n" + PLAIN).replace("\n", "\r"), "line 3"),
    "dashes": ("x,z,y\n---,---,---\n" + ROWS, "dashes or comments left out (1)"),
    "a console": (
        " x | z | y \n---+---+---\n" + ROWS.replace(",", " | ") + "(30 rows)\n",
        "(30 rows)",
    ),
    "totals": (PLAIN + "Total:,5,\n", "Total:,5"),
    "empty rows": (PLAIN + ",,\n,,\n", "(2)"),
    "a remark": (PLAIN + "\nSource: ward 3, 2024\n", "Source: ward 3, 2024"),
    "single quotes": (PLAIN.replace("ill", "'ill, or'").replace("well", "'well'"), "single quotes"),
    "blanks": (PLAIN.replace(",", ", ").replace("ill", '"ill, or"'), ""),
}


@pytest.mark.parametrize("kind", EXPORTS)
def test_exports_of_spreadsheets_are_read_without_titles_and_totals(tmp_path, kind) -> None:
    text, note = EXPORTS[kind]
    frame = read(tmp_path, text)
    assert list(frame) == ["x", "z", "y"]
    assert frame["x"].tolist() == [i + 0.5 for i in range(1, 31)]
    assert frame["z"].tolist() == [-i for i in range(1, 31)]
    assert set(frame["y"]) <= {"ill", "well", "ill, or"}
    assert note in notes(frame)


def test_lines_skipped_in_test_rows_and_in_new_rows_are_noted(tmp_path, caplog) -> None:
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
        ("id;text;y\n0;a, b, c;ill\n1;d, e, f;well\n", 2),
        ("size (a, b);y\n1,5;ill\n2,5;well\n", 2),
    ],
)
def test_names_and_rows_are_no_titles_and_remarks(tmp_path, text, n_rows) -> None:
    frame = read(tmp_path, text)
    assert len(frame) == n_rows
    assert "left out" not in notes(frame)
    assert "skipped" not in notes(frame)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PLAIN + "1,2,3,4\n", "line 32, saw"),
        ("Patient,12\nDate,2024\n" + PLAIN, "line 3, saw"),
        (PLAIN + '1,"2,3\n', "at row 31"),
    ],
)
def test_a_table_that_cannot_be_parsed_is_refused_with_its_line(tmp_path, text, reason) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(BadInput, match=reason) as error:
        read_table(Location.at(str(tmp_path / "t.csv")))
    assert "C error" not in str(error.value)


@pytest.mark.parametrize("names", [["e/", "e/t.csv", "__MACOSX/e/._t.csv"], ["t.csv", ".DS_Store"]])
def test_files_that_a_mac_adds_to_an_archive_are_no_tables(tmp_path, names) -> None:
    with zipfile.ZipFile(tmp_path / "t.csv.zip", "w") as archive:
        for name in names:
            archive.writestr(
                name, "a,b\n1,2\n" if name.endswith("/t.csv") or name == "t.csv" else ""
            )
    assert read_table(Location.at(str(tmp_path / "t.csv.zip"))).to_dict("list") == {
        "a": [1],
        "b": [2],
    }
    with zipfile.ZipFile(tmp_path / "two.csv.zip", "w") as archive:
        archive.writestr("a.csv", "")
        archive.writestr("b.csv", "")
    with pytest.raises(BadInput, match=r"2 files \(a.csv, b.csv\)"):
        read_table(Location.at(str(tmp_path / "two.csv.zip")))


@pytest.mark.parametrize(("content", "reason"), [("\n", "empty"), ("PAR1", "is a Parquet")])
def test_a_file_that_is_no_text_table_is_called_so(tmp_path, content, reason) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(BadInput, match=reason):
        read_table(Location.at(str(tmp_path / "t.csv")))


def test_an_archive_needs_no_suffix_of_its_table(tmp_path) -> None:
    frame = read(tmp_path, zipped(b"a;b\n1,5;2\n2,5;3\n"), "t.zip")
    assert frame["b"].tolist() == [2, 3]
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        archive.writestr("p.parquet", "PAR1")
    with pytest.raises(BadInput, match=r"unpack p\.parquet"):
        read_table(Location.at(str(tmp_path / "p.zip")))
