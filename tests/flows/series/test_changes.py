"""What changed between the data of two studies, and what a champion needs."""

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

SOURCE = Source("t", target="target")


def data(frame: pd.DataFrame) -> Dataset:
    return table_dataset(SOURCE, "t", frame)


def of_events(events: pd.DataFrame, labels: pd.DataFrame) -> Dataset:
    events = events.rename(columns={"numeric_value": "value"})
    rows, target = labels[["subject_id", "prediction_time"]], labels["boolean_value"]
    return events_dataset(Source("e"), "e", events, rows, target)


def test_added_and_removed_rows_are_counted_whatever_their_order() -> None:
    old, new = table(60)[:50], table(60)[3:]
    shuffled = new.sample(frac=1.0, random_state=0)
    changes = changes_between(data(old), data(shuffled))
    assert changes == Changes(rows_added=10, rows_removed=3)
    assert list(change_texts(changes)) == ["+10 rows", "-3 rows"]


def test_equal_rows_count_as_often_as_they_occur() -> None:
    frame = table(40)
    twice = pd.concat([frame, frame[:7]])
    assert changes_between(data(frame), data(twice)) == Changes(rows_added=7)


def test_whole_numbers_that_became_fractions_are_the_same_rows() -> None:
    frame = table(40)
    as_float = frame.assign(count=frame["count"].astype(float))
    assert changes_between(data(frame), data(as_float)) == Changes()


@pytest.mark.parametrize("numbers", [False, True])
def test_rows_with_another_target_are_counted(numbers: bool) -> None:
    frame = table(60)
    if numbers:
        frame["target"] = np.arange(60.0)
    other = frame.copy()
    other.loc[:6, "target"] = frame["target"].to_numpy()[::-1][:7]
    n_changed = int((other["target"] != frame["target"]).sum())
    changes = changes_between(data(frame), data(other[::-1]))
    assert n_changed > 0
    assert changes == Changes(targets_changed=n_changed)


def test_columns_and_classes_are_counted() -> None:
    old = table(60).rename(columns={"a": "old"})
    new = table(60).assign(fresh=1.5)
    new.loc[:4, "target"] = "unsure"
    changes = changes_between(data(old), data(new))
    assert list(change_texts(changes)) == [
        "+2 columns", "-1 column", "+1 class", "5 targets changed",
    ]  # fmt: skip


def test_ten_snapshots_in_changed_forms_have_exactly_their_new_rows() -> None:
    rng, rows, before = np.random.default_rng(0), table(200).assign(ok=True), None
    forms = [
        lambda f: f,
        lambda f: f.astype({"a": np.float32, "b": np.float32, "c": np.float32}),
        lambda f: f.assign(ok=f["ok"].map({True: "TRUE", False: "FALSE"})),
        lambda f: f.assign(ok=f["ok"].astype(int), count=f["count"].astype(float)),
        lambda f: f[f.columns[::-1]].sample(frac=1, random_state=0),
        lambda f: f.assign(more=np.arange(len(f)) % 3),
    ]
    for night in range(10):
        n_new = int(rng.integers(1, 60))
        more = table(n_new, seed=night + 1).assign(ok=np.arange(n_new) % 2 == 0)
        rows = pd.concat([rows, more], ignore_index=True)
        now = data(forms[night % len(forms)](rows).assign(exported=f"2024-05-{night + 1:02}"))
        if before is not None:
            changes = changes_between(before, now)
            assert (changes.rows_added, changes.rows_removed) == (n_new, 0)
            assert changes.targets_changed == 0
            assert list(change_texts(changes))[-1].startswith("exported differs")
        before = now


def test_targets_in_another_form_have_not_changed() -> None:
    frame = table(60).assign(target=lambda f: (f["target"] == "yes").astype(int))
    for form in (bool, float, str):
        assert changes_between(data(frame), data(frame.astype({"target": form}))) == Changes()
    truths = frame["target"].map({0: "FALSE", 1: "TRUE"})
    assert changes_between(data(frame), data(frame.assign(target=truths))) == Changes()


def test_rows_with_other_events_are_found() -> None:
    told, labels = events()
    old = of_events(told, labels)
    more = told.assign(
        code=told["code"].replace({"B": "C"}).where(told["subject_id"] == 100, told["code"])
    )
    changes = changes_between(old, of_events(more, labels))
    assert changes == Changes(rows_added=2, rows_removed=2)  # both rows of the patient
    later = pd.concat([told, told[told["code"] == "LATER"].assign(time=pd.Timestamp(2023, 1, 1))])
    assert changes_between(old, of_events(later, labels)) == Changes()  # after all predictions


def test_a_champion_needs_its_columns() -> None:
    champion, new = data(table(60)), data(table(60).drop(columns=["a", "colour"]))
    with pytest.raises(BadInput, match=r"n-1 .* a, colour"):
        check_needs("n-1", champion, new)
    check_needs("n-1", champion, data(table(60).assign(fresh=2.0)))


def test_a_column_that_was_not_read_is_explained() -> None:
    champion = data(table(60))
    new = replace(data(table(60).drop(columns="a")), notes=("left out: a (no values)",))
    with pytest.raises(BadInput, match="no values"):
        check_needs("n-1", champion, new)
