"""The base class of all methods: the order of asks and tells, their numbers and their seeds."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
from flash_worlds import counted_space
from worlds import evaluation, mixed_space, told

from prefect_tune.optimizers import (
    Budget,
    Constraint,
    Method,
    NotYet,
    Objective,
    Optimizer,
    Query,
    Reason,
    Trial,
    UnknownName,
)
from prefect_tune.optimizers.space.sampling import sample_configuration


@dataclass(frozen=True)
class DrawOptions:
    """Options of `Draw`.

    Attributes:
        skipped: Draws to leave out.
    """

    skipped: int = 0

    def __post_init__(self) -> None:
        if self.skipped < 0:
            raise ValueError(f"skipped is at least 0; got {self.skipped}")


class Draw(Optimizer):
    """Draws a configuration, and keeps in its memo how many trials it was told of."""

    method: ClassVar[Method] = Method(
        name="draw",
        purpose="a draw at random",
        implementation=f"{__name__}:Draw",
        options=DrawOptions,
    )
    n_observed = 0

    def _propose(self, budget, rng) -> Query:  # noqa: ARG002
        for _ in range(self.options.skipped + 1):
            configuration = sample_configuration(self.space, rng)
        self.memo = {"observed": self.n_observed}
        return Query(configuration)

    def _observe(self, trial) -> None:  # noqa: ARG002
        self.n_observed += 1

    def _restore(self, memo) -> None:
        super()._restore(memo)
        self.n_observed = memo["observed"]


def make(seed: int = 0, objective: Objective | None = None, **options: Any) -> Draw:
    return Draw(counted_space((2, 2)), seed, objective, **options)


def test_trials_are_numbered_by_their_asks() -> None:
    optimizer = make()
    queries = [optimizer.ask(Budget()) for _ in range(3)]
    assert [(t.number, t.query) for t in optimizer.history] == list(enumerate(queries))
    assert len(optimizer.history.pending) == 3


def test_each_ask_draws_from_the_seed_and_its_number_alone() -> None:
    unbroken, told_of = make(), make()
    queries = [unbroken.ask(Budget()) for _ in range(4)]
    for number, query in enumerate(queries):
        assert told_of.ask(Budget(trials_spent=number)) == query
        told_of.tell(told(number, query, float(number)))
    assert len(set(queries)) == 4
    assert [make(1).ask(Budget()) for _ in range(2)] == [make(1).ask(Budget())] * 2
    assert make(1).ask(Budget()) != queries[0]


def test_what_is_restored_is_not_drawn_again() -> None:
    unbroken, resumed = make(), make()
    for number in range(3):
        query = unbroken.ask(Budget())
        resumed.restore(number, query, unbroken.memo)
        for optimizer in (unbroken, resumed):
            optimizer.tell(told(number, query, 1.0))
    assert resumed.n_observed == unbroken.n_observed == 3
    assert resumed.ask(Budget()) == unbroken.ask(Budget())
    with pytest.raises(ValueError, match="ask for trial 7 where 4 comes next"):
        resumed.restore(7, query, None)


def test_options_are_those_that_the_method_declares() -> None:
    assert make(skipped=2).options == DrawOptions(2)
    with pytest.raises(UnknownName, match=r"option of method 'draw': 'skiped'.*'skipped'"):
        make(skiped=2)
    with pytest.raises(ValueError, match="skipped is at least 0"):
        make(skipped=-1)


class First(Draw):
    """Asks for the first two folds and five epochs of the default configuration."""

    def _propose(self, budget, rng) -> Query:
        return replace(super()._propose(budget, rng), folds=2, epochs=5)


@pytest.mark.parametrize(
    ("objective", "folds", "epochs"),
    [
        (Objective(n_folds=3, epochs=9), 2, 5),
        (Objective(n_folds=2, epochs=5), None, None),
        (Objective(), 2, 5),
    ],
)
def test_all_folds_and_epochs_are_none_in_what_is_asked_for(objective, folds, epochs) -> None:
    optimizer = First(counted_space((2, 2)), 0, objective)
    query = optimizer.ask(Budget())
    assert (query.folds, query.epochs) == (folds, epochs)
    assert optimizer.history[0].query == query


@pytest.mark.parametrize(
    ("objective", "asked"), [(Objective(n_folds=1), "2 folds"), (Objective(epochs=4), "5 epochs")]
)
def test_more_folds_or_epochs_than_there_are_is_a_fault_of_the_method(objective, asked) -> None:
    with pytest.raises(RuntimeError, match=f"method 'draw' asks for {asked} where a full"):
        First(counted_space((2, 2)), 0, objective).ask(Budget())


def test_without_more_it_has_no_memo_and_no_decisions() -> None:
    optimizer = make()
    assert (optimizer.name, optimizer.memo, optimizer.decisions) == ("draw", None, {})
    assert optimizer.objective == Objective()


@pytest.mark.parametrize(
    ("ended", "message"),
    [
        (lambda query, _: told(5, query, 1.0), "trial 5 was never asked for; .* 0 to 1"),
        (lambda query, _: told(0, query, float("nan")), "trial 0 has loss nan; tell it as failed"),
        (lambda query, _: Trial(0, query).started(), "trial 0 is running"),
        (lambda _, other: told(0, other, 1.0), "trial 0 was asked for with another query"),
    ],
)
def test_what_cannot_have_happened_is_not_told(ended, message) -> None:
    optimizer = make()
    queries = [optimizer.ask(Budget()) for _ in range(2)]
    with pytest.raises(ValueError, match=message):
        optimizer.tell(ended(*queries))
    assert optimizer.n_observed == 0
    assert len(optimizer.history.pending) == 2


def test_a_trial_is_told_once_for_each_time_it_is_run() -> None:
    optimizer = make()
    query = optimizer.ask(Budget())
    with pytest.raises(ValueError, match="trial 0 has not failed"):
        optimizer.retry(0)
    optimizer.tell(told(0, query, None))
    with pytest.raises(ValueError, match="trial 0 was told before"):
        optimizer.tell(told(0, query, 1.0))
    optimizer.retry(0)
    optimizer.tell(told(0, query, 1.0))
    assert optimizer.history.incumbent == optimizer.history[0]
    with pytest.raises(ValueError, match="trial 1 has not failed"):
        optimizer.retry(1)


def test_quantities_may_be_measured_after_a_trial_was_told() -> None:
    optimizer = make(objective=replace(Objective(), constraints=(Constraint("size", 5.0),)))
    query = optimizer.ask(Budget())
    with pytest.raises(ValueError, match="trial 0 has no loss"):
        optimizer.measure(0, {"size": 3.0})
    optimizer.tell(Trial(0, query).started().completed(evaluation(1.0)))
    assert optimizer.history.incumbent is None  # nothing says that it is small enough
    optimizer.measure(0, {"size": 3.0})
    assert optimizer.history.incumbent == optimizer.history[0]


class Waits(Draw):
    """Draws when nothing is pending, and waits otherwise; begins what it may not if told to."""

    may_wait_alone = False

    def _propose(self, budget, rng) -> Query:
        if self.history.pending or self.may_wait_alone:
            raise NotYet
        return super()._propose(budget, rng)


def waits() -> Waits:
    return Waits(mixed_space(), 0)


def test_not_yet_is_no_ask() -> None:
    optimizer, patient = waits(), waits()
    first = optimizer.ask(Budget())
    for _ in range(3):
        with pytest.raises(NotYet):
            optimizer.ask(Budget())
    assert len(optimizer.history) == 1
    optimizer.tell(Trial(0, first).started().completed(evaluation(1.0)))
    patient.tell(Trial(0, patient.ask(Budget())).started().completed(evaluation(1.0)))
    assert optimizer.ask(Budget()) == patient.ask(Budget())


def test_a_method_that_waits_with_nothing_pending_is_named() -> None:
    optimizer = waits()
    optimizer.may_wait_alone = True
    with pytest.raises(RuntimeError, match="'draw' waits though no trial is pending"):
        optimizer.ask(Budget())


def test_a_method_that_begins_more_than_the_budget_has_is_named() -> None:
    with pytest.raises(RuntimeError, match="'draw' begins a configuration though none is left"):
        make().ask(Budget(trials_left=0))


def test_a_method_answers_with_the_best_full_trial_unless_it_knows_better() -> None:
    optimizer = make()
    assert (optimizer.incumbent, dict(optimizer.weights)) == (None, {})
    for number, loss in enumerate((2.0, 1.0, 3.0)):
        optimizer.tell(told(number, optimizer.ask(Budget()), loss))
    assert optimizer.incumbent == optimizer.history[1]
    assert dict(optimizer.weights) == {1: 1.0}


def test_a_method_that_says_nothing_else_has_no_notes_and_the_final_model_of_its_trial() -> None:
    optimizer = make(objective=Objective(epochs=10))
    trained = replace(evaluation(1.0), curve=(3.0, 1.0, 2.0), best_epoch=2)
    trial = Trial(0, optimizer.ask(Budget())).started().ended(trained)
    optimizer.tell(trial)
    assert tuple(optimizer.notes) == ()
    assert optimizer.refit(trial) == trial.refit_query == replace(trial.query, epochs=2)


def test_a_method_that_gives_no_reason_has_its_name_for_one() -> None:
    optimizer = Draw(mixed_space(), 0)
    assert optimizer.reason is None
    optimizer.ask(Budget())
    assert optimizer.reason == Reason("draw")
    with pytest.raises(ValueError, match="names the phase"):
        Reason("")
