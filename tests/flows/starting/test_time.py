"""Studies whose folds look forward in time, and studies whose test rows are fixed by a hash."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from inputs import QUICK, events, table

from prefect_tune.flows.comparison.comparison import prepare_comparison
from prefect_tune.flows.options.declared import OPTIONS
from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.results.predict import final_model
from prefect_tune.flows.starting.prepare import PreparedStudy
from prefect_tune.flows.starting.resolve import resolve
from prefect_tune.flows.starting.resume import CannotContinue, resume
from prefect_tune.flows.starting.study_input import StudyRequest
from prefect_tune.flows.tune import tune
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.keys import split_record
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import import_dataset, load_dataset
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.split import REFIT, Split, import_split, load_split

DAY_MICROS = 86_400_000_000


def visits(n: int = 150) -> pd.DataFrame:
    days = np.random.default_rng(0).permutation(n)
    start = pd.Timestamp("2020-01-01")
    return table(n).assign(visit=(start + pd.to_timedelta(days, unit="D")).astype(str))


@pytest.fixture
def timed(prepared) -> Any:
    """Enters a study of visits, with `visit` as their time by default."""
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


def test_folds_of_a_study_look_forward_and_the_newest_rows_are_test_rows(timed) -> None:
    study = timed(gap="5d")
    split, times = split_of(study)
    assert split.n_training(REFIT) == 115  # 30 test rows, 5 of the gap
    for fold in (0, 1, 2, REFIT):
        training = times[split.training(fold, np.zeros(150, dtype=np.int32))]
        assert times[split.held_out(fold)].min() - training.max() > np.timedelta64(5, "D")
    assert study.plan.looks_forward


def test_a_study_by_time_is_resumed_with_its_time_and_gap_only(timed, prepared) -> None:
    first = timed(gap="5d")
    assert timed(gap="5d").plan.problem == first.plan.problem
    assert prepared("visits.csv", target="target", study="one").plan.problem == first.plan.problem
    with pytest.raises(CannotContinue, match="--gap"):
        timed(gap="6d")
    with pytest.raises(CannotContinue, match="--time"):
        prepared("visits.csv", target="target", study="one", time="count")


def test_a_lost_split_by_time_is_made_again(timed) -> None:
    first = timed(gap="5d")
    before, _ = split_of(first)
    lose_split(first)
    after, _ = split_of(timed(gap="5d"))
    assert after.digest() == before.digest()


def test_a_gap_needs_times_and_events_have_them(prepared) -> None:
    with pytest.raises(BadInput, match="--time COLUMN"):
        prepared("train.csv", target="target", gap="30d")
    log, labels = events()
    log.to_csv("events.csv", index=False)
    labels.to_csv("labels.csv", index=False)
    given = {"labels": "labels.csv", "format": "events", "folds": 2, "space": "healthcare"}
    with pytest.raises(BadInput, match="prediction_time"):
        prepared("events.csv", **given, time="subject_id")
    with pytest.raises(BadInput, match="omit --group"):
        prepared("events.csv", **given, gap="1d")
    plain = prepared("events.csv", **given, study="plain")
    with pytest.raises(CannotContinue, match="no --time"):
        prepared("events.csv", **given, study="plain", time="prediction_time")
    assert not plain.plan.looks_forward


@pytest.mark.parametrize("time", ["prediction_time", None])
def test_folds_of_events_look_forward_by_prediction_times(prepared, time) -> None:
    log, _ = events()
    labels = pd.DataFrame({"subject_id": range(100, 140), "boolean_value": [0, 1] * 20})
    labels["prediction_time"] = pd.date_range("2020-02-01", periods=40)
    log.to_csv("events.csv", index=False)
    labels.to_csv("labels.csv", index=False)
    given = {"labels": "labels.csv", "format": "events", "folds": 2, "space": "healthcare"}
    study = prepared("events.csv", **given, time=time, gap=None if time else "2d")
    split = load_split(study.store, study.plan.problem.split)
    assert split.gap_seconds == (0.0 if time else 2 * 86_400.0)
    assert split.held_out(REFIT).tolist() == list(range(32, 40))
    both = prepared("events.csv", **given)
    assert both.plan.problem.dataset == study.plan.problem.dataset


def test_repeats_of_a_comparison_by_time_hold_out_newer_rows(timed) -> None:
    timed()
    parameters = {
        "data": "visits.csv", "target": "target", "time": "visit", "gap": "5d", "folds": 3,
        "methods": "random,tpe", "space": "small", "trials": 1, "repeats": 2, "name": "both",
    }  # fmt: skip
    first = prepare_comparison(parameters)
    assert {r.prepared.plan.options.gap for r in first.replicates} == {5 * 86_400.0}
    for replicate in first.replicates:
        split = load_split(first.store, replicate.prepared.plan.problem.split)
        assert split.gap_seconds == 5 * 86_400.0
    del parameters["time"], parameters["gap"]
    again = prepare_comparison({**parameters, "repeats": 3})
    assert {r.prepared.plan.options.time for r in again.replicates} == {"visit"}


def fixed_plan(study: str, fixed: tuple[str, ...], **options: object) -> PreparedStudy:
    parameters = {"data": "train.csv", "target": "target", "series": "s"}
    request = StudyRequest.parse({**dict.fromkeys(OPTIONS), **parameters, **QUICK, **options})
    store = request.open_store()
    new = resolve(request, store, read_source, fixed)
    import_dataset(new.dataset, store)
    import_split(new.split, store)
    plan = new.plan
    assert Ledger(store.database).create_study(study, plan.problem.to_json(), plan.to_json())
    return PreparedStudy(study, plan, store)


@pytest.mark.parametrize("group", [None, "patient"])
@pytest.mark.usefixtures("prepared")
def test_fixed_test_rows_stay_when_a_study_is_resumed(group) -> None:
    drop = [] if group else ["patient"]
    first = fixed_plan("first", (), group=group, drop=drop)
    assert first.plan.fixed_test == (() if group else ("a", "b", "c", "count", "colour"))
    stored = open_study(first.store, "first").row
    lose_split(first)
    request = StudyRequest.parse({**dict.fromkeys(OPTIONS), "data": "train.csv", "study": "first"})
    plan, _ = resume(stored, request, first.store, read_source)
    assert plan.fixed_test == first.plan.fixed_test
    assert load_split(first.store, plan.problem.split).digest() == first.plan.problem.split
    other = fixed_plan("other", first.plan.fixed_test, seed=5, group=group, drop=drop)
    test = [load_split(p.store, p.plan.problem.split).held_out(REFIT) for p in (first, other)]
    assert test[0].tolist() == test[1].tolist()


@pytest.mark.usefixtures("prepared")
def test_later_data_without_a_column_of_the_ids_is_refused() -> None:
    options = {"data": "train.csv", "target": "target", "drop": ["a"]}
    request = StudyRequest.parse({**dict.fromkeys(OPTIONS), **options})
    store = request.open_store()
    with pytest.raises(BadInput, match="'a'"):
        resolve(request, store, read_source, ("a", "b"))
    assert resolve(request, store, read_source, ("b",)).plan.fixed_test == ("b",)


def test_the_seed_chooses_test_rows_of_studies_outside_a_series(prepared) -> None:
    plan = prepared("train.csv", target="target", drop=["patient"]).plan
    assert plan.fixed_test is None


@pytest.mark.slow
@pytest.mark.usefixtures("server")
def test_a_study_by_time_runs_to_its_end_and_is_resumed(tmp_path) -> None:
    """A third class appears so late that not all folds can train on it."""
    frame = visits(240).sort_values("visit", ignore_index=True)
    frame.loc[range(150, 240, 3), "target"] = "late"
    frame.sample(frac=1, random_state=0).to_csv(tmp_path / "visits.csv", index=False)
    parameters = {
        "data": str(tmp_path / "visits.csv"), "target": "target", "time": "visit", "gap": "3d",
        "metric": "auroc", "trials": 3, "study": "s", "workers": 2, "ensemble": "auto",
        "store": str(tmp_path / "store"), **QUICK, "method": "flash",
    }  # fmt: skip
    summary = tune(**parameters)
    assert summary["n_failed"] == 0
    assert summary["test_loss"] is not None
    again = tune(**{**parameters, "trials": 4})
    assert again["n_trials"] > summary["n_trials"]
    store = ArtifactStore(StoreAddress(str(tmp_path / "store")))
    model, about = final_model(store, "s")
    assert about["members"]
    assert hasattr(model, "predict")
