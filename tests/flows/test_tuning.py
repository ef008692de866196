"""Whole studies of files and of DataFrames: a real Prefect server, real worker processes."""

import asyncio
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from inputs import QUICK, table, write_meds, write_table
from prefect_api import flow_runs, states, task_runs
from processes import environment

from prefect_tune.flows.study.lease import held_study
from prefect_tune.flows.study.study import StudyFailed
from prefect_tune.flows.tuning import retry, tune
from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.worker.dask_runner import LeanDaskTaskRunner

pytestmark = pytest.mark.usefixtures("server")


class Finished:
    """A study that ran to its end, and the flow run that it was."""

    def __init__(self, folder: Path, **parameters: Any) -> None:
        self.folder = folder
        self.parameters = {"store": str(folder / "store"), "workers": 2, **parameters}
        self.again()

    def again(self, **changes: Any) -> None:
        self.summary = tune(**{**self.parameters, **changes})
        self.flow_run = max(
            (r for r in flow_runs() if r.name.startswith(self.summary["study"])),
            key=lambda r: r.created,
        )
        self.task_runs = task_runs(self.flow_run.id)
        self.store = ArtifactStore(StoreAddress(self.parameters["store"]))
        self.trials = Ledger(self.store.database).trials(self.summary["study"])


@pytest.fixture(scope="module")
def finished(server: str, tmp_path_factory: pytest.TempPathFactory) -> Finished:  # noqa: ARG001
    folder = tmp_path_factory.mktemp("table")
    return Finished(
        folder,
        data=str(write_table(folder)),
        target="target",
        trials=8,
        study="table",
        task_runs="steps",
        **QUICK,
    )


def test_a_study_ends_with_an_incumbent_better_than_chance(finished) -> None:
    summary = finished.summary
    assert (summary["state"], summary["n_trials"], summary["n_failed"]) == ("complete", 8, 0)
    assert summary["incumbent"]["loss"] < 0.6 * summary["chance_loss"]
    assert summary["test_loss"] < 0.8 * summary["chance_loss"]
    assert summary["incumbent"]["loss"] == min(t["evaluation"]["loss"] for t in finished.trials)
    assert json.loads(json.dumps(summary)) == summary


def test_every_step_of_every_trial_is_a_task_run_named_by_step_and_algorithm(finished) -> None:
    names = pd.Series([run.name for run in finished.task_runs]).value_counts()
    per_trial = ("impute: median", "encode: one_hot")
    assert all(names[name] == 9 for name in per_trial)  # 8 trials and the refit
    assert sum(names[n] for n in names.index if n.startswith("trial ")) == 8
    assert [n for n in names.index if n.startswith("refit ")] == [
        f"refit trial {finished.summary['incumbent']['trial']}"
    ]
    assert [n for n in names.index if n.startswith("score ")]
    assert len(finished.task_runs) == 9 * 7 + 1
    assert {n.split(":")[0] for n in names.index if ":" in n} == {
        "impute", "encode", "rescale", "balance", "preprocess", "fit model"
    }  # fmt: skip


def test_all_task_runs_have_ended_and_those_served_are_cached(finished) -> None:
    by_state = states(finished.task_runs)
    assert set(by_state) == {"Completed", "Cached"}
    impute = [run.state_name for run in finished.task_runs if run.name == "impute: median"]
    assert impute.count("Cached") >= 6
    assert finished.flow_run.state_name == "Completed"
    assert finished.flow_run.name == "table (random)"


def test_steps_are_nested_in_their_trials(finished) -> None:
    trials = {run.id for run in finished.task_runs if run.name.startswith(("trial", "refit"))}
    scores = {run.id for run in finished.task_runs if run.name.startswith("score")}
    steps = [run for run in finished.task_runs if run.id not in trials | scores]
    parents = [run.task_inputs["__parents__"][0].id for run in steps]
    assert set(parents) == trials


def test_the_cache_saved_something_and_says_what(finished) -> None:
    cache = finished.summary["cache"]
    assert cache["hits"] >= 6 * 3 * 2  # impute and encode in three folds
    assert cache["misses"] > 0
    assert cache["size_bytes"] > 0
    assert cache["seconds_saved"] > 0


def test_the_ledger_has_every_event_in_order(finished) -> None:
    events = Ledger(finished.store.database).events("table")
    kinds = [e.kind for e in events]
    assert (kinds.count("ask"), kinds.count("tell")) == (8, 8)
    asked = [e.body["number"] for e in events if e.kind == "ask"]
    assert asked == list(range(8))
    assert all(t["attempts"] == 1 for t in finished.trials)


