"""Whole studies of files and DataFrames: a real Prefect server, real worker processes."""

import asyncio
import json
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from inputs import QUICK, table, write_table
from prefect_api import flow_runs, states, task_runs
from processes import kill, started, wait_for
from user_spaces import PRELUDE

from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.study.lease import locked_study
from prefect_tune.flows.study.study import Study, StudyFailed
from prefect_tune.flows.tune import retry, tune
from prefect_tune.optimizers import Budget
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import load_dataset

pytestmark = pytest.mark.usefixtures("server")


def store_in(folder: Path) -> ArtifactStore:
    return ArtifactStore(StoreAddress(str(folder / "store")))


def run_of(name: str) -> Any:
    """Return the newest flow run of a study."""
    return max((r for r in flow_runs() if r.name.startswith(name)), key=lambda r: r.created)


class Finished:
    """A study that ran to its end, and its flow run."""

    def __init__(self, folder: Path, **parameters: Any) -> None:
        self.parameters = {
            "data": str(folder / "table.csv"), "target": "target", "workers": 2,
            "store": str(folder / "store"), **QUICK, **parameters,
        }  # fmt: skip
        self.store = store_in(folder)
        self.again()

    def again(self, **changes: Any) -> None:
        self.summary = tune(**{**self.parameters, **changes})
        self.flow_run = run_of(self.summary["study"])
        self.task_runs = task_runs(self.flow_run.id)
        self.trials = Ledger(self.store.database).trials(self.summary["study"])


@pytest.fixture(scope="module")
def finished(server, tmp_path_factory: pytest.TempPathFactory) -> Finished:  # noqa: ARG001
    folder = tmp_path_factory.mktemp("table")
    write_table(folder)
    return Finished(folder, trials=6, study="table", task_runs="steps")


def test_study_ends_with_a_useful_model_and_reports_cache_savings(finished) -> None:
    summary = finished.summary
    assert (summary["state"], summary["n_trials"], summary["n_failed"]) == ("complete", 6, 0)
    assert summary["incumbent"]["loss"] < 0.6 * summary["chance_loss"]
    assert summary["test_loss"] < 0.8 * summary["chance_loss"]
    assert summary["incumbent"]["loss"] == min(t["evaluation"]["loss"] for t in finished.trials)
    assert json.loads(json.dumps(summary)) == summary
    assert all(t["attempts"] == 1 for t in finished.trials)
    cache = summary["cache"]
    assert cache["hits"] >= 4 * 3 * 2  # impute and encode in three folds
    assert min(cache["misses"], cache["size_bytes"], cache["seconds_saved"]) > 0
    model = finished.store.records.get("models/table")["model"]
    fresh = table(60, seed=9)
    predicted = pickle.loads(pickle.dumps(model)).predict(fresh.drop(columns="target"))
    assert set(predicted) <= {"yes", "no"}
    assert (predicted == fresh["target"]).mean() > 0.7


def test_every_step_is_a_task_run_named_by_step_and_algorithm(finished) -> None:
    runs = finished.task_runs
    names = pd.Series([run.name for run in runs]).value_counts()
    assert names["impute: median"] == names["encode: one_hot"] == 7  # 6 trials and the refit
    assert sum(names[n] for n in names.index if n.startswith("trial ")) == 6
    best = finished.summary["incumbent"]["trial"]
    assert [n for n in names.index if n.startswith("refit ")] == [f"refit trial {best}"]
    assert len(runs) == 7 * 7 + 1  # and the score
    assert set(states(runs)) == {"Completed", "Cached"}
    impute = [run.state_name for run in runs if run.name == "impute: median"]
    assert impute.count("Cached") >= 4
    whole = {run.id for run in runs if run.name.startswith(("trial", "refit"))}
    parents = {run.task_inputs["__parents__"][0].id for run in runs if ":" in run.name}
    assert parents == whole
    assert finished.flow_run.state_name == "Completed"
    assert finished.flow_run.name == "table (random)"


def test_finished_study_can_be_extended_and_shares_cached_steps(finished) -> None:
    data = Path(finished.parameters["data"])
    data.rename(data.with_name("gone"))  # its imported copy is enough
    before = finished.trials
    finished.again(trials=8)
    assert finished.trials[:6] == before
    assert [t["number"] for t in finished.trials] == list(range(8))
    assert len([r for r in finished.task_runs if r.name.startswith("trial")]) == 2
    data.with_name("gone").rename(data)
    served = Finished(data.parent, trials=2, study="again", task_runs="trial")
    assert served.summary["cache"]["misses"] == 0
    losses = [[t["evaluation"]["loss"] for t in trials] for trials in (served.trials, before[:2])]
    assert losses[0] == losses[1]
    assert len(served.task_runs) == 2 + 7 + 1  # trials, steps of the refit, its score


OWN = (
    PRELUDE
    + """
class Own(GaussianNB):
    def fit(self, X, y):
        fits = Path("{folder}/fits")
        if fits.exists() and len(fits.read_text()) >= {n_fits} and not Path("{folder}/on").exists():
            {then}
        with fits.open("a") as counted:
            counted.write(".")
        return super().fit(X, y)


space = models(one("own", Own, SMOOTHING))
"""
)
"""A space whose model does something else after so many fits, until a file `on` is there."""


