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
import polars as pl
import pytest
from inputs import QUICK, table, write_table
from observing import Heard
from own_processes import assert_own_processes_work
from prefect_api import flow_runs, states, task_runs
from processes import environment

from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.study.lease import locked_study
from prefect_tune.flows.study.progress import Progress, observed_by
from prefect_tune.flows.study.study import StudyFailed
from prefect_tune.flows.tune import retry, tune
from prefect_tune.optimizers import Trial
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.sandbox.dask_runner import LeanDaskTaskRunner

pytestmark = pytest.mark.usefixtures("server")


class Finished:
    """A study that ran to its end, and the flow run that it was."""

    def __init__(self, folder: Path, **parameters: Any) -> None:
        self.parameters = {
            "data": str(folder / "table.csv"), "target": "target", "workers": 2,
            "store": str(folder / "store"), **QUICK, **parameters,
        }  # fmt: skip
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

    def numbers(self, kind: str) -> list[int]:
        """Of the trials that were asked for, told or retried, in their order."""
        events = [
            e
            for e in Ledger(self.store.database).each_event(self.summary["study"])
            if e.kind == kind
        ]
        return [event.body["number"] for event in events]


@pytest.fixture(scope="module")
def finished(server, tmp_path_factory: pytest.TempPathFactory) -> Finished:  # noqa: ARG001
    folder = tmp_path_factory.mktemp("table")
    write_table(folder)
    return Finished(folder, trials=6, study="table", task_runs="steps")


def test_a_study_ends_with_an_incumbent_better_than_chance(finished) -> None:
    summary = finished.summary
    assert (summary["state"], summary["n_trials"], summary["n_failed"]) == ("complete", 6, 0)
    assert summary["incumbent"]["loss"] < 0.6 * summary["chance_loss"]
    assert summary["test_loss"] < 0.8 * summary["chance_loss"]
    assert summary["incumbent"]["loss"] == min(t["evaluation"]["loss"] for t in finished.trials)
    assert json.loads(json.dumps(summary)) == summary
    assert finished.numbers("ask") == sorted(finished.numbers("tell")) == list(range(6))
    assert all(t["attempts"] == 1 for t in finished.trials)


def test_every_step_of_every_trial_is_a_task_run_named_by_step_and_algorithm(finished) -> None:
    runs = finished.task_runs
    names = pd.Series([run.name for run in runs]).value_counts()
    assert names["impute: median"] == names["encode: one_hot"] == 7  # 6 trials and the refit
    assert sum(names[n] for n in names.index if n.startswith("trial ")) == 6
    assert [n for n in names.index if n.startswith("refit ")] == [
        f"refit trial {finished.summary['incumbent']['trial']}"
    ]
    assert len(runs) == 7 * 7 + 1  # and the score
    assert set(states(runs)) == {"Completed", "Cached"}
    impute = [run.state_name for run in runs if run.name == "impute: median"]
    assert impute.count("Cached") >= 4
    whole = {run.id for run in runs if run.name.startswith(("trial", "refit"))}
    parents = {run.task_inputs["__parents__"][0].id for run in runs if ":" in run.name}
    assert parents == whole
    assert finished.flow_run.state_name == "Completed"
    assert finished.flow_run.name == "table (random)"


def test_the_cache_saved_something_and_says_what(finished) -> None:
    cache = finished.summary["cache"]
    assert cache["hits"] >= 4 * 3 * 2  # impute and encode in three folds
    assert min(cache["misses"], cache["size_bytes"], cache["seconds_saved"]) > 0


def test_the_final_model_is_a_scikit_learn_pipeline_that_predicts_the_users_classes(
    finished,
) -> None:
    model = finished.store.records.get("models/table")["model"]
    fresh = table(60, seed=9)
    predicted = pickle.loads(pickle.dumps(model)).predict(fresh.drop(columns="target"))
    assert set(predicted) <= {"yes", "no"}
    assert (predicted == fresh["target"]).mean() > 0.7


def test_a_finished_study_resumes_only_for_a_larger_total_on_its_imported_data(
    finished,
) -> None:
    Path(finished.parameters["data"]).unlink()
    before = finished.trials
    finished.again()
    assert finished.trials == before
    assert finished.task_runs == []
    finished.again(trials=8)
    assert finished.trials[:6] == before
    assert [t["number"] for t in finished.trials] == list(range(8))
    assert len([r for r in finished.task_runs if r.name.startswith("trial")]) == 2
    write_table(Path(finished.parameters["data"]).parent)


def test_the_same_configurations_again_are_all_served(finished) -> None:
    folder = Path(finished.parameters["data"]).parent
    served = Finished(folder, trials=6, study="again", task_runs="trial")
    assert served.summary["cache"]["misses"] == 0
    assert [t["evaluation"]["loss"] for t in served.trials] == [
        t["evaluation"]["loss"] for t in finished.trials[:6]
    ]
    assert len(served.task_runs) == 6 + 7 + 1  # trials, steps of the refit, its score


