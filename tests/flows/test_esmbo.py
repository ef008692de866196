"""ESMBO as the method of a study, which ends in an ensemble of its trials."""

from typing import Any

import numpy as np
import pytest
from inputs import write_table
from interrupting import Interrupting

from prefect_tune.flows.progress import observed_by
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.tuning import tune
from prefect_tune.optimizers import Trial
from prefect_tune.optimizers.trials.agnostic import best_frequencies
from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress

pytestmark = pytest.mark.usefixtures("server")

N_TRIALS, N_HISTORIES, EARLY = 12, 6, 8


@pytest.fixture(scope="module", params=["esmbo", "ers"])
def parameters(request, server, tmp_path_factory) -> dict[str, Any]:  # noqa: ARG001
    folder = tmp_path_factory.mktemp("esmbo")
    return {
        "data": str(write_table(folder)), "target": "target", "space": "svm",
        "method": request.param, "option": {"n_histories": N_HISTORIES}, "trials": N_TRIALS,
        "workers": 2, "store": str(folder / "store"), "study": "e",
    }  # fmt: skip


@pytest.fixture(scope="module")
def summary(parameters) -> dict[str, Any]:
    """What a study shows that was interrupted and gone on with."""
    with observed_by(Interrupting(EARLY)), pytest.raises(KeyboardInterrupt):
        tune(**parameters)
    return tune(**parameters)


def store_of(parameters: dict[str, Any]) -> ArtifactStore:
    return ArtifactStore(StoreAddress(parameters["store"]))


def test_trials_are_kept_with_a_risk_for_each_history(parameters, summary) -> None:
    assert summary["n_trials"] == N_TRIALS
    for trial in Ledger(store_of(parameters).database).trials("e"):
        risks = trial["evaluation"]["risks"]
        assert len(risks) == N_HISTORIES
        assert len(set(risks)) > 1


def test_it_ends_in_the_agnostic_ensemble_beside_the_best_trial_alone(summary) -> None:
    ensemble = summary["ensemble"]
    assert ensemble["kind"] == "agnostic"
    assert len(ensemble["members"]) > 1
    assert sum(member["weight"] for member in ensemble["members"]) == pytest.approx(1)
    assert summary["test_loss"] is not None
    assert summary["single_best_test_loss"] is not None
    assert summary["decisions"]["histories"] == N_HISTORIES
    assert summary["decisions"]["members"] >= 1


def test_another_session_knows_the_risks_that_were_told(parameters, summary) -> None:  # noqa: ARG001
    study = Study(store_of(parameters), "e")
    told: list[Trial] = [t for t in study.optimizer.history if t.evaluation]
    assert all(t.evaluation and len(t.evaluation.risks) == N_HISTORIES for t in told)
    risks = np.array([t.evaluation.risks for t in told if t.evaluation])
    expected = dict(zip((t.number for t in told), best_frequencies(risks), strict=True))
    assert study.optimizer.weights == pytest.approx({n: w for n, w in expected.items() if w})
