"""Fabolas as the method of a study, whose answer is a prediction until it is confirmed."""

from typing import Any

import pytest
from inputs import write_table
from interrupting import Interrupting

from prefect_tune.flows.progress import observed_by
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.study.summary import summarize
from prefect_tune.flows.tuning import tune
from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress

pytestmark = pytest.mark.usefixtures("server")

N_BEGUN = 11
EARLY = 6
"""Trials after which the first session is interrupted."""


@pytest.fixture(scope="module")
def parameters(server, tmp_path_factory) -> dict[str, Any]:  # noqa: ARG001 - the flow goes there
    folder = tmp_path_factory.mktemp("fabolas")
    return {
        "data": str(write_table(folder, n=900)), "target": "target", "space": "small",
        "method": "fabolas", "option": {"inference": "map"}, "trials": N_BEGUN, "workers": 2,
        "store": str(folder / "store"), "study": "f",
    }  # fmt: skip


@pytest.fixture(scope="module")
def interrupted(parameters) -> dict[str, Any]:
    """What the study was after Ctrl-C: its summary and its trials."""
    with observed_by(Interrupting(EARLY)), pytest.raises(KeyboardInterrupt):
        tune(**parameters)
    store = ArtifactStore(StoreAddress(parameters["store"]))
    return {"summary": summarize(store, "f"), "trials": Ledger(store.database).trials("f")}


@pytest.fixture(scope="module")
def summary(parameters, interrupted) -> dict[str, Any]:  # noqa: ARG001 - goes on from there
    return tune(**parameters)


def study_of(parameters: dict[str, Any]) -> Study:
    return Study(ArtifactStore(StoreAddress(parameters["store"])), "f")


def test_before_anything_is_confirmed_the_best_one_is_said_to_be_of_a_subset(interrupted) -> None:
    summary = interrupted["summary"]
    assert summary["state"] == "interrupted"
    assert summary["n_trials"] == summary["n_stopped"] >= EARLY
    assert summary["incumbent"]["fidelity"].startswith("subset 1/")
    assert summary["test_loss"] is None


def test_the_answer_is_one_that_was_confirmed_on_all_rows(parameters, summary) -> None:
    assert (summary["state"], summary["n_begun"]) == ("complete", N_BEGUN)
    made = summary["decisions"]["confirmations"]
    assert made
    study = study_of(parameters)
    assert all(study.trials[c["trial"]].query.is_full for c in made)
    assert all(c["loss"] == study.trials[c["trial"]].loss for c in made)
    assert summary["incumbent"]["fidelity"] == ""
    assert summary["incumbent"]["trial"] == study.optimizer.history.incumbent.number
    assert study.result["members"] == [{"trial": summary["incumbent"]["trial"], "weight": 1.0}]
    assert 0 < summary["test_loss"] < 50


def test_what_was_done_before_the_interrupt_stays_and_is_not_begun_again(
    parameters, interrupted, summary
) -> None:
    now = Ledger(ArtifactStore(StoreAddress(parameters["store"])).database).trials("f")
    before = [t for t in interrupted["trials"] if t["state"] == "stopped"]
    assert [t for t in now if t["number"] in {b["number"] for b in before}] == before
    assert summary["n_waiting"] == 0


def test_what_it_has_learned_is_brought_back_as_it_was(parameters, summary) -> None:
    optimizer = study_of(parameters).optimizer
    assert optimizer.decisions == summary["decisions"]
    assert optimizer.incumbent.number == summary["incumbent"]["trial"]