def rare_codes(folder: Path) -> dict[str, str]:
    """Events of which no code occurs in more than four patients: frequent ones cannot be chosen."""
    n = 48
    events = {"patient_id": range(n), "time": "2020-01-01", "value": 1.0}
    labels = {"patient_id": range(n), "prediction_time": "2021-01-01"}
    codes = [f"C{i // 4}" for i in range(n)]
    pd.DataFrame(events | {"code": codes}).to_csv(folder / "events.csv", index=False)
    classes = [i // 4 % 2 for i in range(n)]
    pd.DataFrame(labels | {"label": classes}).to_csv(folder / "labels.csv", index=False)
    return {"data": str(folder / "events.csv"), "labels": str(folder / "labels.csv")}


@pytest.mark.full
def test_failed_trials_are_results_with_their_reason_and_end_nothing(tmp_path) -> None:
    done = Finished(
        tmp_path, **rare_codes(tmp_path), target=None, space="healthcare", trials=10, study="rare",
        task_runs="steps",
    )  # fmt: skip
    failed = [t for t in done.trials if t["state"] == "failed"]
    assert 0 < len(failed) < 10
    assert done.summary["n_failed"] == len(failed)
    for failure in (trial["failure"] for trial in failed):
        assert (failure["kind"], failure["step"]) == ("error", "construct features")
        assert re.search(r"code occurs in [45]", failure["message"])
        assert "fit" in failure["traceback"]
        assert failure["cost_seconds"] > 0
    by_state = states(done.task_runs)
    assert by_state["Failed"] == 2 * len(failed)  # the step and its trial
    assert not {"Running", "Pending"} & set(by_state)
    assert len(done.numbers("tell")) == 10


def test_a_study_without_a_completed_trial_fails_and_can_be_retried(
    tmp_path,
    monkeypatch,
    server,  # noqa: ARG001
) -> None:
    store_path = str(tmp_path / "store")
    parameters = {
        "store": store_path, "data": str(write_table(tmp_path)), "target": "target", **QUICK
    }  # fmt: skip

    submit = LeanDaskTaskRunner.submit_lean

    def submit_nonsense(runner, task, parameters, worker):
        return submit(runner, task, {**parameters, "query": {}}, worker)

    with monkeypatch.context() as patched:
        patched.setattr(LeanDaskTaskRunner, "submit_lean", submit_nonsense)
        with pytest.raises(StudyFailed, match="3 trials failed"):
            tune(**parameters, trials=3, study="broken", workers=2)
    assert max(flow_runs(), key=lambda r: r.created).state_name == "Failed"
    store = ArtifactStore(StoreAddress(store_path))
    ledger = Ledger(store.database)
    assert ledger.study("broken").state == "failed"
    assert "3 trials failed" in read_study(store, "broken").to_json()["no_model"]

    summary = retry("broken", [0, 2], store=store_path, workers=2)
    assert (summary["n_trials"], summary["n_failed"], summary["state"]) == (3, 1, "complete")
    assert [t["attempts"] for t in ledger.trials("broken")] == [2, 1, 2]
    assert [e.kind for e in ledger.each_event("broken")].count("retry") == 2
    with pytest.raises(BadInput, match="trial 0"):
        retry("broken", [0], store=store_path)
    with locked_study(store, "broken"), pytest.raises(BadInput, match="'broken'"):
        tune(**parameters, trials=4, study="broken")


def test_time_is_a_total_and_cut_trials_wait_for_more_time(tmp_path) -> None:
    path = tmp_path / "big.parquet"
    table(12_000).to_parquet(path, index=False)
    done = Finished(tmp_path, data=str(path), budget="6s", study="timed")
    assert done.summary["seconds"]["total"] < 6 + 8
    for seconds in (6, 10, 14, 18):  # the time may end between two trials
        done.again(budget=f"{seconds}s")
        if waiting := [t["number"] for t in done.trials if t["state"] == "waiting"]:
            break
    assert waiting
    assert not set(waiting) & set(done.numbers("tell"))
    by_state = states(done.task_runs)
    assert not {"Running", "Pending"} & set(by_state)
    done.again(budget="2m", trials=len(done.trials))
    assert {t["state"] for t in done.trials} == {"complete"}
    assert {t["attempts"] for t in done.trials if t["number"] in waiting} == {2}


@pytest.fixture(scope="module")
def folder(server, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001
    return tmp_path_factory.mktemp("frames")


@pytest.fixture(scope="module")
def call(folder: Path) -> Callable[..., dict[str, Any]]:
    def called(data: Any, **changes: Any) -> dict[str, Any]:
        where = {"store": str(folder / "store"), "workers": 1, "study": "frame"}
        return tune(data, **{"target": "target", "trials": 1, **QUICK, **where, **changes})

    return called


@pytest.fixture(scope="module")
def summary(server: str, call: Callable[..., dict[str, Any]]) -> dict[str, Any]:  # noqa: ARG001
    return call(table())


def run_of(name: str) -> Any:
    return max((r for r in flow_runs() if r.name.startswith(name)), key=lambda r: r.created)


def test_prefect_is_told_a_name_and_the_store_has_the_content(summary, folder) -> None:
    assert summary["state"] == "complete"
    assert summary["data"].startswith("dataframe:")
    assert run_of("frame").parameters["data"] == summary["data"]
    store = ArtifactStore(StoreAddress(str(folder / "store")))
    stored = Ledger(store.database).study("frame")
    pd.testing.assert_series_equal(
        load_dataset(store, stored.problem["dataset"]).X["a"], table()["a"], check_index=False
    )


def test_it_is_continued_with_the_same_rows_and_no_others(summary, call) -> None:
    frame = table()
    polars = pl.from_pandas(frame)
    split = call(polars.drop("target"), target=polars["target"], trials=2)
    assert (split["n_trials"], summary["n_trials"]) == (2, 1)
    assert call(summary["data"], trials=3)["n_trials"] == 3  # as Prefect tries a flow run again
    with pytest.raises(BadInput, match="other data"):
        call(frame.assign(a=0.0))
    with pytest.raises(BadInput, match="pass the DataFrame"):
        call(summary["data"], study="new")


@pytest.mark.full
def test_its_test_rows_may_be_a_dataframe_and_the_search_equals_a_files(call, folder) -> None:
    test = table(60, seed=3)
    test.to_csv(folder / "test.csv", index=False)
    given = call(table(), study="tested", test=test.set_axis(range(100, 160)))
    of_file = call(str(write_table(folder)), study="of-file", test=str(folder / "test.csv"))
    assert given["test_loss"] == of_file["test_loss"]
    assert given["incumbent"] == of_file["incumbent"]
    assert run_of("tested").parameters["test"].startswith("dataframe:")


@pytest.mark.parametrize(
    ("data", "test", "message"),
    [
        ("cohort:demo", table(9), "test is a DataFrame"),
        (table(), table(9).drop(columns="target"), "test rows"),
        (table(), table(9).assign(a=["x", 1] * 4 + [2]), "'a'"),
    ],
)
def test_test_rows_that_cannot_be_used_are_named(call, data, test, message) -> None:
    with pytest.raises(BadInput, match=message):
        call(data, study="untested", test=test)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": table().rename(columns={"a": "b"})}, "'b'"),
        ({"target": np.zeros(3)}, "3 values"),
        ({"metric": "r3"}, "r3"),
        ({"trials": 0}, "trials=0"),
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


@pytest.mark.full
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


IN_PROGRAM = """
from prefect_tune import local_server, tune
with local_server():
    tune("table.csv", target="target", space="small", method="random", trials=2, workers=2)
"""


@pytest.mark.full
def test_a_study_leaves_processes_and_console_of_a_program_alone(tmp_path) -> None:
    write_table(tmp_path)
    lines = assert_own_processes_work(IN_PROGRAM, tmp_path)
    of_flow = [line for line in lines if "| Flow run " in line]
    assert "Beginning flow run" in of_flow[0]
    assert "Finished in state Completed" in of_flow[-1]
    others = [line for line in lines if line not in of_flow]
    assert [line for line in others if "Connecting to existing Dask cluster" not in line] == []


def test_it_runs_where_an_event_loop_runs(call) -> None:
    async def in_loop() -> dict[str, Any]:
        return call(table(), study="loop")

    assert asyncio.run(in_loop())["state"] == "complete"


class Breaking(Heard):
    """Replaces the rows of a file when two trials have ended, and breaks the run off."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file

    def ended(self, trial: Trial, progress: Progress) -> None:
        super().ended(trial, progress)
        if len(self.trials) == 2:
            table(seed=1).to_csv(self.file, index=False)
            raise RuntimeError("broken off")


@pytest.mark.usefixtures("server")
def test_a_retried_flow_run_continues_on_its_copy_of_a_changed_file_and_a_new_one_stops(
    tmp_path,
) -> None:
    file = write_table(tmp_path)
    given = {"target": "target", "store": str(tmp_path / "store"), "study": "retried", **QUICK}
    with observed_by(heard := Breaking(file)):
        summary = tune.with_options(retries=1)(str(file), trials=4, **given)
    assert (summary["n_trials"], summary["state"]) == (4, "complete")
    assert sum("table.csv has changed" in note for note in heard.notes) == 1
    for trials in (4, 6):
        with pytest.raises(BadInput, match="stored"):
            tune(str(file), trials=trials, **given)
    assert tune(str(file), trials=6, input="stored", **given)["n_trials"] == 6
