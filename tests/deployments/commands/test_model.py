"""Using the final model of a study."""

import pickle

import pandas as pd
import pytest
from inputs import table

pytestmark = pytest.mark.usefixtures("server")


def test_predictions_and_the_model_are_files_of_the_users(studied) -> None:
    fresh = table(40, seed=4).drop(columns="target")
    fresh.to_parquet(studied.folder / "new.parquet", index=False)
    out = studied.folder / "predictions.csv"
    told = studied.json("predict", "s", studied.folder / "new.parquet", "--out", out)
    predictions = pd.read_csv(out)
    assert list(predictions) == told["columns"]
    assert list(predictions) == ["prediction", "probability_no", "probability_yes"]
    assert len(predictions) == 40
    assert predictions[["probability_no", "probability_yes"]].sum(axis=1).round(9).eq(1).all()
    model_file = studied.folder / "model.pkl"
    assert studied.run("export", "s", model_file).exit_code == 0
    model = pickle.loads(model_file.read_bytes())
    assert (model.predict(fresh) == predictions["prediction"]).all()