def test_the_final_model_is_a_scikit_learn_pipeline_that_predicts_the_users_classes(
    finished,
) -> None:
    model = finished.store.records.get("models/table")["model"]
    fresh = table(60, seed=9)
    predicted = pickle.loads(pickle.dumps(model)).predict(fresh.drop(columns="target"))
    assert set(predicted) <= {"yes", "no"}
    assert (predicted == fresh["target"]).mean() > 0.7


def test_a_finished_study_has_nothing_left_to_do(finished) -> None:
    before = finished.trials
    finished.again()
    assert finished.trials == before
    assert {run.name for run in finished.task_runs} == set()


def test_a_larger_budget_continues_where_the_study_was(finished) -> None:
    finished.again(trials=10)
    assert finished.summary["n_trials"] == 10
    assert [t["number"] for t in finished.trials] == list(range(10))
    assert len([r for r in finished.task_runs if r.name.startswith("trial")]) == 2


def test_the_imported_data_counts_not_the_file(finished) -> None:
    Path(finished.parameters["data"]).unlink()
    finished.again(trials=11)
    assert finished.summary["n_trials"] == 11


def test_the_same_configurations_again_are_all_served(finished) -> None:
    write_table(finished.folder)
    served = Finished(
        finished.folder, **{**finished.parameters, "study": "again", "task_runs": None}
    )
    assert served.summary["cache"]["misses"] == 0
    assert served.summary["incumbent"] == {
        **served.summary["incumbent"],
        "loss": min(t["evaluation"]["loss"] for t in finished.trials[:8]),
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "auroc"}, "has --metric error, and cannot be continued with auroc"),
        ({"seed": 5}, "has --seed 0, and cannot be continued with 5"),
        ({"space": "healthcare"}, "has --space small"),
        ({"folds": 5}, "has --folds 3"),
        ({"option": {"a": 1}}, "has no options of its method"),
        ({"drop": ["a"]}, "was made with other data"),
    ],
)
def test_a_study_is_not_continued_with_something_else(finished, change, message) -> None:
    write_table(finished.folder)
    with pytest.raises(BadInput, match=message):
        tune(**{**finished.parameters, **change})


def _problem(finished: Finished) -> dict[str, Any]:
    stored = Ledger(finished.store.database).study("table")
    assert stored is not None
    return dict(stored.problem)


def test_a_study_of_events_groups_folds_by_patient_and_finds_the_space(tmp_path) -> None:
    meds = write_meds(tmp_path / "meds")
    done = Finished(
        tmp_path, data=str(meds), labels="labels/task", trials=4, study="meds", metric="auroc"
    )
    assert done.summary["space"] == "healthcare"
    assert done.summary["incumbent"]["loss"] < 0.3
    steps = {s["step"] for t in done.trials if t["evaluation"] for s in t["evaluation"]["steps"]}
    assert "construct features" in steps


def test_no_cache_keeps_nothing_but_records(tmp_path) -> None:
    done = Finished(
        tmp_path,
        data=str(write_table(tmp_path)),
        target="target",
        trials=2,
        study="bare",
        no_cache=True,
        **QUICK,
    )
    assert done.summary["cache"]["hits"] == 0
    assert done.store.index.totals().count == 0
    assert len([r for r in done.store.records.ids() if r.startswith("predictions/")]) == 7


@pytest.mark.parametrize(("task_runs_shown", "expected"), [("trial", 2 + 7 + 1), ("misses", None)])
def test_fewer_task_runs_on_request(finished, task_runs_shown, expected) -> None:
    write_table(finished.folder)
    done = Finished(
        finished.folder,
        data=finished.parameters["data"],
        target="target",
        trials=2,
        study=f"show-{task_runs_shown}",
        space="flash",
        race=False,
        ensemble="single",
        task_runs=task_runs_shown,
    )
    shown = len(done.task_runs)
    assert shown == (expected or 2 + 7 + 1)  # all steps of the two trials are served by now


def test_a_study_that_ends_in_one_trial_has_looked_at_the_best_again(tmp_path) -> None:
    done = Finished(
        tmp_path,
        data=str(write_table(tmp_path)),
        target="target",
        trials=24,
        study="looked",
        **QUICK,
    )
    looks, chosen = done.summary["finalists"], done.summary["incumbent"]["trial"]
    assert len(looks) == 2
    means = {look["trial"]: look["loss"] + look["again"] for look in looks}
    assert means[chosen] == min(means.values())
    (member,) = Ledger(done.store.database).study("looked").result["members"]
    assert member["trial"] == chosen
    assert done.summary["n_trials"] == 24


