"""Importance of choices with known effects, and reasons for reporting no effects."""

import numpy as np
from ConfigSpace import Float
from numpy.typing import ArrayLike
from worlds import algorithm

from prefect_tune.optimizers.importance import (
    LEAST_TRIALS,
    Importance,
    importance_of,
)
from prefect_tune.optimizers.space.algorithm import Step
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.space.space import Space

Y = algorithm("y", Float("u", (0.0, 1.0)), Float("idle", (0.0, 1.0)))
SPACE = Space("two", (Step("model", (algorithm("x"), Y)),))


def drawn(n: int) -> list[Configuration]:
    rng = np.random.default_rng(0)
    return [sample_configuration(SPACE, rng) for _ in range(n)]


def learned(configurations: list[Configuration], losses: ArrayLike, **more: float) -> Importance:
    return importance_of(SPACE, [c.to_json() for c in configurations], losses, **more)


def u(configuration: Configuration) -> float:
    return float(dict(configuration["model"].values).get("u", 0.0))


def by_name(found: Importance) -> dict[str | None, float]:
    return {e.input.hyperparameter or e.input.step: e.drop for e in found.effects}


def test_choices_with_an_effect_come_first() -> None:
    """The loss is u if `y` is chosen, else 0."""
    configurations = drawn(400)
    losses = np.array([u(c) for c in configurations])
    found = learned(configurations, losses)
    assert found.r2 > 0.9
    assert [*by_name(found)][:2] == ["model", "u"]
    assert by_name(found)["u"] > 0.3
    assert abs(by_name(found)["idle"]) < 0.02
    assert learned(configurations, 2.0**-60 * losses).r2 == found.r2
    assert learned(configurations, losses, chance=0.25).bound == 0.25 < found.bound


def test_few_trials_or_noise_give_a_reason_instead_of_effects() -> None:
    noise = np.random.default_rng(1).normal(size=200)
    for losses in (np.arange(LEAST_TRIALS - 1), np.ones(50), noise):
        unclear = learned(drawn(len(losses)), losses)
        assert unclear.effects == ()
        assert unclear.reason
    assert unclear.r2 < 0.2


def test_bad_corners_do_not_hide_other_effects() -> None:
    """The loss is 1000 in a fiftieth of the space, whatever u is, and u everywhere else."""
    configurations = drawn(600)
    is_corner = [dict(c["model"].values).get("idle", 0) > 0.96 for c in configurations]
    losses = np.where(is_corner, 1000.0, [u(c) for c in configurations])
    found = learned(configurations, losses)
    assert found.bound < 2
    assert found.effects[0].input.step == "model"
    assert by_name(found)["u"] > by_name(found)["idle"]
