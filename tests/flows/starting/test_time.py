"""Studies whose folds look forward in time."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from inputs import QUICK, events, table

from prefect_tune.flows.comparison.comparison import prepare_comparison
from prefect_tune.flows.starting.prepare import PreparedStudy
from prefect_tune.flows.starting.resume import CannotContinue
from prefect_tune.storage.keys import split_record
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import REFIT, Split, load_split


def visits(n: int = 150) -> pd.DataFrame:
    days = np.random.default_rng(0).permutation(n)
    start = pd.Timestamp("2020-01-01")
    return table(n).assign(visit=(start + pd.to_timedelta(days, unit="D")).astype(str))


@pytest.fixture
def timed(prepared) -> Any:
    """Prepare a study of visits, with `visit` as the time column by default."""
    visits().to_csv("visits.csv", index=False)

    def enter(**options: object) -> PreparedStudy:
        given = {"target": "target", "time": "visit", "study": "one", "folds": 3, **QUICK}
        return prepared("visits.csv", **given, **options)  # type: ignore[no-any-return]

    return enter


def split_of(study: PreparedStudy) -> tuple[Split, Any]:
    problem = study.plan.problem
    times = load_dataset(study.store, problem.dataset).times
    return load_split(study.store, problem.split), times


def lose_split(study: PreparedStudy) -> None:
    """Remove the stored split, so that the next command makes it again."""
    record = split_record(study.plan.problem.split)
    study.store.records.link([record], study.name)
    study.store.records.release(study.name, [record])
    load_split.cache_clear()
    assert not study.store.records.exists(record)


def test_time_split_looks_forward_and_resumes_only_with_the_same_time_and_gap(
    timed, prepared
) -> None:
    study = timed(gap="5d")
    split, times = split_of(study)
    assert split.n_training(REFIT) == 115  # 30 test rows, 5 of the gap
    for fold in (0, 1, 2, REFIT):
        training = times[split.training(fold, np.zeros(150, dtype=np.int32))]
        assert times[split.held_out(fold)].min() - training.max() > np.timedelta64(5, "D")
    assert study.plan.looks_forward
    lose_split(study)  # which is made again
    again = timed(gap="5d")
    assert split_of(again)[0].digest() == split.digest()
    assert prepared("visits.csv", target="target", study="one").plan.problem == study.plan.problem
    with pytest.raises(CannotContinue, match="--gap"):
        timed(gap="6d")
    with pytest.raises(CannotContinue, match="--time"):
        prepared("visits.csv", target="target", study="one", time="count")


LOG = {"labels": "labels.csv", "format": "events", "folds": 2, "space": "healthcare"}


def write_log(labels: pd.DataFrame | None = None) -> None:
    log, usual = events()
    log.to_csv("events.csv", index=False)
    (usual if labels is None else labels).to_csv("labels.csv", index=False)


def test_gap_requires_times(prepared) -> None:
    with pytest.raises(BadInput, check=lambda e: e.option == "gap"):
        prepared("train.csv", target="target", gap="30d")
    write_log()
    for options, named in (({"time": "subject_id"}, "prediction_time"), ({"gap": "1d"}, "--group")):
        with pytest.raises(BadInput, match=named):
            prepared("events.csv", **LOG, **options)
    plain = prepared("events.csv", **LOG, study="plain")
    with pytest.raises(CannotContinue, match="no --time"):
        prepared("events.csv", **LOG, study="plain", time="prediction_time")
    assert not plain.plan.looks_forward


@pytest.mark.parametrize(("options", "seconds"), [
    ({"time": "prediction_time"}, 0.0), ({"gap": "2d"}, 2 * 86_400.0),
])  # fmt: skip
def test_folds_of_events_look_forward_by_prediction_times(prepared, options, seconds) -> None:
    labels = pd.DataFrame({"subject_id": range(100, 140), "boolean_value": [0, 1] * 20})
    write_log(labels.assign(prediction_time=pd.date_range("2020-02-01", periods=40)))
    study = prepared("events.csv", **LOG, **options)
    split = load_split(study.store, study.plan.problem.split)
    assert split.gap_seconds == seconds
    assert split.held_out(REFIT).tolist() == list(range(32, 40))
    assert prepared("events.csv", **LOG).plan.problem.dataset == study.plan.problem.dataset


def test_repeats_of_a_comparison_by_time_hold_out_newer_rows(timed) -> None:
    timed()
    parameters = {
        "data": "visits.csv", "target": "target", "time": "visit", "gap": "5d", "folds": 3,
        "methods": "random,tpe", "space": "small", "trials": 1, "repeats": 2, "name": "both",
    }  # fmt: skip
    first = prepare_comparison(parameters)
    for replicate in first.replicates:
        split = load_split(first.store, replicate.prepared.plan.problem.split)
        assert split.gap_seconds == 5 * 86_400.0
    del parameters["time"], parameters["gap"]
    again = prepare_comparison({**parameters, "repeats": 3})
    assert {r.prepared.plan.options.time for r in again.replicates} == {"visit"}
