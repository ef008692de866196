"""Reading of large logs of events: by pieces, in order, with as few bytes as they need."""

from collections.abc import Callable
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

MEDS_DIGEST = "3839797cb9e8908533d4741ec5c1400a2a1bb4ddf56b9e64df0f500150143f64"
OMOP_DIGEST = "7ee6e2d60719f225fc40ba70592d5bcbeac41df6f4d6a87821a61e6c6282d7a6"
"""Digests of the test's events as they were when events were read whole them."""


def log(n: int = 500, ids: Callable[[int], object] = int) -> pd.DataFrame:
    """Events of 40 patients in no order, some at the same time, some without time or value."""
    rng = np.random.default_rng(0)
    time = pd.Series(pd.Timestamp(2020, 1, 1) + pd.to_timedelta(rng.integers(1, 99, n), "h"))
    return pd.DataFrame(
        {
            "subject_id": pd.Series(rng.integers(0, 40, n)).map(ids),
            "time": time.astype("datetime64[us]").mask(rng.random(n) < 0.1),
            "code": rng.choice(["B", "A", "C//é"], n, p=[0.6, 0.3, 0.1]),
            "numeric_value": np.where(rng.random(n) < 0.5, np.arange(n), np.nan),
        }
    )


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """The simplest way to the canonical frame of some events."""
    frame = frame.rename(columns={"numeric_value": "value"})
    frame = frame.sort_values(["subject_id", "time"], na_position="first", kind="stable")
    return canonical(frame.astype({"code": str}))


def shards_of(frame: pd.DataFrame, folder: Path, n: int, **options: object) -> Location:
    for i, part in enumerate(np.array_split(np.arange(len(frame)), n)):
        frame.iloc[part].to_parquet(folder / f"{i}.parquet", index=False, **options)
    return Location.at(str(folder))


def arrangements() -> dict[str, pd.DataFrame]:
    """Events in any order, by patient only, by patient and time, and with patients descending."""
    shuffled = log()
    by_patient = shuffled.sort_values("subject_id", kind="stable")
    by_time = shuffled.sort_values(["subject_id", "time"], na_position="first", kind="stable")
    descending = by_time.sort_values("subject_id", ascending=False, kind="stable")
    made = {
        "shuffled": shuffled, "by patient": by_patient, "by time": by_time,
        "descending": descending, "texts": log(ids="p{}".format),
    }  # fmt: skip
    return {name: frame.reset_index(drop=True) for name, frame in made.items()}


@pytest.mark.parametrize("name", arrangements())
@pytest.mark.parametrize("piece", [7, 10_000])
def test_events_read_in_pieces_equal_the_whole_in_order(tmp_path, monkeypatch, name, piece) -> None:
    monkeypatch.setattr(files, "_PIECE_ROWS", piece)
    frame = arrangements()[name]
    location = shards_of(frame, tmp_path, 3, row_group_size=50)
    events, notes = events_table(read_events(location), "log")
    pd.testing.assert_frame_equal(canonical(events), in_order(frame))
    assert notes == []


@pytest.mark.parametrize("index", [[], ["subject_id"]])
def test_a_parquet_file_is_read_by_pieces_whatever_its_types(tmp_path, monkeypatch, index) -> None:
    monkeypatch.setattr(files, "_PIECE_ROWS", 100)
    texts = log().assign(time=log()["time"].astype(str).replace("NaT", None))
    frame = texts.set_index(index) if index else texts
    frame.to_parquet(tmp_path / "log.parquet")
    pieces = list(read_events(Location.at(str(tmp_path / "log.parquet"))))
    assert max(map(len, pieces)) <= 100
    assert all(isinstance(piece["code"].dtype, pd.CategoricalDtype) for piece in pieces)
    events, _ = events_table(pieces, "log")
    assert len(events) == 500


@pytest.mark.parametrize("missing", [None, "NA"])
def test_gaps_of_all_pieces_are_counted(tmp_path, monkeypatch, missing) -> None:
    monkeypatch.setattr(files, "_PIECE_ROWS", 100)
    frame = log()
    frame.loc[[5, 250, 499], "code"] = missing
    with pytest.raises(BadInput, match="3 events without code"):
        events_table(read_events(shards_of(frame, tmp_path, 2)), "log")


def test_codes_that_no_event_has_are_no_codes(tmp_path) -> None:
    codes = pa.DictionaryArray.from_arrays(pa.array([2, 0, 2], pa.int32()), ["b", "never", "a"])
    time = pa.array([1, 2, 3], pa.timestamp("us"))
    table = pa.table({"subject_id": [1, 1, 2], "time": time, "code": codes})
    pq.write_table(table, tmp_path / "log.parquet")
    events, _ = events_table(read_events(Location.at(str(tmp_path / "log.parquet"))), "log")
    assert events["code"].cat.categories.tolist() == ["a", "b"]
    assert events["code"].tolist() == ["a", "b", "a"]