def rare_codes(folder: Path) -> dict[str, str]:
    """Events of which no code occurs in more than four patients: frequent ones cannot be chosen."""
    n = 48
    events = pd.DataFrame(
        {
            "patient_id": range(n),
            "time": "2020-01-01",
            "code": [f"C{(i // 4)}" for i in range(n)],
            "value": 1.0,
        }
    )
    labels = pd.DataFrame(
        {
            "patient_id": range(n),
            "prediction_time": "2021-01-01",
            "label": [i // 4 % 2 for i in range(n)],
        }
    )
    events.to_csv(folder / "events.csv", index=False)
    labels.to_csv(folder / "labels.csv", index=False)
    return {"data": str(folder / "events.csv"), "labels": str(folder / "labels.csv")}


def test_failed_trials_are_results_with_their_reason_and_end_nothing(tmp_path) -> None:
    done = Finished(
        tmp_path, **rare_codes(tmp_path), method="random", trials=10, study="rare",
        task_runs="steps",
    )  # fmt: skip
    failed = [t for t in done.trials if t["state"] == "failed"]
    assert 0 < len(failed) < 10
    assert done.summary["n_failed"] == len(failed)
    for trial in failed:
        assert trial["failure"]["kind"] == "error"
        assert trial["failure"]["step"] == "construct features"
        assert re.search(r"no code occurs in [45] patients", trial["failure"]["message"])
        assert (
            "EventAggregation" in trial["failure"]["traceback"]
            or "fit" in trial["failure"]["traceback"]
        )
        assert trial["failure"]["cost_seconds"] > 0
    by_state = states(done.task_runs)
    assert by_state["Failed"] == 2 * len(failed)  # the step and its trial
    assert not {"Running", "Pending"} & set(by_state)
    told = [e.body for e in Ledger(done.store.database).events("rare") if e.kind == "tell"]
    assert len(told) == 10


def test_a_study_without_a_completed_trial_fails_and_can_be_retried(tmp_path, monkeypatch) -> None:
    store_path = str(tmp_path / "store")
    parameters = {
        "store": store_path, "data": str(write_table(tmp_path)), "target": "target", **QUICK
    }  # fmt: skip

    submit = LeanDaskTaskRunner.submit_lean

    def submit_nonsense(runner, task, parameters, workers=None):
        return submit(runner, task, {**parameters, "query": {}}, workers)

    with monkeypatch.context() as patched:
        patched.setattr(LeanDaskTaskRunner, "submit_lean", submit_nonsense)
        with pytest.raises(StudyFailed, match=r"3 trials failed, 3 of them with"):
            tune(**parameters, trials=3, study="broken", workers=2)
    assert max(flow_runs(), key=lambda r: r.created).state_name == "Failed"
    store = ArtifactStore(StoreAddress(store_path))
    ledger = Ledger(store.database)
    assert ledger.study("broken").state == "failed"

    summary = retry("broken", [0, 2], store=store_path, workers=2)
    assert (summary["n_trials"], summary["n_failed"], summary["state"]) == (3, 1, "complete")
    assert [t["attempts"] for t in ledger.trials("broken")] == [2, 1, 2]
    summary = retry("broken", store=store_path, workers=2)
    assert summary["n_failed"] == 0
    assert [e.kind for e in ledger.events("broken")].count("retry") == 3
    with pytest.raises(BadInput, match=r"trial 1 of study 'broken' has not failed; .* none"):
        retry("broken", [1], store=store_path)


def test_time_is_a_total_and_what_it_cuts_waits_for_more(tmp_path) -> None:
    path = tmp_path / "big.parquet"
    table(12_000).to_parquet(path, index=False)
    done = Finished(tmp_path, data=str(path), target="target", budget="8s", study="timed", **QUICK)
    waiting = [t for t in done.trials if t["state"] == "waiting"]
    assert waiting
    assert done.summary["seconds"]["total"] < 8 + 8
    told = [
        e.body["number"] for e in Ledger(done.store.database).events("timed") if e.kind == "tell"
    ]
    assert not {t["number"] for t in waiting} & set(told)
    assert not {"Running", "Pending"} & set(states(done.task_runs))
    assert states(done.task_runs)["Cancelled"] >= len(waiting)
    n_asked = len(done.trials)
    done.again(budget="2m", trials=n_asked)
    assert {t["state"] for t in done.trials} == {"complete"}
    assert {
        t["attempts"] for t in done.trials if t["number"] in {w["number"] for w in waiting}
    } == {2}


def test_a_study_that_someone_else_runs_is_refused_by_name(tmp_path) -> None:
    parameters = {
        "store": str(tmp_path / "store"), "data": str(write_table(tmp_path)), "target": "target",
        **QUICK,
    }  # fmt: skip
    tune(**parameters, trials=1, study="mine", workers=1)
    store = ArtifactStore(StoreAddress(parameters["store"]))
    with (
        held_study(store, "mine"),
        pytest.raises(BadInput, match=r"'mine' is being run by process"),
    ):
        tune(**parameters, trials=2, study="mine")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("frames")


@pytest.fixture(scope="module")
def call(folder: Path) -> Callable[..., dict[str, Any]]:
    def called(data: Any, **changes: Any) -> dict[str, Any]:
        where = {"store": str(folder / "store"), "workers": 1, "study": "frame"}
        return tune(data, **{"target": "target", "trials": 2, **QUICK, **where, **changes})

    return called


@pytest.fixture(scope="module")
def summary(server: str, call: Callable[..., dict[str, Any]]) -> dict[str, Any]:  # noqa: ARG001
    return call(table())


def run_of(name: str) -> Any:
    return max((r for r in flow_runs() if r.name.startswith(name)), key=lambda r: r.created)


@pytest.mark.slow
def test_prefect_is_told_a_name_and_the_store_has_the_content(summary, folder) -> None:
    assert summary["state"] == "complete"
    assert summary["data"].startswith("dataframe:")
    assert run_of("frame").parameters["data"] == summary["data"]
    store = ArtifactStore(StoreAddress(str(folder / "store")))
    stored = Ledger(store.database).study("frame")
    pd.testing.assert_series_equal(
        load_dataset(store, stored.problem["dataset"]).X["a"], table()["a"], check_index=False
    )


@pytest.mark.slow
def test_it_is_the_search_that_a_file_has(summary, call, folder) -> None:
    of_file = call(str(write_table(folder)), study="file")
    assert of_file["incumbent"] == summary["incumbent"]
    assert of_file["test_loss"] == summary["test_loss"]


@pytest.mark.slow
def test_it_is_continued_with_the_same_rows_and_no_others(summary, call) -> None:
    frame = table()
    split = call(frame.drop(columns="target"), target=frame["target"], trials=3)
    assert (split["n_trials"], summary["n_trials"]) == (3, 2)
    assert call(summary["data"], trials=4)["n_trials"] == 4  # as Prefect tries a flow run again
    with pytest.raises(BadInput, match="made with other data"):
        call(frame.assign(a=0.0))
    with pytest.raises(BadInput, match="give the DataFrame once more"):
        call(summary["data"], study="new")


@pytest.mark.slow
def test_its_test_rows_may_be_a_dataframe_too(call, folder) -> None:
    test = table(60, seed=3)
    test.to_csv(folder / "test.csv", index=False)
    given = call(table(), study="tested", test=test.set_axis(range(100, 160)))
    of_file = call(str(write_table(folder)), study="of-file", test=str(folder / "test.csv"))
    assert given["test_loss"] == of_file["test_loss"]
    assert given["incumbent"] == of_file["incumbent"]
    assert run_of("tested").parameters["test"].startswith("dataframe:")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "test", "message"),
    [
        ("cohort:demo", table(9), "test is a DataFrame, and data is not"),
        (table(), table(9).drop(columns="target"), "the DataFrame of test rows has no column"),
        (table(), table(9).drop(columns="a"), "the DataFrame of test rows"),
        (table(), table(9).assign(a=["x", 1] * 4 + [2]), "'a' of the DataFrame of test rows"),
    ],
)
def test_test_rows_that_cannot_be_used_are_named(call, data, test, message) -> None:
    with pytest.raises(BadInput, match=message):
        call(data, study="untested", test=test)


