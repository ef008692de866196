"""DataFrames: what they may hold, and what they are called."""

import numpy as np
import pandas as pd
import pytest
from inputs import table

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.frames import checked_frame, frame_dataset, frame_name, with_target
from prefect_tune.tasks.data.source import Source


def dataset(frame: pd.DataFrame, target: str = "target", **options: object):
    return frame_dataset(Source(frame_name(frame), target=target, **options), frame)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns called 'a'"),
        (pd.DataFrame([[1, 2]], columns=["1", 1]), "two columns called '1'"),
        (
            pd.DataFrame({"a": [1, "x", 2.5]}, dtype=object),
            "'a' .* several types .*float, int, str",
        ),
        (pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}), "column 'a' .* is sparse"),
    ],
)
def test_what_no_file_could_hold_is_refused_by_name(frame, message) -> None:
    with pytest.raises(BadInput, match=message):
        checked_frame(frame)


def test_objects_are_taken_for_what_they_are() -> None:
    frame = pd.DataFrame(
        {"n": [1, None, 2.5], "b": [True, None, False], "t": ["x", None, "y"]}, dtype=object
    )
    checked = checked_frame(frame)
    assert [checked[c].dtype.kind for c in ("n", "b", "t")] == ["f", "b", "O"]
    assert checked["n"].tolist()[::2] == [1.0, 2.5]


def test_the_users_dataframe_is_not_changed() -> None:
    frame = table().set_index("count", drop=False)
    before = frame.copy(deep=True)
    checked, _ = with_target(checked_frame(frame.drop(columns="target")), frame["target"])
    dataset(checked)
    pd.testing.assert_frame_equal(frame, before)


def test_a_dataframe_is_the_same_data_as_its_file(tmp_path) -> None:
    from prefect_tune.tasks.data.reading import read_source

    table().to_parquet(tmp_path / "table.parquet")
    of_file = read_source(Source(str(tmp_path / "table.parquet"), target="target"))
    assert dataset(checked_frame(table())).digest() == of_file.digest()


def test_values_of_a_target_become_a_column_in_their_order() -> None:
    frame = checked_frame(table().drop(columns="target"))
    shuffled = table()["target"].rename("of another index").sample(frac=1, random_state=0)
    joined, name = with_target(frame, shuffled)
    assert name == "of another index"
    assert joined[name].tolist() == shuffled.tolist()
    assert with_target(frame, np.zeros(len(frame)))[1] == "target"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ([1, 0], "2 values, and the DataFrame 150 rows"),
        (pd.Series(range(150), name="colour"), "'colour', and so is a column"),
        (np.zeros((150, 2)), r"one value a row; got the shape \(150, 2\)"),
        (pd.Series([1, "x"] * 75, name="y", dtype=object), "target 'y' .* several types"),
    ],
)
def test_values_that_are_no_target_are_refused(target, message) -> None:
    with pytest.raises(BadInput, match=message):
        with_target(checked_frame(table()), target)


def test_a_name_stands_for_the_content() -> None:
    frame = checked_frame(table())
    assert frame_name(frame) == frame_name(checked_frame(table().set_index("count", drop=False)))
    changed = {
        "value": frame.assign(a=frame["a"].where(frame.index != 3, 0.0)),
        "text": frame.assign(colour=frame["colour"].replace("red", "rot")),
        "name": frame.rename(columns={"a": "A"}),
        "order": frame[frame.columns[::-1]],
        "type": frame.assign(count=frame["count"].astype(float)),
    }
    names = {frame_name(other) for other in changed.values()}
    assert len(names | {frame_name(frame)}) == len(changed) + 1


def test_gaps_in_the_target_and_texts_are_refused_as_those_of_files() -> None:
    frame = checked_frame(table())
    with pytest.raises(BadInput, match="2 of 150 rows of the DataFrame have no 'target'"):
        dataset(frame.assign(target=frame["target"].where(frame.index > 1)))
    with pytest.raises(BadInput, match="the DataFrame has text or identifier columns"):
        dataset(frame.assign(name=[f"n{i}" for i in range(150)]))
