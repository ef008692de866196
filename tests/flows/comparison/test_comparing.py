"""Comparisons of methods: a real Prefect server, real worker processes."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from inputs import table, write_table
from prefect_api import flow_runs, task_runs

from prefect_tune.flows import comparing
from prefect_tune.flows.comparing import compare
from prefect_tune.flows.comparison import replicate
from prefect_tune.flows.comparison.standings import CURVE_COLUMNS
from prefect_tune.flows.study.facts import StudyFacts
from prefect_tune.flows.study.study import Study
from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress

pytestmark = pytest.mark.usefixtures("server")

N_TRIALS = 3


class Compared:
    """A comparison that was interrupted in its first run, and continued to its end."""

    def __init__(self, folder: Path) -> None:
        self.parameters: dict[str, Any] = {
            "data": str(write_table(folder)), "target": "target", "methods": "random,tpe",
            "repeats": 2, "trials": N_TRIALS, "name": "c", "workers": 2, "race": False,
            "store": str(folder / "store"), "out": str(folder / "curves.parquet"),
        }  # fmt: skip
        self._interrupt()
        self.store = ArtifactStore(StoreAddress(self.parameters["store"]))
        self.ledger = Ledger(self.store.database)
        self.before = {name: self.ledger.events(name) for name in self.ledger.study_names()}
        self.states_before = {n: self.ledger.study(n).state for n in self.before}
        self.outcome = compare(**self.parameters)
        self.curves = pd.read_parquet(self.parameters["out"])

    def _interrupt(self) -> None:
        """Have the flow break off when the first run of the second repeat is to be scored."""
        score = replicate._score

        def interrupted(study: Study, *arguments: Any) -> None:
            if study.name.startswith("c-1-"):
                raise RuntimeError("broken off")
            score(study, *arguments)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(replicate, "_score", interrupted)
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
    assert set(outcome) >= {
        "comparison", "data", "metric", "space", "repeats", "budget_seconds", "budget_trials",
        "out", "methods", "fractions", "n_blocks", "pairs",
    }  # fmt: skip
    assert {m["method"] for m in outcome["methods"]} == {"random", "tpe"}
    for row in outcome["methods"]:
        assert set(row) >= {
            "method", "average_rank", "median_loss", "median_test_loss", "trials", "seconds",
            "is_tied_with_best", "quartiles_loss", "quartiles_test_loss", "expected_rank",
        }  # fmt: skip
        assert row["trials"] == N_TRIALS
        assert 0 < row["median_test_loss"] < 50
    assert outcome["n_blocks"] == 2


def test_curves_have_a_row_for_each_start_and_trial_of_each_run(compared) -> None:
    curves = compared.curves
    assert tuple(curves.columns) == CURVE_COLUMNS
    assert len(curves) == 4 * (1 + N_TRIALS)
    assert set(curves["test_rows"]) == {len(table()) // 5}
    for (method, repeat), run in curves.groupby(["method", "repeat"]):
        assert list(run["trials"]) == list(range(N_TRIALS + 1))
        assert run["seconds"].is_monotonic_increasing
        losses = [t["evaluation"]["loss"] for t in compared.trials(repeat, method)]
        assert list(run["loss"].iloc[1:]) == losses
        assert run["incumbent_loss"].iloc[-1] == min(losses)
        assert run["test_loss"].iloc[1:].notna().all()
        model = compared.store.records.get(f"models/c-{repeat}-{method}", ["about"])["about"]
        assert model["trial"] == run["incumbent"].iloc[-1]
        facts = StudyFacts.from_stored(compared.ledger.study(f"c-{repeat}-{method}"))
        assert facts.model.test_loss == run["test_loss"].iloc[-1]


def test_methods_of_a_repeat_have_the_same_rows_and_seed_and_repeats_have_others(compared) -> None:
    problems = {name: compared.ledger.study(name).problem for name in compared.ledger.study_names()}
    assert problems["c-0-random"] == problems["c-0-tpe"]
    assert problems["c-1-random"] == problems["c-1-tpe"]
    assert problems["c-0-random"]["split"] != problems["c-1-random"]["split"]
    assert problems["c-0-random"]["dataset"] == problems["c-1-random"]["dataset"]
    assert [problems[f"c-{r}-tpe"]["seed"] for r in (0, 1)] == [0, 1]


def test_no_run_is_served_what_another_one_made(compared) -> None:
    made: dict[str, str] = {}
    for name in compared.ledger.study_names():
        for trial in compared.ledger.trials(name):
            for step in trial["evaluation"]["steps"]:
                assert made.setdefault(step["key"], name) == name
    assert all(compared.store.index.keys_of(name) for name in compared.ledger.study_names())
    for repeat, method in [(r, m) for r in (0, 1) for m in ("random", "tpe")]:
        first = compared.trials(repeat, method)[0]
        if first["attempts"] == 1:  # or it was cut, and served what it had made itself
            assert not any(step["hit"] for step in first["evaluation"]["steps"])


def test_an_interrupted_comparison_resumes_where_it_stopped(compared) -> None:
    assert "complete" in compared.states_before.values()
    assert "interrupted" in compared.states_before.values()
    for name, events in compared.before.items():
        now = compared.ledger.events(name)
        assert now[: len(events)] == events
        assert [e.kind for e in now].count("ask") == N_TRIALS
    assert {compared.ledger.study(n).state for n in compared.ledger.study_names()} == {"complete"}


def test_runs_are_task_runs_named_by_method_and_repeat(compared) -> None:  # noqa: ARG001
    last = max((r for r in flow_runs() if r.name == "c (compare)"), key=lambda r: r.created)
    assert last.state_name == "Completed"
    names = {r.name: r.state_name for r in task_runs(last.id) if ", repeat " in r.name}
    assert 1 <= len(names) <= 3  # the others were complete before
    assert set(names.values()) == {"Completed"}


def test_a_finished_comparison_starts_nothing_and_says_the_same(compared, monkeypatch) -> None:
    monkeypatch.setattr(comparing, "run_replicates", None)
    left_out = {"trials", "methods", "repeats"}
    again = {k: v for k, v in compared.parameters.items() if k not in left_out}
    assert compare(**again) == compared.outcome


BUDGET_SECONDS = 6.0


@pytest.fixture(scope="module")
def timed(server, tmp_path_factory) -> dict[str, Any]:  # noqa: ARG001 - flows go there
    """A comparison at equal time, and what it came to at first."""
    folder = tmp_path_factory.mktemp("timed")
    parameters = {
        "data": str(write_table(folder)), "target": "target", "methods": "flash,smac",
        "repeats": 1, "budget": f"{BUDGET_SECONDS:g}s", "space": "small", "name": "t", "workers": 2,
        "store": str(folder / "store"), "out": str(folder / "curves.parquet"),
    }  # fmt: skip
    return {"parameters": parameters, "outcome": compare(**parameters)}


@pytest.mark.full
def test_runs_of_equal_time_are_looked_at_by_their_seconds(timed) -> None:
    for stage in timed["outcome"]["fractions"]:
        assert all(m["seconds"] <= stage["fraction"] * BUDGET_SECONDS for m in stage["methods"])
    for method in timed["outcome"]["methods"]:
        assert method["trials"] > 0
        assert method["seconds"] > 0.5 * BUDGET_SECONDS
        assert method["median_test_loss"] < 50
