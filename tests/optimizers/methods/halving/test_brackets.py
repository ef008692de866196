from collections.abc import Sequence

import numpy as np
import pytest
from worlds import evaluation, mixed_space, told

from prefect_tune.optimizers import Constraint, Evaluation, History, Query, Trial
from prefect_tune.optimizers.methods.halving import Brackets, Plan, hyperband_plan
from prefect_tune.optimizers.methods.rungs import counted_levels, highest_s, ranked
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.sampling import new_configuration


def configurations(n: int) -> list[Configuration]:
    drawn: list[Configuration] = []
    for seed in range(n):
        drawn.append(new_configuration(mixed_space(), set(drawn), np.random.default_rng(seed)))
    return drawn


class Study:
    """Brackets of two rungs with eta 3, and a history in which things are asked for and told."""

    def __init__(self, *sizes: int) -> None:
        self.history = History()
        self.brackets = Brackets(3, 3, lambda i: Plan(sizes[i], 0))

    def ask(self, configuration: Configuration, epochs: int | None = 1) -> int:
        number = len(self.history)
        self.history.record(Trial(number, Query(configuration, epochs=epochs)))
        self.brackets.catch_up(self.history)
        return number

    def tell(self, number: int, loss: float | None) -> None:
        self.history.record(told(number, self.history[number].query, loss))

    def begin(self, losses: Sequence[float | None], offset: int = 0) -> list[int]:
        numbers = [self.ask(c) for c in configurations(offset + len(losses))[offset:]]
        for number, loss in zip(numbers, losses, strict=True):
            self.tell(number, loss)
        return numbers

    def gone_on(self, epochs: int | None = 3) -> list[int]:
        """Ask for all that may go on; the numbers of the runs that they come from."""
        gone = []
        while (run := self.brackets.promotion(self.history)) is not None:
            gone.append(run.number)
            self.ask(run.query.configuration, epochs)
        return gone


