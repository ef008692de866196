"""Equal rows: copies stay on one side, and equal test rows are scored separately."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.neighbors import KNeighborsClassifier

from prefect_tune.storage.artifacts import StoreAddress
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.forward_split import study_split
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.split import (
    TEST,
    copied_rows,
    import_split,
    load_split,
    make_split,
    split_again,
)
from prefect_tune.tasks.data.tables import frame_dataset
from prefect_tune.tasks.final.refit import loss_on_test
from prefect_tune.tasks.objective.metric import metric_named
from prefect_tune.tasks.problem import open_store

RNG = np.random.default_rng(0)


def noise(n: int) -> pd.DataFrame:
    frame = pd.DataFrame(RNG.normal(size=(n, 3)), columns=["a", "b", "c"])
    return frame.assign(y=RNG.integers(0, 2, n))


def of_frame(frame: pd.DataFrame, test: pd.DataFrame | None = None, **options: Any) -> Dataset:
    return frame_dataset(Source("", target="y", **options), frame, test)


def equal(frame: pd.DataFrame, test: pd.DataFrame) -> int | None:
    split = study_split(of_frame(frame, test.reset_index(drop=True)), 3, None, 0)
    return None if split.equal is None else int(split.equal.sum())


def oversampled() -> pd.DataFrame:
    frame = noise(300).assign(y=np.arange(300) % 8 == 0)
    return pd.concat([frame, frame[frame["y"]].sample(200, replace=True, random_state=0)])


def mostly_discrete() -> pd.DataFrame:
    frame = noise(200)[["a", "y"]].assign(b=np.arange(200) % 4, c="u")
    return pd.concat([frame, frame])


@pytest.mark.parametrize("frame", [pd.concat([noise(80)] * 6), oversampled(), mostly_discrete()])
def test_copies_of_a_row_are_all_in_the_same_fold_or_all_test_rows(frame: pd.DataFrame) -> None:
    data = of_frame(frame.sample(frac=1, random_state=0))
    number = copied_rows(data)
    split = study_split(data, 3, 0.2, 0)
    assert number is not None
    assert split.n_copied == frame.duplicated().sum()
    for one in (split, split_again(data, split)):
        assert len(np.unique(np.stack([number, one.fold]), axis=1).T) == number.max() + 1
        assert set(np.unique(one.fold)) == {TEST, 0, 1, 2}
    assert (split_again(data, split).fold != split.fold).any()


@pytest.mark.parametrize(("columns", "levels"), [(3, 2), (4, 6), (16, 2)])
def test_repeats_in_discrete_tables_are_not_copies(columns: int, levels: int) -> None:
    score = RNG.normal(size=(800, 1)) + 0.5 * RNG.normal(size=(800, columns))
    frame = pd.DataFrame(np.clip(np.round(score * levels / 4), -levels / 2, levels / 2))
    frame = frame.rename(columns=str).assign(y=score[:, 0] > 0)
    assert frame.duplicated().mean() > 0.2
    assert copied_rows(of_frame(frame)) is None
    assert equal(frame[:600], frame[600:]) is None


def test_repeated_rows_are_not_copies_if_few_or_likely_by_chance() -> None:
    frame, grade = noise(200), np.arange(400) % 10
    data = of_frame(pd.concat([frame, frame[:1]]))
    assert copied_rows(data) is None
    assert study_split(data, 3, 0.2, 0).digest() == make_split(data, 3, 0.2, 0).digest()
    assert equal(frame, pd.concat([frame[:1], noise(50)])) is None
    assert copied_rows(of_frame(pd.DataFrame({"grade": grade, "y": grade > 4}))) is None
    few = of_frame(pd.concat([noise(6).assign(y=[0, 1] * 3)] * 20))
    assert copied_rows(few) is not None
    assert study_split(few, 3, 0.2, 0).n_copied == 0  # dealt like other rows
    in_groups = pd.concat([frame] * 2, ignore_index=True).assign(g=np.arange(400) // 2)
    split = study_split(of_frame(in_groups, group="g"), 3, 0.2, 0)
    assert split.equal.sum() > 40


@pytest.mark.parametrize(
    ("change", "n_equal"),
    [
        (lambda test: test.astype(dict.fromkeys("abc", np.float32)), 40),
        (lambda test: test.map(lambda value: float(f"{value:.6g}")).astype({"y": int}), 40),
        (lambda test: test * [1.001, 1, 1, 1], None),
    ],
)
def test_training_rows_copied_into_the_test_rows_are_found_to_six_digits(
    change: Any, n_equal: int | None
) -> None:
    frame = noise(300)
    assert equal(frame, change(pd.concat([frame[:40], noise(60)]))) == n_equal


def test_equal_test_rows_are_scored_separately(tmp_path) -> None:
    frame = noise(300)
    store = open_store(StoreAddress(str(tmp_path / "store")))
    for n, is_left_out in ((30, False), (90, True), (100, True)):
        data = of_frame(frame, pd.concat([frame[:n], noise(100 - n)]))
        split = load_split(store, import_split(study_split(data, 3, None, 0), store))
        rows = np.flatnonzero(split.is_training)
        model = KNeighborsClassifier(1).fit(data.rows(rows), data.labels[rows])
        found = loss_on_test(model, data, split, metric_named("error"))
        assert (found.equal.n_equal, found.equal.n_rows) == (n, 100)
        assert found.equal.are_left_out is is_left_out
        whole, other = found.loss, found.equal.loss
        if is_left_out:
            whole, other = other, whole
        if n == 100:
            assert (whole, other) == (0, None)
        else:
            assert whole == pytest.approx(other * (100 - n) / 100)
            assert other > 0
