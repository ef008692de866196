import numpy as np
import pytest
from curve_worlds.nets import T_MAX, crashed, curves_from, knn, mixed_nets, net, stretch

from prefect_tune.optimizers import Objective, Trial
from prefect_tune.optimizers.methods.bapi.declaration import Settings
from prefect_tune.optimizers.methods.bapi.learner import curve_inputs
from prefect_tune.optimizers.methods.bapi.observations import CurveObservations
from prefect_tune.optimizers.surrogates.curve_kernel import CurveKernel, Decay

INPUTS = curve_inputs(mixed_nets(), Settings())
KERNEL = CurveKernel(INPUTS.within, INPUTS.width, Decay())
THETA = np.array([*(p.start for p in KERNEL.parameters), np.log(1e-3)])


def seen(
    *trials: Trial, n_points: int = 3, objective: Objective | None = None
) -> CurveObservations:
    curves = list(curves_from(*trials, space=mixed_nets()).values())
    objective = objective or Objective()
    return CurveObservations.of(
        curves, INPUTS, KERNEL, THETA, objective=objective, n_points=n_points, t_max=T_MAX
    )


def epochs(of: CurveObservations) -> list[int]:
    return [round(t * T_MAX) for t in of.inputs[:, -1]]


A, B = net(0.2, scale="none"), net(0.4, scale="unit")
FALLING = [50.0 - epoch for epoch in range(10)]


def test_of_each_curve_a_few_points_with_the_least_loss_until_then() -> None:
    points = seen(stretch(0, A, [9.0, 7.0, 8.0, 6.0, 6.5, 6.2, 6.1, 6.3]))
    assert len(points.losses) == 3
    assert epochs(points)[0] == 1
    assert epochs(points)[-1] == 8
    assert points.losses[[0, -1]].tolist() == [9.0, 6.0]
    last_alone = seen(stretch(0, A, FALLING), stretch(1, B, FALLING[:4]), n_points=1)
    assert epochs(last_alone) == [10, 4]


def test_a_full_fit_is_one_point_at_the_end() -> None:
    points = seen(stretch(0, knn(0.3), 12.0))
    assert (epochs(points), points.losses.tolist()) == ([T_MAX], [12.0])


def test_a_failure_counts_as_the_worst_beginning_at_the_end() -> None:
    bad = stretch(1, net(0.9, scale="none"), [80.0, 60.0])
    points = seen(stretch(0, A, FALLING), bad, crashed(2, B, 2))
    assert epochs(points)[-1] == T_MAX
    assert points.losses[-1] == 80.0
    row = INPUTS.of(INPUTS.encode([B]))[0]
    assert points.inputs[-1, :-1] == pytest.approx(row)


def test_a_failure_after_some_epochs_says_no_more_than_they_did() -> None:
    before = seen(stretch(0, A, FALLING[:2]))
    after = seen(stretch(0, A, FALLING[:2]), crashed(1, A, 6))
    assert np.array_equal(before.inputs, after.inputs)
    assert np.array_equal(before.losses, after.losses)


@pytest.mark.parametrize(("chance", "most"), [(60.0, 600.0), (None, 200.0)])
@pytest.mark.parametrize("n_exploded", [1, 5])
def test_what_exploded_counts_as_a_few_times_worse_than_chance(
    chance: float | None, most: float, n_exploded: int
) -> None:
    usual = [stretch(i, net(i / 10, scale="none"), FALLING) for i in range(6)]
    exploded = [
        stretch(6 + i, net(0.9 + i / 100, scale="none"), [1e9, 1e8]) for i in range(n_exploded)
    ]
    unbounded = Objective(upper=np.inf, chance=chance)
    losses = seen(*usual, *exploded, objective=unbounded).losses
    n = len(seen(*usual).losses)
    assert 50.0 <= losses.max() <= most
    assert np.array_equal(losses[:n], seen(*usual).losses)


def test_of_many_curves_the_best_and_the_newest_are_learned_from() -> None:
    trials = [stretch(i, net(i / 1_000, scale="none"), [90.0 - i / 10]) for i in range(300)]
    points = seen(*trials[::-1]).losses
    assert len(points) == 150
    assert sorted(points)[:100] == sorted(t.loss for t in trials if t.loss is not None)[:100]


def test_what_is_under_way_for_the_first_time_is_no_point() -> None:
    pending = stretch(1, B, FALLING).waiting()
    assert len(seen(stretch(0, A, FALLING), pending).losses) == 3


def test_the_most_points_are_those_of_the_best_curves() -> None:
    trials = [
        stretch(i, net(i / 100, scale="none"), [60.0, 50.0, 40.0 + i]) for i in range(80)
    ]  # 240 points
    points = seen(*trials)
    assert len(points.losses) <= 150
    of_best = INPUTS.of(INPUTS.encode([net(0.0, scale="none")]))[0]
    of_worst = INPUTS.of(INPUTS.encode([net(0.79, scale="none")]))[0]
    rows = points.inputs[:, :-1]
    assert np.isclose(rows, of_best).all(axis=1).sum() == 3
    assert np.isclose(rows, of_worst).all(axis=1).sum() == 1
