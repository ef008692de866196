"""Comparisons of methods: a real Prefect server, ordinary studies."""

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


class Compared:
    """A comparison that met an error in its first run, and was resumed to its end."""

    def __init__(self, folder: Path) -> None:
        self.parameters: dict[str, Any] = {
            "data": str(write_table(folder)), "target": "target", "methods": "random,tpe",
            "repeats": 2, "trials": N_TRIALS, "name": "c", "workers": 2, "race": False,
            "store": str(folder / "store"), "out": str(folder / "curves.parquet"),
        }  # fmt: skip
        self._fail()
        self.store = ArtifactStore(StoreAddress(self.parameters["store"]))
        self.ledger = Ledger(self.store.database)
        self.before = {
            name: list(self.ledger.each_event(name)) for name in self.ledger.study_names()
        }
        self.states_before = {n: self.ledger.study(n).state for n in self.before}
        self.outcome = compare(**self.parameters)
        self.curves = pd.read_parquet(self.parameters["out"])

    def _fail(self) -> None:
        """Have the flow of the third study fail, by an error that no study expects."""
        tune = session.tune

        def failing(**parameters: Any) -> dict[str, Any]:
            if parameters["study"] == "c-1-random":
                raise RuntimeError("broken off")
            return tune(**parameters)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(session, "tune", failing)
            with pytest.raises(RuntimeError, match="broken off"):
                compare(**self.parameters)

    def trials(self, repeat: int, method: str) -> list[Any]:
        return self.ledger.trials(f"c-{repeat}-{method}")


@pytest.fixture(scope="module")
def compared(server, tmp_path_factory) -> Compared:  # noqa: ARG001 - flows go there
    return Compared(tmp_path_factory.mktemp("compared"))


def test_the_outcome_has_stable_fields_and_figures(compared) -> None:
    outcome = compared.outcome
    assert json.loads(json.dumps(outcome)) == outcome
    assert set(outcome) == {
        "comparison", "data", "metric", "space", "repeats", "budget_seconds", "budget_trials",
        "out", "methods", "n_blocks", "pairs", "untested",
    }  # fmt: skip
    assert {m["method"] for m in outcome["methods"]} == {"random", "tpe"}
    for row in outcome["methods"]:
        assert set(row) == {
            "method", "average_rank", "p_value", "is_tied_with_best", "median_loss",
            "quartiles_loss", "median_test_loss", "quartiles_test_loss", "trials", "seconds",
            "ask_seconds",
        }  # fmt: skip
        assert row["trials"] == N_TRIALS
        assert 0 < row["median_test_loss"] < 50
    assert set(outcome["pairs"][0]) == {"method", "other", "n_won", "n_lost", "p_value"}
    assert outcome["n_blocks"] == 2


def test_curves_have_a_row_for_each_start_and_trial_of_each_study(compared) -> None:
    curves = compared.curves
    assert tuple(curves.columns) == CURVE_COLUMNS
    assert len(curves) == 4 * (1 + N_TRIALS)
    for (method, repeat), study in curves.groupby(["method", "repeat"]):
        assert list(study["trials"]) == list(range(N_TRIALS + 1))
        assert study["seconds"].is_monotonic_increasing
        losses = [t["evaluation"]["loss"] for t in compared.trials(repeat, method)]
        told = study.iloc[1:].sort_values("trial")
        assert list(told["loss"]) == losses
        assert study["incumbent_loss"].iloc[-1] == min(losses)
        view = read_study(compared.store, f"c-{repeat}-{method}")
        assert view.has_model
        assert set(study["test_loss"]) == {view.test_loss}


def test_methods_of_a_repeat_have_the_same_rows_and_seed(compared) -> None:
    problems = {name: compared.ledger.study(name).problem for name in compared.ledger.study_names()}
    assert problems["c-0-random"] == problems["c-0-tpe"]
    assert problems["c-1-random"] == problems["c-1-tpe"]
    assert problems["c-0-random"]["split"] != problems["c-1-random"]["split"]
    assert [problems[f"c-{r}-tpe"]["seed"] for r in (0, 1)] == [0, 1]


def test_no_study_is_served_what_another_one_made(compared) -> None:
    made: dict[str, str] = {}
    for name in compared.ledger.study_names():
        for trial in compared.ledger.trials(name):
            for step in trial["evaluation"]["steps"]:
                assert made.setdefault(step["key"], name) == name
    assert all(compared.store.index.keys_of(name) for name in compared.ledger.study_names())


def test_a_comparison_resumes_where_it_stopped(compared) -> None:
    assert compared.states_before["c-1-random"] == "new"
    for name, events in compared.before.items():
        now = list(compared.ledger.each_event(name))
        assert now[: len(events)] == events
        assert [e.kind for e in now].count("ask") == N_TRIALS
    assert {compared.ledger.study(n).state for n in compared.ledger.study_names()} == {"complete"}


def test_studies_are_flow_runs_of_their_own(compared) -> None:
    plans = [open_study(compared.store, name).plan for name in compared.ledger.study_names()]
    runs = {str(run.id): run for run in flow_runs()}
    own = [runs[plan.flow_run_id] for plan in plans]
    assert {run.name for run in own} == {
        f"c-{r}-{m} ({m})" for r in (0, 1) for m in ("random", "tpe")
    }
    assert {run.state_name for run in own} == {"Completed"}
    assert all(run.parent_task_run_id for run in own)


def test_a_finished_comparison_starts_nothing_and_returns_the_same(compared, monkeypatch) -> None:
    monkeypatch.setattr(comparing, "run_replicates", None)
    left_out = {"trials", "race"}
    again = {k: v for k, v in compared.parameters.items() if k not in left_out}
    assert compare(**again) == compared.outcome


@pytest.mark.full
@pytest.mark.usefixtures("server")
def test_each_study_has_its_own_time(tmp_path) -> None:
    outcome = compare(
        data=str(write_table(tmp_path)), target="target", methods="flash,smac", repeats=1,
        budget="8s", space="small", name="t", workers=1, store=str(tmp_path / "store"),
        out=str(tmp_path / "curves.parquet"),
    )  # fmt: skip
    for method in outcome["methods"]:
        assert method["trials"] > 0
        assert method["seconds"] > 2
        assert method["median_test_loss"] < 50
