"""A method whose configurations race: what it asks for, what the method inside is told."""

from dataclasses import replace
from math import inf

import pytest
from worlds import finite_space, mixed_space

from prefect_tune.optimizers import (
    Budget,
    Constraint,
    Evaluation,
    Failure,
    FailureKind,
    History,
    Objective,
    Query,
    Racing,
    Trial,
    make_optimizer,
)
from prefect_tune.optimizers.racing import (
    Rung,
    estimated,
    is_behind,
    is_behind_on_part,
    margin,
    rungs_of,
)
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.trials.objective import MANY_ROWS

FOLDS = Objective(chance=50.0, n_folds=3)
LIMITED = replace(FOLDS, constraints=(Constraint("size", 5.0),))


def raced(objective: Objective = FOLDS) -> Racing:
    return Racing(make_optimizer("random", mixed_space(), 0, objective))


def evaluation(*losses: float, seconds: float = 1.0, **constraints: float) -> Evaluation:
    mean = sum(losses) / len(losses)
    return Evaluation(mean, losses, seconds, seconds, constraints=constraints)


def begin(optimizer: Racing, *losses: float, **about: float) -> Trial:
    """Ask for a first fold, and tell it."""
    query = optimizer.ask(Budget())
    assert query.folds == 1
    return tell(optimizer, losses[0], **about)


def whole(optimizer: Racing, *losses: float, **about: float) -> Trial:
    """Ask for the first configuration, or for the rest of what keeps up, and tell it."""
    assert optimizer.ask(Budget()).is_full
    return tell(optimizer, *losses, **about)


def tell(optimizer: Racing, *losses: float, **about: float) -> Trial:
    """Tell the outcome of the last ask."""
    last = optimizer.history[len(optimizer.history) - 1]
    ended = last.started().completed(evaluation(*losses, **about))
    optimizer.tell(ended)
    return ended


def fail(optimizer: Racing, seconds: float) -> Trial:
    """Tell that the last ask failed."""
    last = optimizer.history[len(optimizer.history) - 1]
    failed = last.started().failed(Failure(FailureKind.ERROR, "no", cost_seconds=seconds))
    optimizer.tell(failed)
    return failed


def with_incumbent(objective: Objective = FOLDS, **about: float) -> Racing:
    """One whose first configuration has losses 16, 20 and 24."""
    optimizer = raced(objective)
    whole(optimizer, 16.0, 20.0, 24.0, **about)
    return optimizer


def test_the_first_configuration_runs_whole_and_others_one_fold_at_first() -> None:
    """There is nothing that it could be behind of."""
    optimizer = raced()
    assert optimizer.ask(Budget()).is_full
    assert optimizer.ask(Budget()).folds == 1
    assert optimizer.ask(Budget()).folds == 1
    optimizer = with_incumbent()
    first = optimizer.ask(Budget())
    tell(optimizer, 16.0)
    assert optimizer.ask(Budget()) == replace(first, folds=None)
    assert optimizer.ask(Budget()).configuration != first.configuration


def test_who_is_clearly_behind_stays_stopped_and_is_told_by_the_paired_estimate() -> None:
    optimizer = with_incumbent()
    begin(optimizer, 40.0, seconds=1.5)
    told = optimizer.inner.history[1]
    assert told.loss == pytest.approx(20.0 + (40.0 - 16.0))
    assert told.cost_seconds == 1.5
    assert [t.number for t in optimizer.history.stopped] == [1]
    assert optimizer.ask(Budget()).folds == 1


def test_of_who_keeps_up_the_method_is_told_once_with_the_cost_of_both_stretches() -> None:
    optimizer = with_incumbent()
    begin(optimizer, 17.0, seconds=2.0)
    assert [t.number for t in optimizer.inner.history.pending] == [1]
    whole(optimizer, 17.0, 18.0, 19.0, seconds=3.0)
    told = optimizer.inner.history[1]
    assert (told.loss, told.cost_seconds) == (18.0, 5.0)
    assert len(optimizer.inner.history) == 2
    assert optimizer.incumbent.number == 2


@pytest.mark.parametrize(("loss", "leads"), [(16.5, False), (15.5, True)])
def test_a_first_fold_that_is_better_than_any_of_the_best_trial_leads(loss, leads) -> None:
    """The best has 16, 20 and 24, and no other one has run all folds."""
    optimizer = with_incumbent()
    full = optimizer.incumbent
    first = begin(optimizer, loss)
    assert optimizer.incumbent == (first if leads else full)


def test_a_failed_first_fold_fails_the_configuration_and_can_be_retried() -> None:
    optimizer = with_incumbent()
    optimizer.ask(Budget())
    failed = fail(optimizer, 0.5)
    assert optimizer.inner.history[1].failure == failed.failure
    assert optimizer.decisions["race"] == {"begun": 2, "stopped": 0}
    optimizer.retry(1)
    assert [t.number for t in optimizer.inner.history.pending] == [1]
    optimizer.tell(failed.started().completed(evaluation(90.0)))
    assert optimizer.inner.history[1].loss == pytest.approx(94.0)


def test_only_what_meets_the_constraints_stops_others_and_they_are_told_of_a_fold() -> None:
    optimizer = with_incumbent(LIMITED, size=9.0)
    begin(optimizer, 90.0, size=1.0)
    assert optimizer.ask(Budget()).is_full
    optimizer = with_incumbent(LIMITED, size=1.0)
    begin(optimizer, 90.0, size=7.0)
    told = optimizer.inner.history[1]
    assert told.evaluation.constraints == {"size": 7.0}


