"""Which losses importance is learned from."""

from dataclasses import replace

import pytest
from reports.told_trials import PLAN, documents, ended

from prefect_tune.flows.reporting import importance as module
from prefect_tune.flows.reporting.importance import ImportancePass


def losses_of(monkeypatch, *trials) -> list[float]:
    """Those that the forests are given."""
    given = []
    monkeypatch.setattr(module, "importance_of", lambda *a: given.append(a) or module.Importance(0))
    subject = ImportancePass(PLAN)
    for document in documents(trials):
        subject.add(document)
    subject.found()
    [(_, configurations, losses, chance)] = given
    assert len(configurations) == len(losses)
    assert chance == 50.0
    return losses


def test_a_configuration_that_a_race_ended_counts_by_its_first_fold(monkeypatch) -> None:
    full = ended(0, 20.0, fold_losses=(18.0, 20.0, 22.0))
    part = ended(1, 30.0, fidelity={"folds": 1}, fold_losses=(30.0,))
    assert losses_of(monkeypatch, full, part) == [20.0, 32.0]  # the first fold is the easier one


def test_each_configuration_counts_once_by_most_of_its_folds(monkeypatch) -> None:
    first = ended(0, 18.0, seed=4, fidelity={"folds": 1}, fold_losses=(18.0,))
    whole = ended(1, 20.0, seed=4, fold_losses=(18.0, 20.0, 22.0))
    other = ended(2, 20.0, seed=5, fold_losses=(14.0, 20.0, 26.0))
    assert losses_of(monkeypatch, first, whole, other) == [20.0, 20.0]


def test_losses_of_few_rows_or_epochs_do_not_count(monkeypatch) -> None:
    few = ended(0, 9.0, fidelity={"subset": 0.25})
    young = ended(1, 9.0, fidelity={"epochs": 3}, curve=(9.0,) * 3)
    assert losses_of(monkeypatch, few, young, ended(2, 5.0)) == [5.0]


def test_of_a_space_that_is_not_to_be_had_the_reason_is_said() -> None:
    for changed, said in (
        ({"space_digest": "other"}, "knows the space otherwise"),
        ({"space": "gone.py:space", "space_code": "import nothing_such"}, "nothing_such"),
    ):
        subject = ImportancePass(replace(PLAN, problem=replace(PLAN.problem, **changed)))
        for document in documents([ended(0, 1.0)]):
            subject.add(document)
        assert said in subject.found().reason


def test_a_fault_of_the_mathematics_is_not_taken_for_one_of_the_space(monkeypatch) -> None:
    def faulty(*_: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(module, "importance_of", faulty)
    with pytest.raises(ZeroDivisionError, match="a fault of ours"):
        ImportancePass(PLAN).found()