def test_the_digest_of_events_equals_earlier_versions(tmp_path) -> None:
    meds = Source(str(write_meds(tmp_path / "meds")), labels="labels/task")
    write_omop_log(tmp_path / "cdm")
    omop = Source(str(tmp_path / "cdm"), labels="labels.csv")
    found = [read_source(source).digest() for source in (meds, omop)]
    assert found == [MEDS_DIGEST, OMOP_DIGEST]


def test_a_frame_in_canonical_form_is_not_copied() -> None:
    frame = in_order(log())
    again = canonical(frame)
    pd.testing.assert_frame_equal(again, frame)
    for name in frame:
        values, former = again[name].array, frame[name].array
        if name == "code":
            values, former = values.codes, former.codes
        assert np.shares_memory(np.asarray(values), np.asarray(former))
    unused = frame.assign(code=frame["code"].cat.add_categories("Z"))
    unsorted = frame.assign(code=frame["code"].cat.reorder_categories(["C//é", "B", "A"]))
    for other in (unused, unsorted):
        pd.testing.assert_frame_equal(canonical(other), frame)


def results(n: int = 60) -> pd.DataFrame:
    """Results of a test: a word for two in three patients, a number with one of two units else."""
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
    """The same events with numbers and words in one column of texts."""
    words = frame["numeric_value"].astype("string").fillna(frame["text_value"])
    return frame.drop(columns=["numeric_value", "text_value"]).assign(value=words)


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("change", [pd.DataFrame.copy, merged])
def test_texts_and_several_units_become_part_of_the_code(
    tmp_path, monkeypatch, change, suffix
) -> None:
    monkeypatch.setattr(files, "_PIECE_ROWS", 7)
    location = Location.at(written(change(results()), tmp_path / f"log.{suffix}"))
    events, notes = events_table(read_events(location), "log")
    assert events["code"].cat.categories.tolist() == [
        "LAB//X//POSITIVE", "LAB//X//mg/dl", "LAB//X//mmol/l", "LAB//X//negative",
        "LAB//Y", "LAB//Y//POSITIVE", "LAB//Y//negative",
    ]  # fmt: skip
    assert set(events["value"][events["code"].isin(["LAB//X//mg/dl", "LAB//Y"])]) == {1.5}
    assert any("several units of 1 code" in note for note in notes)
    assert any("text values of 2 codes" in note for note in notes)
    known = events["code"].cat.categories
    for who in (1, 5):
        log = change(results()[lambda frame, who=who: frame["subject_id"] == who])
        alone, _ = events_table([log.assign(text_value=log.get("text_value"))], "", trained=known)
        assert alone["code"].tolist() == events["code"][events["subject_id"] == who].tolist()


def test_at_most_so_many_different_texts_are_kept(monkeypatch) -> None:
    monkeypatch.setattr(event_tables, "_MOST_SEEN", 2)
    frame = pd.DataFrame({"patient": 1, "time": "2020-01-01", "code": "C", "value_text": [*"abcd"]})
    events, _ = events_table([frame], "log")
    assert events["code"].value_counts().to_dict() == {"C": 3, "C//a": 1}


def test_a_column_that_stands_twice_is_refused(tmp_path) -> None:
    table = pa.table([[1], ["A"], ["B"]], names=["subject_id", "code", "code"])
    pq.write_table(table, tmp_path / "log.parquet")
    with pytest.raises(BadInput, match="two columns"):
        list(read_events(Location.at(str(tmp_path / "log.parquet"))))


def test_rare_long_and_unknown_texts_are_counted(monkeypatch) -> None:
    monkeypatch.setattr(event_tables, "_MOST_OF_CODE", 2)
    texts = ["often"] * 3 + ["b"] * 2 + ["a", "x" * 65]
    frame = pd.DataFrame({"patient": 1, "time": "2020-01-01", "code": "C", "value_text": texts})
    events, [count, note] = events_table([frame], "log")
    assert events["code"].value_counts().to_dict() == {"C//often": 3, "C//b": 2, "C": 2}
    assert count.startswith("2 events of log keep their code")
    assert "text values of 1 code of log" in note
    _, [unknown] = events_table([frame], "log", trained=["C//b"])
    assert unknown.startswith("5 events") and "not in the training data" in unknown  # noqa: PT018


@pytest.mark.parametrize(
    ("texts", "numbers", "codes"),
    [
        (["3,5", "7,25", "1.234,5"], [3.5, 7.25, 1234.5], {"C"}),
        (["1,234", "5"], [np.nan, 5.0], {"C", "C//1,234"}),
        (["inf", "<0.1"], [np.nan, np.nan], {"C", "C//<0.1"}),
    ],
)
def test_texts_that_are_numbers_are_values(texts, numbers, codes) -> None:
    frame = pd.DataFrame({"patient": 1, "time": "2020-01-01", "code": "C", "value": texts})
    events, notes = events_table([frame], "log")
    np.testing.assert_array_equal(events["value"], numbers)
    assert set(events["code"]) == codes
    assert any("decimal comma" in note for note in notes) == ("3,5" in texts)