def test_study_without_a_completed_trial_fails_and_can_be_retried(tmp_path) -> None:
    (tmp_path / "fits").touch()
    space = OWN.format(folder=tmp_path, n_fits=0, then="raise ValueError('not yet')")
    (tmp_path / "own.py").write_text(space)
    store = {"store": str(tmp_path / "store"), "workers": 2}
    parameters = {
        "data": str(write_table(tmp_path)), "target": "target", "method": "random",
        "space": f"{tmp_path}/own.py:space", "study": "broken", "task_runs": "steps", **store,
    }  # fmt: skip
    with pytest.raises(StudyFailed, match="3 trials failed"):
        tune(**parameters, trials=3)
    assert run_of("broken").state_name == "Failed"
    wait_for(lambda: states(task_runs(run_of("broken").id))["Failed"] == 2 * 3)  # steps and trials
    assert not {"Running", "Pending"} & set(states(task_runs(run_of("broken").id)))
    opened = store_in(tmp_path)
    view = read_study(opened, "broken")
    assert (view.state, view.n_failed) == ("failed", 3)
    assert view.no_model

    (tmp_path / "on").touch()
    summary = retry("broken", [0, 2], **store)
    assert (summary["n_trials"], summary["n_failed"], summary["state"]) == (3, 1, "complete")
    assert [t["attempts"] for t in Ledger(opened.database).trials("broken")] == [2, 1, 2]
    with pytest.raises(BadInput, match="trial 0"):
        retry("broken", [0], **store)
    with locked_study(opened, "broken"), pytest.raises(BadInput, match="'broken'"):
        tune(**parameters, trials=4)


def told(folder: Path) -> list[Any]:
    """Return the ended trials, if the store exists."""
    if not (folder / "store" / "index.sqlite").exists():
        return []
    trials = Ledger(store_in(folder).database).trials("killed")
    return [trial for trial in trials if trial["state"] == "complete"]


def test_killed_study_resumes_with_the_same_next_query(server, tmp_path) -> None:
    home = tmp_path / "home"
    space = OWN.format(folder=tmp_path, n_fits=8, then="sleep(600)")
    (tmp_path / "own.py").write_text(space)
    command = (
        "run", write_table(tmp_path), "--target", "target", "--study", "killed", "--workers", 2,
        "--method", "random", "--space", f"{tmp_path}/own.py:space", "--trials", 6,
    )  # fmt: skip
    with started(*command, home=home, server=server) as process:
        wait_for(lambda: len(told(home)) >= 2)
        kill(process.pid)
        process.wait()
    before = told(home)
    (tmp_path / "on").touch()
    asked = Study(store_in(home), "killed")
    following, number = asked.optimizer.ask(Budget()), len(asked.trials)
    again = {"data": str(tmp_path / "table.csv"), "study": "killed", "store": str(home / "store")}
    assert tune(**again, trials=6, workers=2)["state"] == "complete"
    after = Study(store_in(home), "killed").trials
    assert after[number].query == following
    assert len(told(home)) == 6
    kept = {trial["number"]: trial for trial in told(home)}
    assert [kept[trial["number"]] for trial in before] == before
    crashed, completed = sorted(
        (r for r in flow_runs() if r.name.startswith("killed")), key=lambda r: r.created
    )
    assert (crashed.state_name, completed.state_name) == ("Crashed", "Completed")
    for flow_run in (crashed, completed):
        assert not {"Running", "Pending"} & set(states(task_runs(flow_run.id)))


@pytest.fixture(scope="module")
def store(server, tmp_path_factory: pytest.TempPathFactory) -> ArtifactStore:  # noqa: ARG001
    return store_in(tmp_path_factory.mktemp("frames"))


@pytest.fixture(scope="module")
def call(store: ArtifactStore) -> Callable[..., dict[str, Any]]:
    where = {"store": store.address.url, "workers": 1, "study": "frame"}
    return partial(tune, **{"target": "target", "trials": 1, **QUICK, **where})


def test_only_the_store_gets_the_content_of_a_dataframe(call, store) -> None:
    async def in_loop() -> dict[str, Any]:
        return call(table())

    summary = asyncio.run(in_loop())  # as in a notebook
    assert summary["state"] == "complete"
    assert summary["data"].startswith("dataframe:")
    assert run_of("frame").parameters["data"] == summary["data"]
    dataset = Ledger(store.database).study("frame").problem["dataset"]
    stored = load_dataset(store, dataset).X["a"]
    pd.testing.assert_series_equal(stored, table()["a"], check_index=False)
    polars = pl.from_pandas(table())
    assert call(polars.drop("target"), target=polars["target"], trials=2)["n_trials"] == 2
    assert call(summary["data"], trials=3)["n_trials"] == 3  # as Prefect tries a flow run again
    with pytest.raises(BadInput, match="differs from dataframe"):
        call(table().assign(a=0.0))
    with pytest.raises(BadInput, match="pass the DataFrame"):
        call(summary["data"], study="new")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": table().rename(columns={"a": "b"})}, "'b'"),
        ({"target": np.zeros(3)}, "3 values"),
        ({"trials": 0}, "trials=0"),
        ({"data": "cohort:demo", "test": table(9)}, "test is a DataFrame"),
        ({"test": table(9).drop(columns="target")}, "test rows"),
        ({"test": table(9).assign(a=["x", 1] * 4 + [2])}, "'a'"),
    ],
)
def test_unusable_input_is_refused_before_a_flow_run_starts(call, change, message) -> None:
    before = len(flow_runs())
    with pytest.raises(ValueError, match=message):
        call(**{"data": table(), "study": "refused", **change})
    assert len(flow_runs()) == before
