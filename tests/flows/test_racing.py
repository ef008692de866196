"""A race as an option of a study: a real table, a real Prefect server, real worker processes."""

from typing import Any

import numpy as np
import pandas as pd
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
    for whole in history.complete[1:]:  # the first configuration ran whole
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


def test_on_many_rows_configurations_are_looked_at_on_a_part_of_them_first(tmp_path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(31_000, 3)).astype(np.float32)
    frame = pd.DataFrame(x, columns=list("abc")).assign(target=np.where(x[:, 0] > 0, "p", "q"))
    given = {"store": str(tmp_path / "store"), "study": "many", "workers": 1, "test_size": 0.0}
    summary = tune(
        frame, target="target", space="small", method="random", race=True, trials=4, **given
    )
    history = study_of(given).optimizer.history
    assert summary["n_begun"] == 4
    assert [t.query.subset for t in history][:4] == [0.5] * 4
    best = min(history.stopped, key=lambda t: t.loss)
    parts = [(t.query.subset, t.query.folds) for t in history.stretches(best.query.configuration)]
    assert parts == [(0.5, 1), (1.0, 1), (1.0, None)]
    assert summary["incumbent"]["trial"] == history.complete[0].number
