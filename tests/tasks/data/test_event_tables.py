"""Event logs: read in pieces and sorted; strings and units become part of codes."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inputs import write_meds, write_omop_log, written

from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data import event_tables, files
from prefect_tune.tasks.data.event_tables import events_table, read_events
from prefect_tune.tasks.data.location import Location
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source


def log(n: int = 500, ids: str = "") -> pd.DataFrame:
    """Return events of 40 patients in random order, with ties and missing times or values."""
    rng = np.random.default_rng(0)
    time = pd.Series(pd.Timestamp(2020, 1, 1) + pd.to_timedelta(rng.integers(1, 99, n), "h"))
    who = pd.Series(rng.integers(0, 40, n))
    return pd.DataFrame(
        {
            "subject_id": who.map(ids.format) if ids else who,
            "time": time.astype("datetime64[us]").mask(rng.random(n) < 0.1),
            "code": rng.choice(["B", "A", "C//é"], n, p=[0.6, 0.3, 0.1]),
            "numeric_value": np.where(rng.random(n) < 0.5, np.arange(n), np.nan),
        }
    )


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the canonical frame of some events in the simplest way."""
    frame = frame.rename(columns={"numeric_value": "value"})
    frame = frame.sort_values(["subject_id", "time"], na_position="first", kind="stable")
    return canonical(frame.astype({"code": str}))


def shards_of(frame: pd.DataFrame, folder: Path) -> Location:
    for i, part in enumerate(np.array_split(np.arange(len(frame)), 3)):
        frame.iloc[part].to_parquet(folder / f"{i}.parquet", index=False, row_group_size=50)
    return Location.at(str(folder))


BY_PATIENT, BY_TIME = {"by": "subject_id"}, {"by": ["subject_id", "time"], "na_position": "first"}
ARRANGED = {
    "shuffled": log(),
    "by patient": log().sort_values(**BY_PATIENT, kind="stable", ignore_index=True),
    "by time": log().sort_values(**BY_TIME, kind="stable", ignore_index=True),
    "descending": log().sort_values("subject_id", ascending=False, ignore_index=True),
    "texts": log(ids="p{}"),
}


@pytest.mark.parametrize("name", ARRANGED)
@pytest.mark.parametrize("piece", [7, 10_000])
def test_events_read_in_pieces_equal_the_sorted_whole(tmp_path, monkeypatch, name, piece) -> None:
    monkeypatch.setattr(files, "_PIECE_ROWS", piece)
    pieces = [*read_events(shards_of(ARRANGED[name], tmp_path))]
    assert max(map(len, pieces)) <= piece
    assert all(isinstance(piece["code"].dtype, pd.CategoricalDtype) for piece in pieces)
    events, notes = events_table(pieces, "log")
    pd.testing.assert_frame_equal(canonical(events), in_order(ARRANGED[name]))
    assert notes == []


@pytest.mark.parametrize("missing", [None, "NA"])
def test_missing_values_are_counted_over_all_pieces(tmp_path, monkeypatch, missing) -> None:
    monkeypatch.setattr(files, "_PIECE_ROWS", 100)
    frame = log()
    frame.loc[[5, 250, 499], "code"] = missing
    with pytest.raises(BadInput, match="3 events without"):
        events_table(read_events(shards_of(frame, tmp_path)), "log")


def test_codes_of_any_type_are_read_and_only_used_codes_are_kept(tmp_path) -> None:
    indices = pa.array([2, 0, 2], pa.int32())
    time = pa.array([1, 2, 3], pa.timestamp("us"))
    for codes in (
        pa.DictionaryArray.from_arrays(indices, ["b", "never", "a"]),
        pa.array(["a", "b", "a"], pa.string_view()),
        pa.array(["a", "b", "a"], pa.large_string()),
    ):
        table = pa.table({"subject_id": [1, 1, 2], "time": time, "code": codes})
        pq.write_table(table, tmp_path / "log.parquet")
        events, _ = events_table(read_events(Location.at(str(tmp_path / "log.parquet"))), "log")
        assert events["code"].cat.categories.tolist() == ["a", "b"]
        assert events["code"].tolist() == ["a", "b", "a"]
    doubled = pa.table([[1], ["A"], ["B"]], names=["subject_id", "code", "code"])
    pq.write_table(doubled, tmp_path / "log.parquet")
    with pytest.raises(BadInput, match="two columns"):
        list(read_events(Location.at(str(tmp_path / "log.parquet"))))


