"""Predictions that a study did not keep are made again when an ensemble is wanted after all."""

import logging

import pytest
from inputs import QUICK, write_table

from prefect_tune.flows.tuning import tune
from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress
from prefect_tune.storage.key import PREDICTIONS, predictions_record

pytestmark = pytest.mark.usefixtures("server")


def test_an_ensemble_of_trials_whose_predictions_were_dropped_has_all_candidates(
    tmp_path, caplog
) -> None:
    parameters = {
        "data": str(write_table(tmp_path)), "target": "target", "trials": 5, "study": "s",
        "store": str(tmp_path / "store"), **QUICK,
    }  # fmt: skip
    n_complete = 5 - tune(**parameters)["n_failed"]
    store = ArtifactStore(StoreAddress(parameters["store"]))
    of_trials = predictions_of_trials(store)
    store.records.release("s", sorted(of_trials))
    with caplog.at_level(logging.INFO):
        summary = tune(**{**parameters, "ensemble": 3})
    assert (summary["n_trials"], summary["state"]) == (5, "complete")
    assert summary["ensemble"] is not None
    assert f"predicting once more with the models of {n_complete} trials" in caplog.text
    assert "left out of the ensemble" not in caplog.text
    assert of_trials <= set(store.records.used_by("s", PREDICTIONS))
    store.close()


def predictions_of_trials(store: ArtifactStore) -> set[str]:
    """Records of their predictions of held-out rows."""
    evaluations = [trial["evaluation"] for trial in Ledger(store.database).trials("s")]
    return {predictions_record(key) for e in evaluations if e for key in e["predictions"]}
