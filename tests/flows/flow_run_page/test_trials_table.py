"""A table of trials holds the newest, the best and the last failed ones, however many there are."""

from dataclasses import replace

from worlds import mixed_space

from prefect_tune.flows.flow_run_page.trials_table import FailureReasons, TrialsTable
from prefect_tune.optimizers import Evaluation, Failure, Query, StepCost, Trial
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.trials.outcome import FailureKind

QUERY = Query(default_configuration(mixed_space(), ("unit", "svm")))


def complete(number: int, loss: float) -> Trial:
    steps = (
        StepCost("scale", 0, 1.0, 0.1, hit=True, key="a"),
        StepCost("model", 0, 1.0, 0.1, hit=False, key="b"),
    )
    return Trial(number, QUERY).started().ended(Evaluation(loss, cost_seconds=2.0, steps=steps))


def failed(number: int, message: str = "no rows", step: str | None = "model") -> Trial:
    return Trial(number, QUERY).started().failed(Failure(FailureKind.ERROR, message, step=step))


def test_a_row_says_what_became_of_a_trial_and_where_a_failed_one_is_seen() -> None:
    table = TrialsTable()
    part = Trial(2, replace(QUERY, folds=1)).started().ended(Evaluation(9.5, cost_seconds=0.5))
    for trial in (complete(0, 12.34567), failed(1, "x=<b>"), part):
        table.add(trial, f"http://server/{trial.number}")
    newest, lost, first = table.rows()
    assert first == {
        "trial": 0, "state": "complete", "loss": "12.35", "took": "2.0s", "cached": "1/2",
        "pipeline": "unit > svm", "failure": "", "task run": "",
    }  # fmt: skip
    assert (newest["state"], newest["loss"], newest["cached"]) == ("in part (folds 1)", "9.5", "")
    assert (lost["state"], lost["loss"]) == ("failed", "")
    assert lost["failure"] == "model: x=<\u200bb>"
    assert lost["task run"] == "http://server/1"


def test_of_very_many_trials_the_newest_the_best_and_the_last_failed_ones_stay() -> None:
    table = TrialsTable()
    for number in range(3_000):
        is_failed = number % 10 == 0
        trial = failed(number) if is_failed else complete(number, float((number * 37) % 2_999))
        table.add(trial, "")
        assert len(table.rows()) <= 200
    rows = {row["trial"]: row for row in table.rows()}
    assert list(rows) == sorted(rows, reverse=True)
    assert set(range(2_900, 3_000)) <= set(rows)
    losses = {n: (n * 37) % 2_999 for n in range(3_000) if n % 10}
    assert set(sorted(losses, key=lambda n: losses[n])[:50]) <= set(rows)
    assert set(range(2_500, 3_000, 10)) <= set(rows)


def test_a_trial_that_is_run_again_has_one_row() -> None:
    table = TrialsTable()
    for trial in (failed(0), complete(1, 5.0), complete(0, 4.0)):
        table.add(trial, "")
    assert [(r["trial"], r["state"]) for r in table.rows()] == [(1, "complete"), (0, "complete")]
    for number in range(2, 300):
        table.add(complete(number, 9.0), "")
    assert {0, 1} <= {row["trial"] for row in table.rows()}  # among the best


def test_failures_are_counted_by_reason_whatever_numbers_they_have() -> None:
    reasons = FailureReasons()
    long = "w" * 200
    for number, message in enumerate(["took more than 1 s", "took more than 2 s", f"{long} {1}"]):
        reasons.add(failed(number, message), f"url {number}")
    reasons.add(failed(3, f"{long} {2}"), "")
    reasons.add(failed(4, "took more than 3 s"), "url 4")
    most, other = reasons.all()
    assert (most.text, most.n_trials) == ("model: took more than 3 s", 3)
    assert (most.last, most.url) == (4, "url 4")
    assert (other.n_trials, len(other.text)) == (2, 120)


def test_a_failure_that_was_mended_is_none_and_many_reasons_are_one() -> None:
    reasons = FailureReasons()
    reasons.add(failed(0), "")
    reasons.add(complete(0, 1.0), "")
    assert reasons.all() == []
    for number in range(100):
        reasons.add(failed(number, "reason " + "abcdefghij"[number % 10] * (number // 10 + 1)), "")
    found = reasons.all()
    assert len(found) <= 21
    assert sum(reason.n_trials for reason in found) == 100
    assert found[0].text == "other reasons"


def test_the_last_of_a_reason_is_one_that_still_fails() -> None:
    reasons = FailureReasons()
    reasons.add(failed(0, "took more than 1 s"), "url 0")
    reasons.add(failed(1, "took more than 2 s"), "url 1")
    reasons.add(complete(1, 5.0), "")
    [left] = reasons.all()
    assert (left.text, left.n_trials) == ("model: took more than 1 s", 1)
    assert (left.last, left.url) == (0, "url 0")


def test_a_reason_that_was_mended_makes_room_for_another() -> None:
    reasons = FailureReasons()
    for number in range(21):
        reasons.add(failed(number, "x" * (number + 1)), "")
    reasons.add(complete(4, 1.0), "")
    reasons.add(failed(30, "new"), "")
    texts = [reason.text for reason in reasons.all()]
    assert "model: new" in texts
    assert texts.count("other reasons") == 1
    assert len(texts) == 21
