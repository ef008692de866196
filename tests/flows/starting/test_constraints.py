"""Studies whose pipelines must meet constraints."""

from pathlib import Path
from typing import Any

import pytest
from flow_studies import prepare_study
from inputs import QUICK, table, write_table
from studies import trials_in

from prefect_tune.flows.options.declared import OPTIONS
from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.study.study import StudyFailed
from prefect_tune.flows.tune import tune
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.tasks.bad_input import BadInput


@pytest.fixture(scope="module")
def limited(server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:  # noqa: ARG001
    """A study with two limits, and its parameters and summary."""
    folder = tmp_path_factory.mktemp("limited")
    parameters = {
        "data": str(write_table(folder)), "target": "target", "trials": 4, "study": "s",
        "workers": 2, "store": str(folder / "store"), **QUICK,
        "constraint": ["latency_us<=1e6", "disparate_impact(colour)<=100"],
    }  # fmt: skip
    return {"parameters": parameters, "summary": tune(**parameters), "folder": folder}


def trials_of(limited: dict[str, Any]) -> list[Any]:
    return [t for t in trials_in(limited["parameters"]["store"], "s") if t["evaluation"]]


def test_what_is_limited_is_in_each_trial_and_in_the_summary(limited) -> None:
    names = {"latency_us", "disparate_impact(colour)"}
    assert set(limited["summary"]["incumbent"]["constraints"]) == names
    assert limited["summary"]["constraints"] == {"latency_us": 1e6, "disparate_impact(colour)": 100}
    assert all(set(t["evaluation"]["constraints"]) == names for t in trials_of(limited))


def test_a_study_in_which_nothing_keeps_within_a_limit_says_by_how_much(limited) -> None:
    strict = {"study": "strict", "constraint": ["model_size_bytes<=10"]}
    with pytest.raises(StudyFailed, match="allowed: 10"):
        tune(**{**limited["parameters"], **strict})
    store = ArtifactStore(StoreAddress(limited["parameters"]["store"]))
    summary = read_study(store, "strict").to_json()
    store.close()
    assert summary["incumbent"] is None
    assert summary["test_loss"] is None
    assert summary["state"] == "failed"
    assert summary["nearest_infeasible"]["constraints"]["model_size_bytes"] > 10


@pytest.mark.full
@pytest.mark.usefixtures("server")
def test_a_function_that_cannot_measure_a_trial_leaves_it_outside_the_limit(tmp_path: Path) -> None:
    functions = tmp_path / "mine.py"
    functions.write_text(
        "def first(pipeline, X, y):\n    raise OSError('no meter')\n"
        "def second(pipeline, X, y):\n    return 1.0\n"
    )
    parameters: dict[str, Any] = {
        "data": str(write_table(tmp_path)), "target": "target", "workers": 1,
        "trials": 2, "store": str(tmp_path / "store"), **QUICK,
    }  # fmt: skip
    with pytest.raises(StudyFailed, match="OSError: no meter"):
        tune(**parameters, study="f", constraint=[f"{functions}:first<=2"])
    second = tune(**parameters, study="g", constraint=[f"{functions}:second<=2"])
    assert second["incumbent"] is not None


def test_groups_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    rows = table()
    rows["site"] = ["north"] * 149 + ["south"]
    rows.to_csv(tmp_path / "sites.csv", index=False)
    parameters: dict[str, Any] = {
        **dict.fromkeys(OPTIONS), "data": str(tmp_path / "sites.csv"), "target": "target",
        "trials": 1, "store": str(tmp_path / "store"), **QUICK,
        "constraint": ["disparate_impact(site)<=100"],
    }  # fmt: skip
    with pytest.raises(BadInput, match="south"):
        prepare_study(parameters)