@pytest.mark.parametrize(
    ("total", "table", "new_epochs"),
    [
        (
            81,
            [
                [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)],
                [(34, 3), (11, 9), (3, 27), (1, 81)],
                [(15, 9), (5, 27), (1, 81)],
                [(8, 27), (2, 81)],
                [(5, 81)],
            ],
            [297, 276, 279, 324, 405],
        ),
        (
            50,
            [
                [(27, 2), (9, 6), (3, 17), (1, 50)],
                [(12, 6), (4, 17), (1, 50)],
                [(6, 17), (2, 50)],
                [(4, 50)],
            ],
            [156, 149, 168, 200],
        ),
    ],
)
def test_a_round_of_hyperband_is_the_table(
    total: int, table: list[list[tuple[int, int]]], new_epochs: list[int]
) -> None:
    levels = counted_levels(total, 3, highest_s(total, 3))
    brackets, epochs = [], []
    for index in range(len(levels)):
        plan = hyperband_plan(index, len(levels), 3)
        runs, n = [], plan.size
        for level in levels[plan.first :]:
            runs.append((n, level))
            n = max(1, n // 3)
        brackets.append(runs)
        from_below = [0, *(level for _, level in runs)]
        epochs.append(sum(k * (e - e0) for (k, e), e0 in zip(runs, from_below, strict=False)))
    assert brackets == table
    assert epochs == new_epochs
    again = [hyperband_plan(len(levels) + i, len(levels), 3) for i in range(len(levels))]
    assert again == [hyperband_plan(i, len(levels), 3) for i in range(len(levels))]


def test_the_least_losses_go_on() -> None:
    study = Study(6)
    study.begin([5.0, 1.0, 4.0, 6.0, 2.0, 3.0])
    assert study.gone_on() == [1, 4]


@pytest.mark.parametrize(("n", "kept"), [(1, 1), (2, 1), (5, 1), (6, 2), (8, 2), (9, 3), (11, 3)])
def test_one_in_eta_goes_on_rounded_down_and_at_least_one(n: int, kept: int) -> None:
    study = Study(n)
    study.begin([float(i) for i in range(n)])
    assert study.gone_on() == list(range(kept))


def test_a_rung_is_decided_when_all_its_runs_are_told() -> None:
    study = Study(3)
    numbers = [study.ask(c) for c in configurations(3)]
    study.tell(numbers[0], 1.0)
    study.tell(numbers[2], 2.0)
    assert study.gone_on() == []
    study.tell(numbers[1], 0.5)
    assert study.gone_on() == [1]


def test_a_bracket_that_is_not_full_is_decided_only_when_no_more_may_be_begun() -> None:
    study = Study(9, 9)
    study.begin([3.0, 1.0, 2.0])
    assert study.brackets.promotion(study.history) is None
    closing = study.brackets.promotion(study.history, closing=True)
    assert closing is not None
    assert closing.number == 1
    study.ask(closing.query.configuration, 3)
    study.begin([1.0], offset=3)  # more may be begun after all: in the next bracket
    first, second = (
        study.brackets.places[t.query.configuration][0] for t in list(study.history)[::4]
    )
    assert first is not second


def test_survivors_go_on_to_the_last_rung_and_no_further() -> None:
    study = Study(9)
    study.begin([float(i) for i in range(9)])
    assert study.gone_on() == [0, 1, 2]
    for number, loss in ((9, 3.0), (10, 1.0), (11, 2.0)):
        study.tell(number, loss)
    assert study.brackets.rung_above(study.history[10].query.configuration) == 2
    assert study.gone_on(None) == [10]
    study.tell(12, 1.0)
    assert study.gone_on() == []


def test_runs_that_failed_are_told_and_lost() -> None:
    study = Study(6)
    study.begin([None, 5.0, None, None, None, None])
    assert study.gone_on() == [1]
    study.tell(6, None)
    assert study.gone_on() == []


def test_a_run_that_is_tried_again_is_waited_for_and_counts() -> None:
    study = Study(3)
    study.begin([None, 2.0, 3.0])
    study.history.record(study.history[0].waiting())
    assert study.gone_on() == []
    study.tell(0, 1.0)
    assert study.gone_on() == [0]


def test_one_that_is_tried_again_after_others_went_on_does_not_widen_the_next_rung() -> None:
    study = Study(3)
    study.begin([None, 2.0, 3.0])
    assert study.gone_on() == [1]
    study.tell(3, 2.0)
    study.tell(0, 1.0)
    assert study.gone_on(None) == [3]


def test_the_next_bracket_begins_where_its_plan_says() -> None:
    history = History()
    plans = [Plan(2, 0), Plan(1, 1), Plan(1, 2)]
    brackets = Brackets(3, 3, lambda i: plans[i])
    rungs = []
    for number, configuration in enumerate(configurations(4)):
        rungs.append(brackets.first_rung)
        history.record(Trial(number, Query(configuration)))
        brackets.catch_up(history)
    assert rungs == [0, 0, 1, 2]


def test_the_oldest_bracket_goes_on_first() -> None:
    study = Study(3, 3)
    numbers = [study.ask(c) for c in configurations(6)]
    for number in numbers[3:]:
        study.tell(number, 1.0)
    for number in numbers[:3]:
        study.tell(number, 2.0)
    assert study.gone_on() == [0, 3]


def test_what_violates_a_constraint_comes_after_all_that_does_not() -> None:
    history = History((Constraint("latency_us", 50.0),))
    measured = [(1.0, 200.0), (2.0, 60.0), (9.0, 40.0), (8.0, 50.0)]
    trials = []
    for number, (configuration, (loss, latency)) in enumerate(
        zip(configurations(4), measured, strict=True)
    ):
        query = Query(configuration, epochs=1)
        seen = Evaluation(loss, constraints={"latency_us": latency})
        trials.append(Trial(number, query).started().stopped(seen))
    unmeasured = Trial(4, Query(configurations(5)[4], epochs=1)).started().stopped(evaluation(0.0))
    assert [t.number for t in ranked([*trials, unmeasured], history)] == [3, 2, 1, 0, 4]