def test_digest_of_events_is_the_same_as_in_earlier_versions(tmp_path) -> None:
    """Stored studies are found by this digest, which was computed on whole logs."""
    meds = Source(str(write_meds(tmp_path / "meds")), labels="labels/task")
    omop = Source(str(write_omop_log(tmp_path / "cdm")), labels="labels.csv")
    assert [read_source(source).digest() for source in (meds, omop)] == [
        "3839797cb9e8908533d4741ec5c1400a2a1bb4ddf56b9e64df0f500150143f64",
        "7ee6e2d60719f225fc40ba70592d5bcbeac41df6f4d6a87821a61e6c6282d7a6",
    ]


def results(n: int = 60) -> pd.DataFrame:
    """Return laboratory results: a word for two in three patients, else a number with a unit."""
    who = np.arange(n)
    is_number = who % 3 == 2
    return pd.DataFrame(
        {
            "subject_id": who,
            "time": pd.Timestamp(2024, 5, 1, 8),
            "code": np.where(who % 2, "LAB//X", "LAB//Y"),
            "numeric_value": np.where(is_number, 1.5, np.nan),
            "text_value": pd.Series(np.where(who % 3, "POSITIVE", "negative ")).mask(is_number),
            "unit": pd.Series(np.where(who % 4 < 2, "mg/dL", "mmol/L")).mask(who % 2 == 0, "MG/dL"),
        }
    )


def merged(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the same events with numbers and words in one column of strings."""
    words = frame["numeric_value"].astype("string").fillna(frame["text_value"])
    return frame.drop(columns=["numeric_value", "text_value"]).assign(value=words)


@pytest.mark.parametrize(("change", "suffix"), [(pd.DataFrame.copy, "parquet"), (merged, "csv")])
def test_strings_and_units_become_part_of_the_code(tmp_path, monkeypatch, change, suffix) -> None:
    monkeypatch.setattr(files, "_PIECE_ROWS", 7)
    location = Location.at(written(change(results()), tmp_path / f"log.{suffix}"))
    events, notes = events_table(read_events(location), "log")
    assert events["code"].cat.categories.tolist() == [
        "LAB//X//POSITIVE", "LAB//X//mg/dl", "LAB//X//mmol/l", "LAB//X//negative",
        "LAB//Y", "LAB//Y//POSITIVE", "LAB//Y//negative",
    ]  # fmt: skip
    assert set(events["value"][events["code"].isin(["LAB//X//mg/dl", "LAB//Y"])]) == {1.5}
    assert any("several units of 1 code" in note for note in notes)
    assert any("string values of 2 codes" in note for note in notes)
    known = events["code"].cat.categories
    for who in (1, 5):
        one = change(results()[lambda frame, who=who: frame["subject_id"] == who])
        alone, _ = events_table([one.assign(text_value=one.get("text_value"))], "", trained=known)
        assert alone["code"].tolist() == events["code"][events["subject_id"] == who].tolist()


def with_texts(texts: list[str], column: str = "value_text") -> pd.DataFrame:
    return pd.DataFrame({"patient": 1, "time": "2020-01-01", "code": "C", column: texts})


def test_rare_long_and_unknown_strings_are_counted(monkeypatch) -> None:
    monkeypatch.setattr(event_tables, "_MOST_OF_CODE", 2)
    frame = with_texts(["often"] * 3 + ["b"] * 2 + ["a", "x" * 65])
    events, [count, _] = events_table([frame], "log")
    assert events["code"].value_counts().to_dict() == {"C//often": 3, "C//b": 2, "C": 2}
    assert count.startswith("2 events")
    _, [unknown] = events_table([frame], "log", trained=["C//b"])
    assert unknown.startswith("5 events")
    monkeypatch.setattr(event_tables, "_MOST_SEEN", 2)
    events, _ = events_table([with_texts([*"abcd"])], "log")
    assert events["code"].value_counts().to_dict() == {"C": 3, "C//a": 1}


@pytest.mark.parametrize(
    ("texts", "numbers", "codes"),
    [
        (["3,5", "7,25", "1.234,5"], [3.5, 7.25, 1234.5], {"C"}),
        (["1,234", "5"], [np.nan, 5.0], {"C", "C//1,234"}),
        (["inf", "<0.1"], [np.nan, np.nan], {"C", "C//<0.1"}),
    ],
)
def test_numeric_strings_become_values(texts, numbers, codes) -> None:
    events, notes = events_table([with_texts(texts, "value")], "log")
    np.testing.assert_array_equal(events["value"], numbers)
    assert set(events["code"]) == codes
    assert any("decimal comma" in note for note in notes) == ("3,5" in texts)
