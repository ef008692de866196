"""The order in which trials are tried as the final model."""

from dataclasses import replace

import pytest
from worlds import evaluation

from prefect_tune.flows.study.next_best import NextBest, ranked_trials
from prefect_tune.optimizers import Failure, Query, Trial
from prefect_tune.optimizers.space.configuration import Choice, Configuration
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.outcome import FailureKind
from prefect_tune.tasks.final_model import RefitFailed

STEP = "fit model"


def trial(number: int, model: str, loss: float = 0.0, seconds: float = 1.0, **query: int) -> Trial:
    """A trial of a configuration of its own."""
    choices = (("scale", Choice("standard")), (STEP, Choice(model, (("x", number),))))
    came = replace(evaluation(loss), cost_uncached_seconds=seconds, fold_losses=(loss,))
    return Trial(number, Query(Configuration(choices), **query)).ended(came)


def tried(trials: list[Trial], *, over_limit: bool = False, clock: float = 0.0) -> list[int]:
    """Numbers in the order of trying, if all fail."""
    times = iter(range(1_000))
    next_best = NextBest(trials, 0.0, lambda: clock * next(times))
    numbers = []
    for each in next_best:
        numbers.append(each.number)
        failure = RefitFailed.at("" if over_limit else STEP, "no")
        failure.is_over_limit = over_limit
        next_best.note_failure(each, failure)
    return numbers


def test_trials_of_an_algorithm_that_failed_three_times_come_last() -> None:
    trials = [trial(n, "tree", seconds=10 - n) for n in range(6)] + [trial(6, "line")]
    assert tried(trials) == [0, 1, 2, 6, 5, 4, 3]


def test_trials_as_slow_as_one_over_the_limit_come_last() -> None:
    trials = [trial(0, "tree", seconds=9), trial(1, "line", seconds=10), trial(2, "net", seconds=8)]
    assert tried(trials, over_limit=True) == [0, 2, 1]


def test_what_was_put_off_is_tried_for_a_minute_at_most() -> None:
    trials = [trial(n, "tree", seconds=10 - n) for n in range(20)]
    assert len(tried(trials, clock=20.0)) == 3 + 2


@pytest.mark.parametrize("kind", ["full", "partial", "failed"])
def test_full_trials_come_first_then_those_on_more(kind) -> None:
    history = History()
    trials = [trial(0, "a", 1.0, folds=1), trial(1, "b", 9.0, folds=2), trial(2, "c", 5.0, folds=2)]
    if kind == "full":
        trials.append(trial(3, "d", 20.0))
    for each in trials:
        history.record(Trial(each.number, each.query))
        history.record(each)
    if kind == "failed":  # the configuration of the best one later failed in full
        again = Trial(3, Query(trials[2].query.configuration))
        history.record(again)
        history.record(again.failed(Failure(FailureKind.ERROR, "no")))
    expected = {"full": [3, 2, 1, 0], "partial": [2, 1, 0], "failed": [1, 0, 2]}[kind]
    assert [t.number for t in ranked_trials(history)] == expected
    assert history.best_partial is not None
    assert history.best_partial.number == {"failed": 1}.get(kind, 2)
