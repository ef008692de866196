"""Predictions of new rows by a study's final model are checked like all others."""

import numpy as np
import pandas as pd
import pytest
from answer_worlds import hostile_models
from answer_worlds.own_studies import own_context
from command_line import CommandLine
from sklearn.pipeline import Pipeline
from studies import store_of

from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.predict import predict
from prefect_tune.storage.key import model_record
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.objective.predictions import InvalidPredictions


def ended(folder, model: str, n_classes: int):
    """A study whose final model is one of `hostile_models`, and a file of new rows."""
    made = own_context(folder, model, n_classes, "error" if n_classes else "r2")
    store, file = store_of(made), str(folder / "own.csv")
    plan = StudyPlan(
        source=Source(file, target="y"), data_name="own", problem=made.problem, folds=3,
        holdout=None, test_size=0.2, positive=None, chance_loss=50.0, method="random",
    )  # fmt: skip
    Ledger(store.database).create_study("test", made.problem.to_json(), plan.to_json())
    dataset = load_dataset(store, made.problem.dataset)
    fitted = getattr(hostile_models, model)().fit(dataset.X, dataset.labels)
    about = {"dataset": made.problem.dataset, "trial": 0, "members": [{"trial": 0, "weight": 1.0}]}
    parts = {"model": Pipeline([("model", fitted)]), "about": about}
    store.records.put(model_record("test"), parts, "test")
    return store, file, fitted.inner_, dataset.X


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("model", ["Column", "ReversedClasses", "NoClasses", "FrameOfLabels"])
def test_labels_are_flat_and_probabilities_stand_under_their_class(
    tmp_path, model, n_classes
) -> None:
    store, file, inner, X = ended(tmp_path, model, n_classes)
    found = predict(store, "test", file, None)
    assert found["prediction"].tolist() == inner.predict(X).tolist()
    assert list(found)[1:] == [f"probability_{label}" for label in inner.classes_]
    np.testing.assert_array_equal(found.iloc[:, 1:], inner.predict_proba(X))


def test_decision_values_are_not_written_as_probabilities(tmp_path) -> None:
    store, file, _, _ = ended(tmp_path, "Decides", 3)
    assert list(predict(store, "test", file, None)) == ["prediction"]


@pytest.mark.parametrize(
    ("model", "n_classes", "value"),
    [("Abstains", 3, "-1 in 3 of 120 rows"), ("NumberNan", 0, "nan in 1 of 120 rows")],
)
def test_what_is_no_prediction_is_not_written(tmp_path, model, n_classes, value) -> None:
    store, file, _, _ = ended(tmp_path, model, n_classes)
    with pytest.raises(InvalidPredictions, match=value):
        predict(store, "test", file, None)
    out = tmp_path / "out.csv"
    done = CommandLine(tmp_path)("predict", "test", file, "--out", out)
    assert done.exit_code == 1
    assert value in done.output
    assert not out.exists()


def test_numbers_in_a_column_are_written_flat(tmp_path) -> None:
    store, file, inner, X = ended(tmp_path, "NumberColumn", 0)
    expected = pd.DataFrame({"prediction": inner.predict(X)})
    pd.testing.assert_frame_equal(predict(store, "test", file, None), expected)
