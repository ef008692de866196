"""A final model as a file, and the facts of its card."""

from copy import deepcopy
from itertools import count

import numpy as np
import pytest

from prefect_tune.flows.results import exported as exporting
from prefect_tune.flows.results.card_facts import card_facts
from prefect_tune.flows.results.exported import export
from prefect_tune.flows.study.predict import final_model
from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import REFIT, load_split


@pytest.mark.parametrize("file_format", ["pickle", "skops"])
def test_a_model_read_back_predicts_as_the_stored_one(ended, file_format) -> None:
    model, about = final_model(ended.store, "s")
    found = export(ended.store, "s", file_format)
    dataset = load_dataset(ended.store, about["dataset"])
    rows = dataset.rows(np.arange(len(dataset)))
    assert np.array_equal(found.model.predict_proba(rows), model.predict_proba(rows))
    assert found.trials == [member["trial"] for member in about["members"]]
    assert found.n_checked == 30
    assert ("prefect-tune" in found.packages) == (file_format == "skops")
    assert bool(found.trusted) == (file_format == "skops")


def test_a_model_that_predicts_otherwise_is_not_exported(ended, monkeypatch) -> None:
    calls = count()
    monkeypatch.setattr(exporting, "_predicted", lambda *_: [np.array([next(calls)])])
    with pytest.raises(RuntimeError, match="predicts otherwise once it is read back"):
        export(ended.store, "s", "pickle")


def test_where_plain_classes_would_predict_otherwise_the_model_is_exported_as_it_is(
    ended, monkeypatch
) -> None:
    def turned(model):
        made = deepcopy(model)
        made.weights_ = made.weights_[::-1]
        return made

    monkeypatch.setattr(exporting, "plain", turned)
    stored, _ = final_model(ended.store, "s")
    found = export(ended.store, "s", "pickle")
    assert list(found.model.weights_) == list(stored.weights_)


def test_a_study_without_a_model_is_refused(ended) -> None:
    with pytest.raises(BadInput, match="no final model"):
        export(ended.store, "h", "pickle")
    with pytest.raises(UnknownName, match="unknown study"):
        export(ended.store, "gone", "pickle")


def test_facts_are_those_of_study_data_and_test_rows(ended) -> None:
    facts = card_facts(ended.store, export(ended.store, "s", "pickle"))
    summary = ended.load().summary()
    assert facts["losses"]["test"] == summary["test_loss"]
    assert facts["losses"]["single_best_test"] == summary["single_best_test_loss"]
    assert facts["losses"]["held_out"] == summary["ensemble"]["losses"][-1]
    assert facts["losses"]["test_score"] == {
        "type": "accuracy", "value": 1 - summary["test_loss"] / 100
    }  # fmt: skip
    assert facts["losses"]["test_error"]["percent"] == pytest.approx(summary["test_loss"])
    model, about = final_model(ended.store, "s")
    dataset = load_dataset(ended.store, about["dataset"])
    test = load_split(ended.store, ended.load().plan.problem.split).held_out(REFIT)
    right = model.predict(dataset.rows(test)) == dataset.labels[test]
    for row in facts["losses"]["by_class"]:
        of_class = dataset.labels[test] == row["class"]
        assert row["rows"] == of_class.sum()
        assert row["recall"] == pytest.approx(100 * right[of_class].mean())
    assert [c["name"] for c in facts["data"]["columns"]] == [str(name) for name in dataset.X]
    assert (facts["data"]["training_rows"], facts["data"]["test_rows"]) == (120, 30)
    assert facts["constraints"][0]["bound"] == 1e6
    assert set(facts["constraints"][0]["measured"]) == {1, 2}
    assert facts["search"]["failed"] == 1


def test_a_package_that_the_model_needs_and_is_not_here_is_named(ended, monkeypatch) -> None:
    def read(*_):
        raise ModuleNotFoundError("No module named 'lightgbm'", name="lightgbm")

    monkeypatch.setattr(type(ended.store.records), "get", read)
    with pytest.raises(BadInput, match="needs lightgbm, which is not installed here"):
        export(ended.store, "s", "pickle")
