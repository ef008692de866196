"""Impossible labels are counted and listed, and refused if they are the majority."""

import json
from pathlib import Path

import pandas as pd
import pytest
from command_line import CommandLine
from inputs import write_table, written

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.reading import explained_labels, read_source
from prefect_tune.tasks.data.source import Source

FAULTS = {
    1: ("2021-01-01", "of patients without any event"),
    2: ("2020-01-01", "without an event"),
    3: ("1949-01-01", "before the birth"),
    4: ("2022-01-01", "after the death"),
    5: ("2250-01-01", "in the future"),
    6: ("2021-01-01", "that contradict"),
}
"""Time and fault of a label of each patient."""


def source(folder: Path, n: int = 40, shift: str = "0D") -> Source:
    """Return events of patients 2 to n, their labels, and the labels with faults."""
    rows = [(who, "2020-06-01", "A") for who in range(2, n)] + [(3, "1948-01-01", "OLD")]
    rows += [(who, "1950-01-01", "MEDS_BIRTH") for who in range(2, n)]
    rows += [(4, "2021-06-01", "MEDS_DEATH")]
    events = pd.DataFrame(rows, columns=["patient", "time", "code"])
    labels = [(who, "2021-01-01", who % 2) for who in range(7, n)] + [(6, "2021-01-01", 1)]
    labels += [(who, time, 0) for who, (time, _) in FAULTS.items()]
    labels += [(7, "2021-01-01", 1)]  # the same label again
    given = pd.DataFrame(labels, columns=["patient", "prediction_time", "label"])
    for frame, name in ((events, "time"), (given, "prediction_time")):
        frame[name] = pd.to_datetime(frame[name]) + pd.Timedelta(shift)
    paths = (written(events, folder / "e.csv"), written(given, folder / "l.csv"))
    return Source(paths[0], labels=paths[1])


def test_impossible_labels_are_listed_and_refused_if_most_are_impossible(tmp_path) -> None:
    given = source(tmp_path)
    faults = explained_labels(given)
    assert set(faults["subject_id"]) == {*FAULTS}
    dataset = read_source(given)
    [note] = [note for note in dataset.notes if "cannot be right" in note]
    assert note.startswith("7 of 41 labels")
    for who, (_, why) in FAULTS.items():
        assert any(why in fault for fault in faults["fault"][faults["subject_id"] == who]), why
        assert why in note
    assert set(dataset.X.rows["subject_id"]) == {*range(3, 40)}
    shifted = explained_labels(source(tmp_path, shift="40000D"))
    assert not shifted["fault"].str.contains("future").any()
    with pytest.raises(BadInput, match="7 of 13"):
        read_source(source(tmp_path, 12))


def test_explain_labels_lists_faults_and_starts_no_study(tmp_path) -> None:
    given, run = source(tmp_path), CommandLine(tmp_path / "home")
    found = run("run", given.data, "--labels", given.labels, "--explain-labels", "--json")
    assert found.exit_code == 0, found.stderr
    assert {row["subject_id"] for row in json.loads(found.stdout)} == {*FAULTS}
    options = ("--target", "target", "--explain-labels")
    assert run("run", write_table(tmp_path), *options).exit_code == 2