@pytest.mark.parametrize(("method", "n_folds"), [("hyperband", 3), ("random", 1)])
def test_a_method_with_fidelities_of_its_own_and_one_fold_are_no_race(method, n_folds) -> None:
    objective = replace(FOLDS, n_folds=n_folds, n_rows=9_000)
    with pytest.raises(ValueError, match="rac"):
        Racing(make_optimizer(method, mixed_space(), 0, objective))


INCUMBENT = Evaluation(20.0, (16.0, 20.0, 24.0))
ANY = Query(default_configuration(finite_space(), ("one",)))


def history_of(*losses: tuple[float, ...]) -> History:
    """The incumbent, and others that ran all folds."""
    history = History()
    evaluations = [INCUMBENT, *(Evaluation(sum(x) / len(x), x) for x in losses)]
    for number, evaluation in enumerate(evaluations):
        history.record(Trial(number, ANY).completed(evaluation))
    return history


THREE = history_of((16.0, 21.0, 26.0), (19.0, 23.0, 27.0), (20.0, 22.0, 24.0))
"""Differences 0 1 2, 3 3 3 and 4 2 0: variances 1, 0 and 4."""


def first(loss: float) -> Evaluation:
    return Evaluation(loss, (loss,))


def test_the_margin_is_the_deviation_of_a_difference_seen_on_one_fold() -> None:
    spread = ((1 + 0 + 4) / 3) ** 0.5
    assert margin(INCUMBENT, THREE) == pytest.approx(spread * (2 / 3) ** 0.5)
    assert margin(INCUMBENT, THREE) == pytest.approx(1.054, abs=1e-3)
    assert not is_behind(first(17.0), INCUMBENT, THREE)
    assert is_behind(first(17.1), INCUMBENT, THREE)  # though the incumbent's mean is 20
    history = history_of((17.0, 21.0, 25.0), (18.0, 22.0, 26.0), (19.0, 23.0, 27.0))
    assert not is_behind(first(16.0), INCUMBENT, history)
    assert is_behind(first(16.1), INCUMBENT, history)
    history = history_of((16.0, 21.0, 26.0), (19.0, 23.0, 27.0))
    assert margin(INCUMBENT, history) is None
    assert not is_behind(first(24.0), INCUMBENT, history)
    assert is_behind(first(24.1), INCUMBENT, history)


def test_on_a_part_the_margin_is_how_far_looks_were_off() -> None:
    """Three that looked 1 worse and were 3, 3 and 3: they do not spread, and were 2 off."""
    known = [(1.0, 3.0)] * 3
    assert not is_behind_on_part(2.0, INCUMBENT, known)
    assert is_behind_on_part(2.1, INCUMBENT, known)
    known = [(1.0, 3.0)] * 2
    assert not is_behind_on_part(8.0, INCUMBENT, known)
    assert is_behind_on_part(8.1, INCUMBENT, known)
    alone = Evaluation(20.0, (20.0,))
    assert not is_behind_on_part(80.0, alone, [(1.0, 1.0)] * 2)
    assert is_behind_on_part(80.0, alone, [(1.0, 1.0)] * 3)


SLOW_INCUMBENT = Evaluation(20.0, (16.0, 20.0, 24.0), 3.0, 3.0)


def test_the_estimate_is_paired_on_the_first_fold_and_within_the_bounds() -> None:
    first = Evaluation(27.0, (27.0,), 1.5, 1.5, constraints={"latency_us": 7.0})
    told = estimated(first, SLOW_INCUMBENT, Objective(), 11.0)
    assert told.loss == pytest.approx(20.0 + (27.0 - 16.0))  # and not the 27 that were seen
    assert told.fold_losses == (27.0, 31.0, 35.0)
    assert told.cost_seconds == 1.5
    assert told.constraints == {"latency_us": 7.0}
    told = estimated(Evaluation(95.0, (95.0,)), SLOW_INCUMBENT, Objective(upper=100.0), 79.0)
    assert told.fold_losses == (95.0, 99.0, 100.0)
    assert told.loss == pytest.approx(98.0)


FOLD, WHOLE = Rung(folds=1), Rung()


@pytest.mark.parametrize(
    ("n_rows", "shares"),
    [
        (None, []),
        (MANY_ROWS, []),
        (20_001, [1 / 2]),
        (39_999, [1 / 2]),
        (40_000, [1 / 4]),
        (80_000, [1 / 8]),
        (200_000, [1 / 16, 1 / 4]),
        (1_300_000, [1 / 128, 1 / 32, 1 / 8]),
    ],
)
def test_on_many_rows_that_fold_on_parts_of_10_000_or_more_comes_first(n_rows, shares) -> None:
    parts = rungs_of(Objective(n_rows=n_rows, n_folds=3))
    assert parts == (*(Rung(share, 1) for share in shares), FOLD, WHOLE)


def test_looks_have_enough_rows_of_the_rarest_class_and_are_judged_on_more_and_more() -> None:
    parts = rungs_of(Objective(n_rows=200_000, n_held_out=80_000, n_folds=1))
    assert parts == (Rung(1 / 16, inf, 1 / 8), Rung(1 / 4, inf, 1 / 2), WHOLE)
    objective = Objective(n_rows=80_000, n_folds=3, n_classes=2, n_rarest=400)
    assert rungs_of(objective)[0].subset == 1 / 4
    assert rungs_of(replace(objective, n_rarest=150)) == (FOLD, WHOLE)
    assert rungs_of(replace(objective, n_classes=0))[0].subset == 1 / 8
    assert rungs_of(Objective(n_rows=80_000, n_folds=1)) == (Rung(1 / 8), WHOLE)
    with pytest.raises(ValueError, match="1 fold"):
        rungs_of(Objective(n_rows=MANY_ROWS, n_folds=1))
