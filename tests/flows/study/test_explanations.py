"""Why a study has no model, in one line."""

from types import SimpleNamespace
from typing import Any

from prefect_tune.flows.study.explanations import most_frequent_failure, nearest_miss
from prefect_tune.optimizers import Choice, Configuration, Constraint, Evaluation, Failure, Query
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.outcome import FailureKind
from prefect_tune.optimizers.trials.trial import Trial

QUERY = Query(Configuration((("fit model", Choice("tree")),)))


def failed(number: int, message: str, step: str | None = None) -> Trial:
    return Trial(number, QUERY).started().failed(Failure(FailureKind.ERROR, message, step=step))


def complete(number: int, **measured: float) -> Trial:
    return Trial(number, QUERY).started().completed(Evaluation(1.0, constraints=measured))


def study(trials: list[Trial], *constraints: Constraint) -> Any:
    history = History(constraints)
    for trial in trials:
        history.record(trial)
    found = {trial.number: trial for trial in trials}
    optimizer = SimpleNamespace(history=history)
    return SimpleNamespace(trials=found, optimizer=optimizer, incumbent=history.incumbent)


def test_the_same_failure_with_other_numbers_is_the_same_reason() -> None:
    trials = [
        failed(0, "needs 3.5 GB", "fit model"),
        failed(1, "singular", "fit model"),
        failed(2, "needs 12 GB", "fit model"),
    ]
    text = most_frequent_failure(study(trials))
    assert text.startswith("3 trials failed, 2 of them with: fit model: needs 3.5 GB")


def test_a_study_without_any_failure_has_finished_none() -> None:
    assert most_frequent_failure(study([Trial(0, QUERY)])) == (
        "no trial was finished; run the same command with a larger --budget"
    )


def test_the_nearest_trial_is_named_with_all_that_it_exceeds() -> None:
    bounds = (Constraint("latency_us", 10.0), Constraint("size", 5.0))
    trials = [complete(0, latency_us=90.0, size=1.0), complete(1, latency_us=12.0)]
    text = nearest_miss(study([trials[0]], *bounds))
    assert text.endswith("trial 0 is nearest, with latency_us 90 where 10 is allowed")
    text = nearest_miss(study([trials[1]], *bounds))
    assert "latency_us 12 where 10 is allowed; size not measured" in text


def test_nothing_is_said_where_a_trial_meets_all_or_none_is_complete() -> None:
    bound = Constraint("size", 5.0)
    assert nearest_miss(study([complete(0, size=4.0)], bound)) == ""
    assert nearest_miss(study([failed(0, "no")], bound)) == ""
