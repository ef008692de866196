"""A race as an option of a study: a real table, a real Prefect server, real worker processes."""

from typing import Any

import pytest
from inputs import write_table

from prefect_tune.flows.study.study import Study
from prefect_tune.flows.tuning import tune
from prefect_tune.storage import ArtifactStore, StoreAddress

pytestmark = pytest.mark.usefixtures("server")

N_BEGUN = 12


@pytest.fixture(scope="module")
def parameters(server, tmp_path_factory) -> dict[str, Any]:  # noqa: ARG001 - the flow goes there
    folder = tmp_path_factory.mktemp("race")
    return {
        "data": str(write_table(folder)), "target": "target", "space": "small", "method": "random",
        "race": True, "trials": N_BEGUN, "workers": 2, "store": str(folder / "store"),
        "study": "race",
    }  # fmt: skip


@pytest.fixture(scope="module")
def summary(parameters) -> dict[str, Any]:
    return tune(**parameters)


def study_of(parameters: dict[str, Any]) -> Study:
    return Study(ArtifactStore(StoreAddress(parameters["store"])), parameters["study"])


def test_as_many_configurations_are_begun_as_the_trials_say_and_some_end_early(summary) -> None:
    assert summary["state"] == "complete"
    assert summary["n_begun"] == summary["decisions"]["race"]["begun"] == N_BEGUN
    assert 0 < summary["decisions"]["race"]["stopped"] < N_BEGUN
    assert summary["test_loss"] is not None


def test_what_goes_on_is_served_its_first_fold(parameters, summary) -> None:
    history = study_of(parameters).optimizer.history
    for whole in history.complete:
        first = history.stretches(whole.query.configuration)[0]
        assert first.evaluation is not None
        assert whole.evaluation is not None
        assert whole.evaluation.fold_losses[0] == first.evaluation.loss
        assert all(step.hit for step in whole.evaluation.steps if step.fold == 0)
    assert len(history.complete) + summary["decisions"]["race"]["stopped"] == N_BEGUN


def test_a_race_is_brought_back_as_it_was_and_goes_on(parameters, summary) -> None:
    assert study_of(parameters).optimizer.decisions == summary["decisions"]
    again = tune(**{**parameters, "trials": N_BEGUN + 3})
    assert again["n_begun"] == N_BEGUN + 3
    assert again["decisions"]["race"]["stopped"] >= summary["decisions"]["race"]["stopped"]