@pytest.mark.slow
def test_without_test_rows_no_test_loss_is_shown(call) -> None:
    summary = call(table(), study="all", test_size=0, ensemble="2")
    assert summary["state"] == "complete"
    assert (summary["test_loss"], summary["single_best_test_loss"]) == (None, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": table().rename(columns={"a": "b"})}, "two columns called 'b'"),
        ({"target": np.zeros(3)}, "3 values, and the DataFrame 150 rows"),
        ({"metric": "r3"}, "r3"),
        ({"trials": 0}, "--trials 0"),
    ],
)
def test_what_cannot_be_used_is_refused_before_a_flow_run(call, change, message) -> None:
    before = len(flow_runs())
    with pytest.raises(ValueError, match=message):
        call(**{"data": table(), "study": "refused", **change})
    assert len(flow_runs()) == before


IN_LOOP = """
import asyncio
from prefect_tune import local_server, retry, tune

async def main():
    with local_server():
        given = {"space": "small", "race": False, "study": "one"}
        tune("table.csv", target="target", trials=1, workers=1, **given)
        print(retry("one")["n_trials"])

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_server_of_its_own_is_told_all_where_an_event_loop_runs(tmp_path) -> None:
    write_table(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", IN_LOOP],
        cwd=tmp_path,
        env={**environment(tmp_path / "home"), "PREFECT_LOGGING_LEVEL": "WARNING"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout.split() == ["1"], done.stderr
    assert not done.stderr


@pytest.mark.slow
def test_it_runs_where_an_event_loop_runs(call) -> None:
    async def in_loop() -> dict[str, Any]:
        return call(table(), study="loop", trials=1)

    assert asyncio.run(in_loop())["state"] == "complete"
