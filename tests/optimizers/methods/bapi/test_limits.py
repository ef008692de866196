"""Constraints, and a budget that several workers share."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from curve_worlds.nets import CURVES, bapi, curve, net, nets, stretch
from curve_worlds.power_laws import PowerLaws
from simulation import Simulation

from prefect_tune.optimizers import Budget, Constraint, Evaluation, History, Query, StepCost
from prefect_tune.optimizers.methods.bapi.bapi import Bapi
from prefect_tune.optimizers.methods.bapi.curves import curves_of


class HalfFeasible(PowerLaws):
    """Power laws of which the better half violates a constraint."""

    def __call__(self, query: Query) -> Evaluation:
        level = float(dict(query.configuration["model"].values)["level"])
        quantity = 2.0 if level < 0.45 else 0.5
        return replace(super().__call__(query), constraints={"quantity": quantity})


@pytest.mark.parametrize("seed", range(3))
def test_what_violates_is_neither_gone_on_with_nor_planned_again(seed: int) -> None:
    limited = replace(CURVES, constraints=(Constraint("quantity", 1.0),))
    optimizer = Bapi(nets(), seed, limited, n_first=9)
    Simulation(optimizer, HalfFeasible(optimizer, seed), trials=40).run()
    history = optimizer.history
    violating = [t for t in history if history.violation(t) > 0]
    assert len({t.query.configuration for t in violating}) == len(violating)  # one look each
    planned = list(history)[len(history) // 2 :]
    assert np.mean([history.violation(t) > 0 for t in planned]) < 0.3  # by chance, 0.45
    assert optimizer.incumbent is not None
    assert history.violation(optimizer.incumbent) <= 0


def started(n: int = 9, **options: Any) -> Bapi:
    """A method that has told a start of n configurations."""
    optimizer = bapi(n_first=n, **options)
    for _ in Simulation(optimizer, PowerLaws(optimizer), trials=n + 6).ends():
        if len(optimizer.history.asked) > n and not optimizer.history.pending:
            break
    return optimizer


def test_what_violates_is_closed() -> None:
    limited = History((Constraint("quantity", 1.0),))
    limited.record(stretch(0, net(0.5), [9.0] * 2, constraints={"quantity": 2.0}))
    limited.record(stretch(1, net(0.6), [9.0] * 2, constraints={"quantity": 0.5}))
    closed = [c.is_closed for c in curves_of(limited, nets(), CURVES, 20).values()]
    assert closed == [True, False]


def test_of_several_workers_none_takes_more_than_its_part() -> None:
    optimizer = started()
    query = optimizer.ask(Budget(seconds_left=40.0, seconds_spent=100.0, n_workers=16))
    before = optimizer.history.stretches(query.configuration)[:-1]
    done = max((t.query.epochs or 20 for t in before), default=0)
    seconds = ((query.epochs or 20) - done) * PowerLaws(optimizer).rate(query.configuration)
    assert seconds <= 2 * 40.0 / 16  # rates are predicted


def test_a_stretch_that_was_served_lost_no_checkpoint() -> None:
    served = (StepCost("model", 0, 1.0, 0.1, hit=True, key="k"),)
    known = curve(stretch(0, net(0.5), [9.0] * 2), stretch(1, net(0.5), [9.0] * 5, steps=served))
    assert known.resumptions == ()


def test_losses_behind_one_that_is_not_finite_say_nothing() -> None:
    known = curve(stretch(0, net(0.5), [9.0, 8.0, float("nan"), 1.0]))
    assert known.epochs == (1, 2)
    assert known.losses == (9.0, 8.0)
