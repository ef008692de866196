from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from curve_worlds.nets import CURVES, T_MAX, curves_from, net, nets, stretch

from prefect_tune.optimizers import Configuration
from prefect_tune.optimizers.acquisitions.joint_improvement import sobol_normals
from prefect_tune.optimizers.methods.bapi.costs import Overheads
from prefect_tune.optimizers.methods.bapi.declaration import BapiOptions, Settings
from prefect_tune.optimizers.methods.bapi.learner import CurveLearner
from prefect_tune.optimizers.methods.bapi.planning import MOST_PENDING, Planning, Prospects

NORMALS = sobol_normals(256, 4 + MOST_PENDING, np.random.default_rng(0))
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
NEW = [net(x, r) for x in (0.2, 0.4, 0.6, 0.8) for r in (0.2, 0.8)]


def planning(
    targets: dict[int, int] | None = None,
    lost: tuple[Configuration, ...] = (),
    overheads: Overheads | None = None,
    new: Sequence[Configuration] = NEW,
    **options: Any,
) -> Planning:
    """Of five curves of 4 epochs, a second each, and eight configurations that are new.

    Args:
        targets: Of those under way.
        lost: New ones that cannot be had.
        overheads: Besides epochs.
        new: Those that were not begun.
        **options: Of the method.
    """
    trials = [
        stretch(i, net(x), [10 + 40 * x + 40 / e for e in range(1, 5)], cost_seconds=4.0)
        for i, x in enumerate(LEVELS)
    ]
    curves = list(curves_from(*trials).values())
    settings = Settings.of(BapiOptions(**options))
    learner = CurveLearner(nets(), CURVES, settings, T_MAX)
    belief, _ = learner.learn(curves, {}, np.random.default_rng(0))
    configurations = [*(c.configuration for c in curves), *new]
    m = len(configurations)
    under_way = np.zeros(m, dtype=np.intp)
    for j, target in (targets or {}).items():
        under_way[j] = target
    prospects = Prospects(
        inputs=learner.inputs.of(learner.inputs.encode(configurations)),
        done=np.array([4] * 5 + [0] * len(new)),
        targets=under_way,
        is_divisible=np.ones(m, dtype=np.bool_),
        configuration=lambda j: None if configurations[j] in lost else configurations[j],
    )
    return Planning(
        prospects=prospects,
        belief=belief,
        overheads=overheads or Overheads.of(curves),
        settings=settings,
        best=float(belief.scores.of_loss(min(c.loss for c in curves))),
        epsilon=1.0,
        longest=np.inf,
        quantum=2,
        normals=NORMALS,
    )


def test_a_plan_holds_so_many_different_ones_and_their_seconds() -> None:
    entries = planning().entries(1e6)
    assert len({e.number for e in entries}) == 4
    for entry in entries:
        done = 4 if entry.number < 5 else 0
        assert entry.seconds == pytest.approx(entry.epochs - done, rel=0.05)
        assert done + 2 <= entry.epochs <= T_MAX


def test_a_small_budget_makes_a_short_plan_within_it() -> None:
    long, short = planning().entries(1e6), planning().entries(long_seconds() - 1)
    assert len(short) < len(long)
    assert sum(e.seconds for e in short) <= long_seconds() - 1
    (clipped,) = planning().entries(3.5)
    assert clipped.epochs - (4 if clipped.number < 5 else 0) == 3


def long_seconds() -> float:
    return sum(e.seconds for e in planning().entries(1e6))


def test_what_is_under_way_is_not_planned_again_and_its_seconds_are_foreseen() -> None:
    first = planning().entries(1e6)[0].number
    busy = planning(targets={first: 10})
    assert first not in {e.number for e in busy.entries(1e6)}
    assert busy.pending_seconds == pytest.approx(10 - (4 if first < 5 else 0), rel=0.05)
    assert planning().pending_seconds == 0.0


def test_what_is_under_way_counts_as_chosen() -> None:
    """Its twin promises as much, and adds next to nothing."""
    twins = net(0.2, 0.9), net(0.2, 0.901)
    others = [net(0.4, 0.9), net(0.6, 0.1), net(0.8, 0.1)]
    is_new = np.arange(5 + 5) >= 5
    alone = planning(new=[*twins, *others], horizon=1).entries(1e6, is_new)
    assert alone[0].number in (5, 6)
    busy = planning({alone[0].number: T_MAX}, new=[*twins, *others], horizon=1)
    assert busy.entries(1e6, is_new)[0].number not in (5, 6)


def test_what_cannot_be_had_is_left_out() -> None:
    entries = planning(lost=tuple(NEW)).entries(1e6)
    assert {e.number for e in entries} <= set(range(5))


def test_overheads_are_part_of_the_seconds() -> None:
    slow = Overheads({}, frozenset(), thaw=7.0, lost=0.0, model_step="model")
    only_begun = planning(lost=tuple(NEW), overheads=slow)
    for entry in only_begun.entries(1e6):
        assert entry.seconds == pytest.approx(entry.epochs - 4 + 7.0, rel=0.05)


def test_only_those_that_are_allowed_are_planned() -> None:
    allowed = np.zeros(13, dtype=np.bool_)
    allowed[[6, 7]] = True
    assert {e.number for e in planning().entries(1e6, allowed)} == {6, 7}
