"""Row ids, and the test rows that ids fix in every later data set."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from inputs import event_rows, stored, table, written

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import (
    Dataset,
    identity_columns,
    row_ids,
    settled_columns,
    value_ids,
)
from prefect_tune.tasks.data.forward_split import study_split
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.split import TEST
from prefect_tune.tasks.data.tables import frame_dataset


def of_frame(frame: pd.DataFrame, **options: Any) -> Dataset:
    return frame_dataset(Source("", target="target", keeps_ids=True, **options), frame)


@pytest.mark.parametrize("group", [None, "patient"])
def test_ids_are_the_same_in_csv_parquet_and_store(tmp_path, group) -> None:
    frame = table().assign(patient=np.arange(150) // 3 + 200.0)
    whole = frame.assign(patient=frame["patient"].astype(int))
    options = {"group": group, "drop": () if group else ("patient",)}
    data = of_frame(frame, **options)
    found = [data, stored(data, tmp_path)]
    paths = (written(whole, tmp_path / "t.csv"), written(frame, tmp_path / "t.parquet"))
    found += [read_source(Source(p, target="target", keeps_ids=True, **options)) for p in paths]
    ids = [row_ids(one) for one in found]
    assert all((one == ids[0]).all() for one in ids)
    assert len(np.unique(ids[0])) == (50 if group else 150)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ([250, 7], [250.0, 7.0], True),
        (["250", "x"], ["250.0", "x"], True),
        ([7, 8], ["7", "8"], True),
        (["07", "8"], ["7", "8"], False),
        (["2024-05-01", "b"], ["2024-05-01 00:00:00", "b"], True),
        ([2**53 + 1, 0], [2**53, 0], False),
    ],
)
def test_value_has_the_same_id_in_every_storage_type(one, other, is_same) -> None:
    ids = value_ids(pd.Series(one)), value_ids(pd.Series(other))
    assert (ids[0] == ids[1]).all() == is_same


def test_ids_are_stable_across_processes_and_versions() -> None:
    ids = [5717441744405258058, 6892360672924705551]
    assert value_ids(pd.Series(["x", "y"])).tolist() == ids


def test_numbers_that_become_categories_keep_the_same_ids() -> None:
    numbers = of_frame(table()[["a", "count", "target"]])
    texts = table()[["a", "count", "target"]].astype({"count": object})
    texts.loc[150] = [0.0, "many", "yes"]
    then = of_frame(texts)
    assert isinstance(then.X["count"].dtype, pd.CategoricalDtype)
    columns = ("count", "a")
    assert (row_ids(then, columns)[:150] == row_ids(numbers, columns)).all()


def test_ids_depend_on_the_features_and_not_on_the_target() -> None:
    frame = table().assign(patient=np.arange(150) // 3)
    grouped = row_ids(of_frame(frame, group="patient"))
    assert (row_ids(of_frame(frame.iloc[::-1], group="patient"))[::-1] == grouped).all()
    ids = row_ids(of_frame(frame))
    assert (row_ids(of_frame(frame.assign(target=frame["target"].to_numpy()[::-1]))) == ids).all()
    assert (row_ids(of_frame(frame[list(frame.columns[::-1])])) == ids).all()
    assert (row_ids(of_frame(frame.rename(columns={"a": "c", "c": "a"}))) != ids).all()
    assert len(np.unique(row_ids(of_frame(frame.assign(extra=1)), ("a",)))) == 150
    with pytest.raises(BadInput, match="'b'"):
        row_ids(of_frame(frame.assign(b=np.nan)), ("a", "b"))


def test_equal_rows_at_different_times_have_different_ids() -> None:
    frame = pd.concat([table(), table()], ignore_index=True)
    frame["when"] = np.repeat(["2024-01-01", "2024-01-02"], len(table()))
    then = frame.assign(when=pd.to_datetime(frame["when"]))[::-1]
    one, other = (row_ids(of_frame(given, time="when")) for given in (frame, then))
    assert not np.isin(one[: len(table())], one[len(table()) :]).any()
    assert one.tolist() == other[::-1].tolist()


def test_each_patient_stays_on_the_same_side_of_the_split() -> None:
    rows = [(patient, "2020-02-01") for patient in range(200) for _ in range(2)]
    log = [(patient, "2020-01-01", "A", 1.0) for patient in range(200)]
    y = (np.arange(400) % 3 == 0).astype(np.int32)
    data = Dataset("e", "events", event_rows(log, rows), y, (0, 1), np.arange(400) // 2)
    assert identity_columns(data) == ()
    is_test = study_split(data, 3, 0.2, 0, fixed=()).fold == TEST
    assert (is_test[::2] == is_test[1::2]).all()
    assert is_test.mean() == pytest.approx(0.2, abs=0.08)
    half = replace(data, X=data.X.take(np.arange(200, 400)), y=y[200:], groups=data.groups[200:])
    assert (study_split(half, 3, 0.2, 5, fixed=()).fold == TEST).tolist() == is_test[200:].tolist()


def test_given_or_newest_test_rows_do_not_depend_on_row_ids() -> None:
    data, is_test = of_frame(table()), np.arange(150) < 30
    given_test = study_split(replace(data, is_test=is_test), 3, None, 0, fixed=())
    assert ((given_test.fold == TEST) == is_test).all()
    timed = replace(data, times=np.arange(150.0))
    newest = study_split(timed, 3, 0.2, 0, gap_seconds=0.0, fixed=())
    assert np.flatnonzero(newest.fold == TEST).tolist() == list(range(120, 150))


FORMS = {
    "float32": (lambda f: f.astype({"a": np.float32, "b": np.float32}), set()),
    "booleans as strings": (lambda f: f.assign(ok=np.where(f["ok"], "true", "false")), set()),
    "order": (lambda f: f[f.columns[::-1]].sample(frac=1, random_state=0), set()),
    "new column": (lambda f: f.assign(more=np.arange(len(f)) % 7), set()),
    "days with a clock": (lambda f: f.assign(day=f["day"] + " 00:00:00"), set()),
    "history": (lambda f: pd.concat([known_rows(), f.assign(exported="2024-05-02")]),
                {"exported.days"}),
    "age": (lambda f: f.assign(exported="2024-05-02", age=f["age"] + 1), {"exported.days", "age"}),
    "row number": (lambda f: f.sample(frac=1, random_state=0).assign(number=np.arange(len(f))),
                   {"number"}),
}  # fmt: skip
"""Changed forms of a table, and the columns that do not identify its rows."""


def known_rows(n: int = 300, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return table(n, seed).assign(
        ok=rng.random(n) < 0.5,
        age=rng.integers(20, 90, n),
        day=rng.choice(["2023-01-01", "2023-02-01"], n),
        number=np.arange(n),
        exported="2024-05-01",
    )


@pytest.mark.parametrize("form", FORMS)
def test_rows_in_another_form_have_the_same_ids_and_side(form: str) -> None:
    """The new rows have a category and fractions that the known rows do not have."""
    more = known_rows(90, seed=2).assign(number=np.arange(300, 390), color="violet")
    more["count"] += 0.5
    change, differ = FORMS[form]
    one = of_frame(known_rows())
    other = of_frame(change(pd.concat([more[:50], known_rows(), more[50:]], ignore_index=True)))
    columns = identity_columns(one)
    settled = settled_columns(one, other, columns)
    assert set(columns) - set(settled) == differ
    sides = []
    for data, seed in ((one, 0), (other, 7)):
        is_test = study_split(data, 3, 0.2, seed, fixed=settled).fold == TEST
        sides.append(dict(zip(row_ids(data, settled).tolist(), is_test.tolist(), strict=True)))
    assert len(sides[1]) == 390
    assert sides[0] == {row: sides[1][row] for row in sides[0]}
    assert 30 < sum(sides[0].values()) < 90


def test_identity_columns_stay_the_same_if_only_new_rows_have_new_ids() -> None:
    one, other = (of_frame(known_rows(seed=seed).drop(columns="number")) for seed in (1, 2))
    columns = identity_columns(one)
    assert settled_columns(one, other, columns) == columns
    half = pd.concat([known_rows()[200:], known_rows(200, seed=2)])
    assert settled_columns(of_frame(known_rows()), of_frame(half), columns) == columns


def test_row_ids_depend_only_on_the_key_if_a_key_is_given() -> None:
    frame = table().assign(visit=np.arange(150) // 2, part=np.arange(150) % 2)
    keyed = {"key": ("visit", "part")}
    one = of_frame(frame, **keyed)
    changed = frame.assign(a=0.0, visit=frame["visit"].astype(float))[::-1]
    assert identity_columns(one) == ()
    assert (row_ids(of_frame(changed, **keyed))[::-1] == row_ids(one)).all()
    assert len(np.unique(row_ids(one))) == 150
    (note,) = (note for note in of_frame(frame, key=("visit",)).notes if "key" in note)
    assert note.startswith("150 rows")
    assert note.endswith("visit 0 in rows 1 and 2")


@pytest.mark.parametrize(
    ("key", "group", "named"),
    [(("none",), None, "'none'"), (("gap",), None, "row 4"), (("a",), "visit", "--group visit")],
)
def test_unusable_key_is_refused(key: tuple, group: str | None, named: str) -> None:
    frame = table().assign(visit=np.arange(150) // 2, gap=np.arange(150.0))
    frame.loc[3, "gap"] = np.nan
    with pytest.raises(BadInput, match=named):
        of_frame(frame, key=key, group=group)
