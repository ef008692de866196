"""The epochs that a remaining budget pays for."""

from dataclasses import replace
from math import inf

import pytest
from curve_worlds.nets import curves_from, mixed_nets, net, stretch

from prefect_tune.optimizers import Budget, Configuration, Query, Trial
from prefect_tune.optimizers.methods.bapi.budget import RemainingBudget, affordable

KNOWN = net(0.2, scale="none")


def remaining(left: float | None, *more: Trial, n_workers: int = 1) -> RemainingBudget:
    """After two curves of 2 epochs, of 1 and of 3 seconds each."""
    first = stretch(0, net(0.1, scale="none"), [9.0, 8.0])
    assert first.evaluation is not None
    first = replace(first, evaluation=replace(first.evaluation, cost_seconds=2.0))
    second = stretch(1, KNOWN, [9.0, 7.0], cost_seconds=6.0)
    curves = curves_from(first, second, *more, space=mixed_nets())
    return RemainingBudget(Budget(seconds_left=left, n_workers=n_workers), curves.values())


def test_a_training_is_cut_to_its_seconds_and_is_none_without_one_new_epoch() -> None:
    assert affordable(inf, 2.0, done=3, target=9) == 9
    assert affordable(100.0, 2.0, done=3, target=9) == 9
    assert affordable(5.9, 2.0, done=3, target=9) == 5
    assert affordable(1.9, 2.0, done=3, target=9) == 0
    assert affordable(-1.0, 2.0, done=3, target=9) == 0


@pytest.mark.parametrize(
    ("configuration", "target", "epochs"),
    [
        (KNOWN, 6, {None: 6, 12.0: 6, 11.9: 5, 3.0: 3, 2.9: 0}),
        (None, 2, {None: 2, 4.0: 2, 3.9: 1, 1.9: 0, 0.0: 0}),
    ],
)
def test_an_epoch_takes_what_it_took_of_its_configuration_or_of_others(
    configuration: Configuration | None, target: int, epochs: dict[float | None, int]
) -> None:
    found = {x: remaining(x).epochs_by_told_rates(configuration, target) for x in epochs}
    assert found == epochs


def test_told_rates_pay_for_what_is_under_way_first() -> None:
    begun = Trial(2, Query(net(0.3, scale="none"), epochs=2))  # 2 seconds an epoch, as the others
    gone_on = Trial(3, Query(KNOWN, epochs=4))  # 3 seconds an epoch
    assert remaining(8.0, begun).epochs_by_told_rates(None, 2) == 2
    assert remaining(7.9, begun).epochs_by_told_rates(None, 2) == 1
    assert remaining(14.0, begun, gone_on).epochs_by_told_rates(None, 2) == 2
    assert remaining(13.9, begun, gone_on).epochs_by_told_rates(None, 2) == 1


def test_before_any_rate_is_known_all_epochs_are_affordable_while_anything_is_left() -> None:
    for left, epochs in ((0.1, 2), (0.0, 0), (None, 2)):
        assert (
            RemainingBudget(Budget(seconds_left=left), []).epochs_by_told_rates(None, 2) == epochs
        )


def test_learned_costs_pay_for_what_is_under_way_first() -> None:
    costs = {"rate": 1.0, "pending_seconds": 4.0}
    assert remaining(10.0).epochs(2, 20, **costs) == 8
    assert remaining(4.9).epochs(2, 20, **costs) == 0
    assert remaining(None).epochs(2, 20, **costs) == 20


def test_a_training_takes_no_more_than_the_part_of_one_worker() -> None:
    shared = remaining(12.0, n_workers=4)
    assert shared.longest == 3.0
    assert shared.epochs(2, 20, rate=1.0, pending_seconds=0.0) == 5
    assert shared.epochs_by_told_rates(None, 2) == 1
    assert remaining(None, n_workers=4).longest == inf
