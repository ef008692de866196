"""Studies whose final model is an ensemble."""

import numpy as np
import pytest
from inputs import QUICK, table, write_table

from prefect_tune.flows.study.predict import final_model, predict
from prefect_tune.flows.tuning import tune
from prefect_tune.storage import ArtifactStore, StoreAddress
from prefect_tune.tasks.ensembling import ClassEnsemble

pytestmark = pytest.mark.usefixtures("server")


def test_the_final_model_is_an_ensemble_of_the_best_trials(tmp_path) -> None:
    parameters = {
        "data": str(write_table(tmp_path)), "target": "target", "trials": 8, "study": "e",
        "workers": 2, "store": str(tmp_path / "store"), **QUICK,
    }  # fmt: skip
    alone = tune(**parameters)
    assert alone["ensemble"] is None
    summary = tune(**parameters, ensemble=6)
    assert summary["ensemble"]["kind"] == "greedy"
    assert summary["single_best_test_loss"] == alone["test_loss"]
    members = summary["ensemble"]["members"]
    assert sum(m["weight"] for m in members) == pytest.approx(1.0)
    assert members[0]["trial"] == summary["incumbent"]["trial"]
    assert len(members) > 1
    losses = summary["ensemble"]["losses"]
    assert 1 < len(losses) <= 6
    assert losses[-1] == min(losses) < summary["incumbent"]["loss"]
    assert losses[0] == pytest.approx(summary["incumbent"]["loss"])
    store = ArtifactStore(StoreAddress(parameters["store"]))
    model, about = final_model(store, "e")
    assert about["members"] == members
    assert isinstance(model, ClassEnsemble)
    table(30, seed=1).to_csv(tmp_path / "new.csv", index=False)
    predicted = predict(store, "e", str(tmp_path / "new.csv"), None)
    chances = predicted.filter(like="probability_").to_numpy()
    assert np.allclose(chances.sum(axis=1), 1)
    store.close()
