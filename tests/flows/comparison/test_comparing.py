"""Comparisons of methods by whole studies, on a real Prefect server."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from inputs import write_table
from prefect_api import flow_runs

from prefect_tune.flows import compare as comparing
from prefect_tune.flows.compare import compare
from prefect_tune.flows.comparison import session
from prefect_tune.flows.comparison.standings import CURVE_COLUMNS
from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.ledger import Ledger

pytestmark = pytest.mark.usefixtures("server")

N_TRIALS = 3
STUDIES = {"random": "c-0-random", "tpe": "c-0-tpe"}


class Compared:
    """A comparison whose first run failed, and which was resumed to its end."""

    def __init__(self, folder: Path) -> None:
        self.parameters: dict[str, Any] = {
            "data": str(write_table(folder)), "target": "target", "methods": "random,tpe",
            "repeats": 1, "trials": N_TRIALS, "name": "c", "workers": 2, "race": False,
            "store": str(folder / "store"), "out": str(folder / "curves.parquet"),
            "space": "small",
        }  # fmt: skip
        tune = session.tune

        def failing(**parameters: Any) -> dict[str, Any]:
            if parameters["study"] == "c-0-tpe":
                raise RuntimeError("broken off")  # which no study expects
            return tune(**parameters)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(session, "tune", failing)
            with pytest.raises(RuntimeError, match="broken off"):
                compare(**self.parameters)
        self.store = ArtifactStore(StoreAddress(self.parameters["store"]))
        self.ledger = Ledger(self.store.database)
        self.before = {name: list(self.ledger.each_event(name)) for name in STUDIES.values()}
        self.states_before = {n: self.ledger.study(n).state for n in self.before}
        self.outcome = compare(**self.parameters)
        self.curves = pd.read_parquet(self.parameters["out"])


@pytest.fixture(scope="module")
def compared(server, tmp_path_factory) -> Compared:  # noqa: ARG001 - flows go there
    return Compared(tmp_path_factory.mktemp("compared"))


def test_outcome_and_curves_of_a_comparison_match_the_studies(compared) -> None:
    outcome = compared.outcome
    assert json.loads(json.dumps(outcome)) == outcome
    assert {(m["method"], m["trials"]) for m in outcome["methods"]} == {
        ("random", N_TRIALS), ("tpe", N_TRIALS)
    }  # fmt: skip
    curves = compared.curves
    assert tuple(curves.columns) == CURVE_COLUMNS
    for method, name in STUDIES.items():
        study = curves[curves["method"] == method]
        assert list(study["trials"]) == list(range(N_TRIALS + 1))  # a row for the start
        assert study["seconds"].is_monotonic_increasing
        losses = [t["evaluation"]["loss"] for t in compared.ledger.trials(name)]
        assert list(study.iloc[1:].sort_values("trial")["loss"]) == losses
        assert study["incumbent_loss"].iloc[-1] == min(losses)
        view = read_study(compared.store, name)
        assert view.has_model
        assert set(study["test_loss"]) == {view.test_loss}


def test_studies_of_a_comparison_share_no_cached_steps(compared) -> None:
    made: dict[str, str] = {}
    for name in STUDIES.values():
        for trial in compared.ledger.trials(name):
            for step in trial["evaluation"]["steps"]:
                assert made.setdefault(step["key"], name) == name
    assert all(compared.store.index.keys_of(name) for name in STUDIES.values())


def test_comparison_resumes_where_it_stopped(compared, monkeypatch) -> None:
    assert compared.states_before["c-0-tpe"] == "new"
    for name, events in compared.before.items():
        now = list(compared.ledger.each_event(name))
        assert now[: len(events)] == events
        assert [e.kind for e in now].count("ask") == N_TRIALS
        assert compared.ledger.study(name).state == "complete"
    # A finished one starts nothing and returns the same.
    monkeypatch.setattr(comparing, "run_replicates", None)
    left_out = {"trials", "race"}
    again = {k: v for k, v in compared.parameters.items() if k not in left_out}
    assert compare(**again) == compared.outcome


def test_studies_of_a_comparison_are_separate_flow_runs(compared) -> None:
    plans = [open_study(compared.store, name).plan for name in STUDIES.values()]
    runs = {str(run.id): run for run in flow_runs()}
    own = [runs[plan.flow_run_id] for plan in plans]
    assert {run.name for run in own} == {f"{name} ({method})" for method, name in STUDIES.items()}
    assert {run.state_name for run in own} == {"Completed"}
    assert all(run.parent_task_run_id for run in own)
