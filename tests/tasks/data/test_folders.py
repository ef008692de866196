"""Tables in folders: parts, columns in folder names, and files that are not data."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from inputs import table, written

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.tables import read_frame


def read(folder: Path, **options) -> Dataset:
    return read_source(Source(str(folder), **{"target": "target", **options}))


def sites() -> pd.DataFrame:
    n = len(table())
    names = np.resize(["a", "b c/d", ""], n)
    return table().assign(
        site=names, year=np.resize([2023, 2024], n), code=np.resize(["01", "2"], n)
    )


def in_folders(frame: pd.DataFrame, folder: Path, columns: list[str], suffix: str = "csv") -> Path:
    """Write one part per value of the columns, in folders such as `site=a`."""
    for values, part in frame.groupby(columns):
        names = [
            f"{name}={str(value).replace('/', '%2F') or '__HIVE_DEFAULT_PARTITION__'}"
            for name, value in zip(columns, values, strict=True)
        ]
        path = folder.joinpath(*names)
        path.mkdir(parents=True)
        written(part.drop(columns=columns), path / f"part.{suffix}")
    return folder


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_folder_names_become_columns_with_the_same_types_as_in_a_file(tmp_path, suffix) -> None:
    columns = ["site", "year", "code"]
    dataset = read(in_folders(sites(), tmp_path / "t", columns, suffix))
    in_file = sites().sort_values(columns, kind="stable").drop(columns=columns)
    whole = read(written(in_file.join(sites()[columns]), tmp_path / "t.csv"))
    assert dataset.X.dtypes.to_dict() == whole.X.dtypes.to_dict()
    assert dataset.digest() == whole.digest()
    assert any("site, year, code" in note for note in dataset.notes)


def test_target_and_group_may_come_from_folder_names(tmp_path) -> None:
    frame = sites().assign(site="s" + sites()["site"], year=sites()["year"].replace(2023, "total"))
    by_target = read(in_folders(frame, tmp_path / "y", ["target", "year"]))
    assert by_target.classes == ("no", "yes")
    assert list(by_target.X["year"].cat.categories) == ["2024", "total"]
    grouped = read(in_folders(frame, tmp_path / "g", ["site", "year"]), group="site")
    assert len(np.unique(grouped.groups)) == 3
    assert "site" not in grouped.X
    file = tmp_path / "g" / "site=sa" / "year=2024" / "part.csv"
    written(pd.read_csv(file).assign(year=2030), file)  # a file has the last word
    assert (read(tmp_path / "g").X["year"] == "2030").sum() == len(pd.read_csv(file))


def test_hidden_and_unfinished_files_are_not_read(tmp_path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    table().to_parquet(folder / "part.parquet", index=False)
    plain = read(folder)
    for name in (".ipynb_checkpoints/a.parquet", "_temporary/0/a.parquet", "._part.parquet"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"no table")
    (folder / "_SUCCESS").touch()
    (folder / "empty.parquet").touch()
    dataset = read(folder)
    assert dataset.digest() == plain.digest()
    assert any("4 hidden, empty or other files" in note for note in dataset.notes)


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ("_delta_log/00000.json", "Delta Lake"),
        ("metadata/v1.metadata.json", "Iceberg"),
        (".hoodie/hoodie.properties", "Hudi"),
    ],
)
def test_table_format_with_deleted_rows_is_refused(tmp_path, log, kind) -> None:
    (tmp_path / log).parent.mkdir()
    (tmp_path / log).touch()
    (tmp_path / "data").mkdir()
    table().to_parquet(tmp_path / "data" / "part.parquet")
    for chosen in (None, "table"):
        with pytest.raises(BadInput, match=kind):
            read(tmp_path, format=chosen)


def test_parts_of_a_table_may_differ_in_order_types_and_columns(tmp_path) -> None:
    parts = [table()[:50], table()[50:100].iloc[:, ::-1], table()[:0], table()[100:]]
    for i, part in enumerate(parts):
        written(part, tmp_path / f"{i}.csv")
    file = tmp_path.with_suffix(".csv")
    assert read(tmp_path).digest() == read(written(table(), file)).digest()
    stray = parts[1].astype({"count": object})
    stray.iloc[0, stray.columns.get_loc("count")] = "many"
    written(stray, tmp_path / "1.csv")
    texts = read_frame(str(tmp_path), ())["count"]
    assert {type(text) for text in texts} == {str}
    written(parts[1].drop(columns="count"), tmp_path / "1.csv")
    with pytest.raises(BadInput, match="of one table"):
        read(tmp_path)
    note = next(note for note in read(tmp_path, format="table").notes if "missing" in note)
    assert all(named in note for named in ("count", "1 of 4", "1.csv"))
