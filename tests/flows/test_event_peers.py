"""Other tools beside ours on patient events: splits, the plain matrix, and differences of areas."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from peer_tools.event_adapters.tuned_lightgbm import matrices
from peer_tools.event_report import areas, differences
from peer_tools.event_sets import ID, EventSet
from sklearn.metrics import roc_auc_score

pytestmark = pytest.mark.slow


@pytest.fixture
def events(tmp_path: Path) -> EventSet:
    """Sixty patients with two labels each; all have `A` 0, 10 and 100 days before the first."""
    first = pd.Timestamp("2020-06-01")
    ages, codes = [400, 100, 10, 0, -50], ["B", "A", "A", "A", "A"]
    events = pd.DataFrame(
        [
            (f"p{i}", first - pd.Timedelta(days=age), code, 1.0)
            for i in range(60)
            for age, code in zip(ages, codes, strict=True)
        ]
        + [(f"p{i}", pd.NaT, "SEX//" + "FM"[i % 2], None) for i in range(60)],
        columns=["subject_id", "time", "code", "value"],
    )
    labels = pd.DataFrame(
        [
            (f"p{i}", first + pd.Timedelta(days=days), bool(i % 3 == 0))
            for i in range(60)
            for days in (0, 100)
        ],
        columns=["subject_id", "prediction_time", "label"],
    )
    events.to_parquet(tmp_path / "events.parquet", index=False)
    labels.to_parquet(tmp_path / "labels.parquet", index=False)
    return EventSet.of(f"{tmp_path / 'events.parquet'}:{tmp_path / 'labels.parquet'}")


def test_all_rows_of_a_patient_train_or_test(events, tmp_path) -> None:
    split, again = (events.split(0, tmp_path / name) for name in ("one", "two"))
    train, test = split.labels("train"), split.labels("test")
    assert not set(train[ID]) & set(test[ID])
    assert (len(train), len(test)) == (80, 40)
    assert test["boolean_value"].mean() == pytest.approx(1 / 3, abs=0.03)
    assert split.test.read_bytes() == again.test.read_bytes()
    assert set(events.split(1, tmp_path / "one").labels("test")[ID]) != set(test[ID])


def test_the_plain_matrix_counts_events_in_windows_before_each_label(events, tmp_path) -> None:
    split = events.split(0, tmp_path / "splits")
    X, X_test = (matrix.toarray() for matrix in matrices(split))
    # age (unknown), history, then A, B, SEX//F and SEX//M as facts and in 30, 365 and all days
    assert X.shape == (80, 2 + 4 * 4)
    at_first, later = X_test[0], X_test[1]
    assert np.isnan(at_first[0])
    assert (at_first[1], later[1]) == (400, 500)
    assert sorted(at_first[4:6]) == [0, 1]
    assert at_first[6::4].tolist() == [2, 3, 3]
    assert at_first[7::4].tolist() == [0, 0, 1]
    assert later[6::4].tolist() == [0, 4, 4]


def test_a_difference_is_the_mean_over_splits_with_its_error_over_patients() -> None:
    rng = np.random.default_rng(3)
    rows = []
    for split in (0, 1):
        for i in rng.permutation(90)[:60]:
            truth = bool(i % 2)
            for tool, strength in (("ours", 0.9), ("peer", 0.3), ("same", 0.9)):
                score = round(strength * truth + np.random.default_rng(i).normal(), 1)
                rows.append(
                    {"table": "t", "split": split, "tool": tool, "patient": f"p{i}",
                     "truth": truth, "score": score}
                )  # fmt: skip
    frame = pd.DataFrame(rows)
    found, by_split = differences(frame, "ours", "peer"), areas(frame)
    mean, error = found["t"]
    assert mean == pytest.approx((by_split["ours"] - by_split["peer"]).mean())
    patients, drawn = frame["patient"].unique(), []
    for _ in range(300):
        counts = pd.Series(rng.choice(patients, len(patients))).value_counts()
        weighted = frame.assign(w=frame["patient"].map(counts).fillna(0))
        by_run = {
            key: roc_auc_score(run["truth"], run["score"], sample_weight=run["w"])
            for key, run in weighted.groupby(["split", "tool"])
        }
        drawn.append(np.mean([by_run[s, "ours"] - by_run[s, "peer"] for s in (0, 1)]))
    assert error == pytest.approx(np.std(drawn), rel=0.15)
    assert differences(frame, "ours", "same")["t"] == (0.0, 0.0)
