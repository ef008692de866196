"""FLASH as the method of a study: a real table, a real Prefect server, real worker processes."""

from typing import Any

import pytest
from inputs import write_meds

from prefect_tune.flows.tuning import tune
from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress
from prefect_tune.tasks.catalogue.portfolios import portfolio_of
from prefect_tune.tasks.catalogue.spaces import space_named

pytestmark = pytest.mark.usefixtures("server")

N_TRIALS = 16


@pytest.fixture(scope="module")
def wine(server, tmp_path_factory) -> dict[str, Any]:  # noqa: ARG001 - the flow goes there
    """Parameters of a study of FLASH's own space, on all folds."""
    store = str(tmp_path_factory.mktemp("wine") / "store")
    given = {"space": "flash", "race": False, "ensemble": "single"}
    return {"data": "sklearn:wine", "trials": N_TRIALS, "store": store, "study": "wine", **given}


@pytest.fixture(scope="module")
def summary(wine) -> dict[str, Any]:
    return tune(**wine, workers=2)


def trials_of(parameters: dict[str, Any]) -> list[dict[str, Any]]:
    store = ArtifactStore(StoreAddress(parameters["store"]))
    return Ledger(store.database).trials(parameters["study"])


def test_flash_searches_the_whole_of_a_space(summary) -> None:
    assert (summary["method"], summary["space"], summary["state"]) == ("flash", "flash", "complete")
    assert summary["n_trials"] == N_TRIALS
    assert summary["incumbent"]["loss"] < 0.15 * summary["chance_loss"]  # the classes are easy


def test_what_its_phases_decided_is_kept_with_the_study(summary) -> None:
    decided = summary["decisions"]
    space = space_named("flash")
    assert decided["phase"] == 3
    assert (decided["n_init"], decided["n_prune"]) == (8, 3)  # shrunk to parts of the budget
    assert any("phases of 30 + 30; they are" in note for note in decided["notes"])
    for row in decided["ranking"]:
        assert len(row["path"]) == len(space.searched)
    for step in space.searched:
        assert set(decided["subspace"][step.name]) <= {a.id for a in step.algorithms}


def test_each_phase_asks_for_what_it_is_about(wine, summary) -> None:
    trials, decided = trials_of(wine), summary["decisions"]
    steps = list(decided["subspace"])
    paths = [[t["query"]["configuration"][step]["algorithm"] for step in steps] for t in trials]
    assert paths[0] == decided["design"][0]
    last = dict(zip(steps, paths[-1], strict=True))
    assert all(last[step] in decided["subspace"][step] for step in steps)


def test_a_study_of_flash_goes_on_in_its_last_phase(wine, summary) -> None:
    before = trials_of(wine)
    again = tune(**{**wine, "trials": N_TRIALS + 2}, workers=2)
    assert trials_of(wine)[:N_TRIALS] == before
    assert again["n_trials"] == N_TRIALS + 2
    assert again["decisions"]["subspace"] == summary["decisions"]["subspace"]


def test_events_are_searched_in_the_space_with_their_construction(tmp_path) -> None:
    meds, store = write_meds(tmp_path / "meds"), str(tmp_path / "store")
    done = tune(data=str(meds), labels="labels/task", trials=6, store=store, workers=2)
    assert (done["method"], done["space"], done["state"]) == ("flash", "healthcare", "complete")
    assert done["incumbent"]["loss"] < done["chance_loss"]
    assert "construct features" in done["incumbent"]["configuration"]


def test_a_table_and_nothing_else_is_searched_in_the_modern_space_by_a_race(tmp_path) -> None:
    done = tune(data="sklearn:wine", trials=20, store=str(tmp_path / "store"), workers=2)
    assert (done["method"], done["space"], done["state"]) == ("flash", "modern", "complete")
    assert done["decisions"]["race"]["begun"] == 20
    assert done["ensemble"]["kind"] in {"single", "greedy", "agnostic"}
    assert done["test_loss"] < 0.15 * done["chance_loss"]
    start = [
        c["query"]["configuration"]
        for c in trials_of({"store": str(tmp_path / "store"), "study": done["study"]})
    ]
    portfolio = [c.to_json() for c in portfolio_of(space_named("modern"))]
    assert list(dict.fromkeys(map(str, start)))[:3] == [str(c) for c in portfolio[:3]]
