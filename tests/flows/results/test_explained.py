"""One trial explained, as JSON values."""

import json

import pytest

from prefect_tune.flows.results.explained import explained_trial, moments_of
from prefect_tune.flows.study.lookup import list_trials
from prefect_tune.storage import Ledger
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.problem import Problem


def test_a_trial_stands_beside_the_best_one(ended) -> None:
    best = ended.load().best_trial
    losses = {t["number"]: t["evaluation"] for t in list_trials(ended.store, "s")}
    other = next(n for n, evaluation in losses.items() if evaluation and n != best)
    found = explained_trial(ended.store, "s", other)
    assert found["loss"] == losses[other]["loss"]
    assert found["fold_losses"] == losses[other]["fold_losses"]
    assert found["incumbent"] == {
        "trial": best, "loss": losses[best]["loss"], "fold_losses": losses[best]["fold_losses"]
    }  # fmt: skip
    assert found["in_model"] == (other in {1, 2})
    assert json.loads(json.dumps(found)) == found


def test_values_stand_beside_defaults_and_ranges(ended) -> None:
    trials = list_trials(ended.store, "s")
    nearest = next(
        t for t in trials if t["query"]["configuration"]["fit model"]["algorithm"] == "k_nearest"
    )
    found = explained_trial(ended.store, "s", nearest["number"])
    rescale, model = found["pipeline"]
    assert set(rescale["choices"]) == {"none", "minmax", "standardize", "normalize"}
    values = {h["name"]: h for h in model["hyperparameters"]}
    given = nearest["query"]["configuration"]["fit model"]["hyperparameters"]
    assert values["n_neighbors"]["value"] == given["n_neighbors"]
    assert values["n_neighbors"]["default"] == 1
    assert values["n_neighbors"]["is_default"] == (given["n_neighbors"] == 1)
    assert values["n_neighbors"]["range"] == "a whole number from 1 to 100"
    assert values["n_neighbors"]["is_log"]
    assert values["n_neighbors"]["effective"] == min(given["n_neighbors"], 80)


def test_steps_have_hits_and_seconds_by_fold(ended) -> None:
    trial = list_trials(ended.store, "s")[2]
    found = explained_trial(ended.store, "s", 2)
    steps = {step["step"]: step["folds"] for step in found["steps"]}
    assert list(steps)[:2] == ["impute", "encode"]
    assert [fold["fold"] for fold in steps["impute"]] == [0, 1, 2]
    assert all(fold["hit"] for fold in steps["impute"])
    assert sum(len(folds) for folds in steps.values()) == len(trial["evaluation"]["steps"])
    assert found["constraints"] == [
        {
            "quantity": "model_size_bytes", "bound": 1e6, "is_met": True,
            "value": trial["evaluation"]["constraints"]["model_size_bytes"],
        }
    ]  # fmt: skip


def test_a_failure_says_where_why_and_how_to_retry(ended, monkeypatch) -> None:
    monkeypatch.setenv("PREFECT_TUNE_HOME", str(ended.folder / "home"))
    found = explained_trial(ended.store, "s", 0)
    failure = found["failure"]
    assert (failure["step"], failure["fold"], failure["kind"]) == ("fit model", 0, "error")
    assert failure["message"] == "ValueError: picky [about] new"
    assert "in fit" in failure["traceback"]
    assert failure["retry"] == "prefect-tune retry s --trial 0"
    assert found["code"] == "prefect-tune show s --trial 0 --code"
    assert [step["step"] for step in found["steps"]] == ["impute", "encode"]
    monkeypatch.setenv("PREFECT_TUNE_HOME", str(ended.folder / "elsewhere"))
    found, store = explained_trial(ended.store, "s", 0), f"--store {ended.folder}/home/store"
    assert found["failure"]["retry"] == f"prefect-tune retry s --trial 0 {store}"
    assert found["code"] == f"prefect-tune show s --trial 0 --code {store}"


def test_other_stretches_of_a_configuration_are_listed(ended) -> None:
    trials = list_trials(ended.store, "h")
    whole = next(t for t in trials if t["state"] == "complete" and _same(t, trials))
    found = explained_trial(ended.store, "h", whole["number"])
    (part,) = found["stretches"]
    assert (part["state"], part["fidelity"]) == ("stopped", "folds 1 of 3")
    assert found["fidelity"] == ""
    assert explained_trial(ended.store, "h", part["trial"])["fidelity"] == "folds 1 of 3"


def _same(trial, trials) -> bool:
    configuration = trial["query"]["configuration"]
    return sum(t["query"]["configuration"] == configuration for t in trials) > 1


def test_reason_and_task_run_come_from_the_events(ended, monkeypatch) -> None:
    events = Ledger(ended.store.database).events("s")
    reason = {"phase": "tuning", "text": "best by [EI]"}
    for event in events:
        if event.body["number"] == 2:
            more = {"reason": reason} if event.kind == "ask" else {"task_run_id": "abc"}
            event.body.update(more)  # type: ignore[attr-defined]
        else:
            event.body.pop("reason", None)  # type: ignore[attr-defined]
    monkeypatch.setattr(Ledger, "each_event", lambda *_: iter(events))
    found = explained_trial(ended.store, "s", 2)
    assert found["reason"] == reason
    assert found["task_run_id"] == "abc"
    assert found["asked_at"] < found["ended_at"]
    assert explained_trial(ended.store, "s", 3)["reason"] is None
    table = ended.load().trials_dataframe()
    assert list(table["user_attrs_reason"].dropna()) == ["tuning"]
    assert list(table["system_attrs_task_run_id"].dropna()) == ["abc"]


def test_a_retried_trial_has_not_ended(ended, monkeypatch) -> None:
    from prefect_tune.storage.ledger import LedgerEvent

    events = Ledger(ended.store.database).events("s")
    retried = LedgerEvent(len(events), "retry", {"number": 0}, events[-1].at + 1)
    monkeypatch.setattr(Ledger, "each_event", lambda *_: iter([*events, retried]))
    moments = moments_of(ended.store, "s")
    assert moments[0].ended is None
    assert moments[1].ended is not None


def test_without_its_space_a_trial_has_its_values_alone(ended, monkeypatch) -> None:
    def gone(_: Problem) -> None:
        raise ImportError("no module named lightgbm")

    monkeypatch.setattr(Problem, "find_space", gone)
    found = explained_trial(ended.store, "s", 1)
    assert [choice["choices"] for choice in found["pipeline"]] == [None, None]
    assert all(h["is_default"] is None for c in found["pipeline"] for h in c["hyperparameters"])


def test_a_space_that_is_another_one_here_is_not_shown(ended, monkeypatch) -> None:
    other = space_named("small")  # its steps have the same names
    monkeypatch.setattr(Problem, "find_space", lambda _: other)
    found = explained_trial(ended.store, "s", 1)
    assert [choice["choices"] for choice in found["pipeline"]] == [None, None]
    assert all(h["range"] is None for c in found["pipeline"] for h in c["hyperparameters"])


def test_a_trial_that_is_not_there_is_named_with_those_that_are(ended) -> None:
    with pytest.raises(BadInput, match="--trial 99: study s has the trials 0 to 8"):
        explained_trial(ended.store, "s", 99)
