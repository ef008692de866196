"""A whole study of a target of numbers."""

import pickle

import numpy as np
import pytest
from inputs import table

from prefect_tune.flows.study.predict import predict
from prefect_tune.flows.tuning import tune
from prefect_tune.storage import ArtifactStore, StoreAddress
from prefect_tune.tasks.bad_input import BadInput

pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("numbers")
    frame = table(200).drop(columns="target")
    noise = np.random.default_rng(0).normal(scale=0.1, size=len(frame))
    frame["target"] = frame["a"].fillna(0) + 2 * frame["b"].fillna(0) + noise
    frame.to_csv(folder / "numbers.csv", index=False)
    frame.drop(columns="target").head(10).to_csv(folder / "new.csv", index=False)
    return folder


def test_numbers_are_predicted_as_numbers(numbers) -> None:
    store = str(numbers / "store")
    summary = tune(
        data=str(numbers / "numbers.csv"),
        target="target",
        trials=6,
        study="numbers",
        workers=2,
        trial_timeout="20s",
        store=store,
    )
    assert (summary["metric"], summary["space"]) == ("r2", "modern_regression")
    assert summary["chance_loss"] == pytest.approx(1.0)
    assert summary["incumbent"]["loss"] < 0.5
    assert summary["test_loss"] < 0.6
    opened = ArtifactStore(StoreAddress(store))
    predicted = predict(opened, "numbers", str(numbers / "new.csv"), None)
    assert list(predicted.columns) == ["prediction"]
    assert predicted["prediction"].dtype == np.float64
    pickle.dumps(opened.records.get("models/numbers")["model"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "error"}, "class .* has 1 rows, fewer than the 3 folds"),
        ({"space": "small"}, "class .* has 1 rows, fewer than the 3 folds"),
        ({"metric": "r2", "space": "small"}, "--space small: it predicts classes"),
        ({"positive": "1"}, "--positive 1: not one of two classes; the target has numbers"),
    ],
)
def test_what_does_not_fit_numbers_is_refused(numbers, options, message) -> None:
    with pytest.raises(BadInput, match=message):
        tune(data=str(numbers / "numbers.csv"), target="target", study="refused", **options)
