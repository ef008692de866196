"""Changes between the data of two studies, and columns that a champion needs."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from inputs import events, table

from prefect_tune.flows.series.question import changes_between, check_needs
from prefect_tune.flows.series.view import change_texts
from prefect_tune.storage.series import Changes
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.reading import events_dataset
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.tables import table_dataset

ROWS = table(60)


def data(frame: pd.DataFrame) -> Dataset:
    return table_dataset(Source("t", target="target"), "t", frame)


def of_events(events: pd.DataFrame, labels: pd.DataFrame) -> Dataset:
    events = events.rename(columns={"numeric_value": "value"})
    rows, target = labels[["subject_id", "prediction_time"]], labels["boolean_value"]
    return events_dataset(Source("e"), "e", events, rows, target)


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        (ROWS[:50], ROWS[3:].sample(frac=1.0, random_state=0),
         Changes(rows_added=10, rows_removed=3)),
        (ROWS, pd.concat([ROWS, ROWS[:7]]), Changes(rows_added=7)),
    ],
    ids=["other rows", "equal rows count as often as they occur"],
)  # fmt: skip
def test_added_and_removed_rows_are_counted(old, new, changes) -> None:
    assert changes_between(data(old), data(new)) == changes


def test_rows_with_a_changed_target_are_counted() -> None:
    for frame in (ROWS, ROWS.assign(target=np.arange(60.0))):
        other = frame.copy()
        other.loc[:6, "target"] = frame["target"].to_numpy()[::-1][:7]
        n_changed = int((other["target"] != frame["target"]).sum())
        changes = changes_between(data(frame), data(other[::-1]))
        assert changes == Changes(targets_changed=n_changed) != Changes()
    frame = ROWS.assign(target=(ROWS["target"] == "yes").astype(int))
    truths = frame.assign(target=frame["target"].map({0: "FALSE", 1: "TRUE"}))
    for form in (frame.astype({"target": float}), frame.astype({"target": str}), truths):
        assert changes_between(data(frame), data(form)) == Changes()


def test_columns_and_classes_are_counted() -> None:
    new = ROWS.assign(fresh=1.5)
    new.loc[:4, "target"] = "unsure"
    changes = changes_between(data(ROWS.rename(columns={"a": "old"})), data(new))
    assert list(change_texts(changes)) == [
        "+2 columns", "-1 column", "+1 class", "5 targets changed",
    ]  # fmt: skip


def test_only_new_rows_are_counted_as_added_in_reformatted_snapshots() -> None:
    rng, rows, before = np.random.default_rng(0), table(200).assign(ok=True), None
    forms = [
        lambda f: f,
        lambda f: f.astype({"a": np.float32, "b": np.float32, "c": np.float32}),
        lambda f: f.assign(ok=f["ok"].map({True: "TRUE", False: "FALSE"})),
        lambda f: f.assign(ok=f["ok"].astype(int), count=f["count"].astype(float)),
        lambda f: f[f.columns[::-1]].sample(frac=1, random_state=0),
        lambda f: f.assign(more=np.arange(len(f)) % 3),
    ]
    for night, form in enumerate(forms):
        n_new = int(rng.integers(1, 60))
        more = table(n_new, seed=night + 1).assign(ok=np.arange(n_new) % 2 == 0)
        rows = pd.concat([rows, more], ignore_index=True)
        now = data(form(rows).assign(exported=f"2024-05-{night + 1:02}"))
        if before is not None:
            changes = changes_between(before, now)
            found = changes.rows_added, changes.rows_removed, changes.targets_changed
            assert found == (n_new, 0, 0)
            assert list(change_texts(changes))[-1].endswith(": exported")
        before = now


def test_rows_with_changed_events_are_found() -> None:
    told, labels = events()
    old = of_events(told, labels)
    codes = told["code"].replace({"B": "C"}).where(told["subject_id"] == 100, told["code"])
    changes = changes_between(old, of_events(told.assign(code=codes), labels))
    assert changes == Changes(rows_added=2, rows_removed=2)  # both rows of the patient
    later = pd.concat([told, told[told["code"] == "LATER"].assign(time=pd.Timestamp(2023, 1, 1))])
    assert changes_between(old, of_events(later, labels)) == Changes()  # after all predictions


def test_error_names_columns_that_the_champion_needs() -> None:
    champion, new = data(ROWS), data(ROWS.drop(columns=["a", "color"]))
    check_needs("n-1", champion, data(ROWS.assign(fresh=2.0)))
    with pytest.raises(BadInput, check=lambda e: "a, color" in e.reason):
        check_needs("n-1", champion, new)
    explained = replace(data(ROWS.drop(columns="a")), notes=("left out: a (no values)",))
    with pytest.raises(BadInput, match="no values"):
        check_needs("n-1", champion, explained)
