"""Importance learned from trials, and when nothing can be said of it."""

import numpy as np
import pytest
from ConfigSpace import ConfigurationSpace, Float

from prefect_tune.optimizers.importance.importance import LEAST_TRIALS, BaggedForests, importance_of
from prefect_tune.optimizers.space.algorithm import Algorithm, Step
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.space.space import Space

X = Algorithm(id="x", estimator="made.up.x")
Y = Algorithm(
    id="y",
    estimator="made.up.y",
    hyperparameters=ConfigurationSpace(space=[Float("u", (0.0, 1.0)), Float("idle", (0.0, 1.0))]),
)
SPACE = Space("two", (Step("model", (X, Y)),))


def drawn(n: int) -> list[Configuration]:
    rng = np.random.default_rng(0)
    return [sample_configuration(SPACE, rng) for _ in range(n)]


def u(configuration: Configuration) -> float:
    return float(dict(configuration["model"].values).get("u", 0.0))


def test_it_is_learned_from_trials_and_says_how_sure_it_is() -> None:
    """The conditional space of test_effects, by forests: 4/5 and 2/5 in all."""
    configurations = drawn(400)
    found = importance_of(SPACE, configurations, [u(c) for c in configurations])
    assert found.r2 > 0.9
    shares = {e.input.hyperparameter or e.input.step: e for e in found.effects}
    assert shares["model"].total == pytest.approx(4 / 5, abs=0.07)
    assert shares["u"].total == pytest.approx(2 / 5, abs=0.07)
    assert shares["idle"].total < 0.02
    assert all(0 < shares[name].total_deviation < 0.1 for name in ("model", "u"))
    assert [e.total for e in found.effects] == sorted(
        (e.total for e in found.effects), reverse=True
    )


def test_of_few_trials_or_noise_it_says_nothing_and_why() -> None:
    few = importance_of(SPACE, drawn(LEAST_TRIALS - 1), np.arange(LEAST_TRIALS - 1))
    assert few.effects == ()
    assert "at least 20 are needed" in few.reason
    noise = np.random.default_rng(1).normal(size=200)
    unclear = importance_of(SPACE, drawn(200), noise)
    assert unclear.effects == ()
    assert unclear.r2 < 0.2
    same = importance_of(SPACE, drawn(50), np.ones(50))
    assert same.reason == "all losses are the same"


def test_where_the_forests_tell_no_losses_apart_there_is_nothing_to_attribute(monkeypatch) -> None:
    monkeypatch.setattr(
        BaggedForests, "predict", lambda self, X: np.ones((len(self._forests), len(X)))
    )
    configurations = drawn(200)
    found = importance_of(SPACE, configurations, [u(c) for c in configurations])
    assert found.effects == ()
    assert found.reason == "the forests predict the same loss everywhere"


def test_useless_corners_do_not_hide_the_rest() -> None:
    """A fiftieth of the space is a thousand times worse, which says nothing of u elsewhere."""
    configurations = drawn(600)
    is_corner = [dict(c["model"].values).get("idle", 0) > 0.96 for c in configurations]
    losses = np.where(is_corner, 1000.0, [u(c) for c in configurations])
    found = importance_of(SPACE, configurations, losses)
    assert found.bound < 2
    assert found.effects[0].input.step == "model"
    shares = {e.input.hyperparameter: e.total for e in found.effects}
    assert shares["u"] > shares["idle"]


def test_losses_are_clipped_at_guessing_where_that_is_less() -> None:
    configurations = drawn(100)
    losses = [u(c) for c in configurations]
    assert importance_of(SPACE, configurations, losses, chance=0.5).bound == 0.5
    assert importance_of(SPACE, configurations, losses, chance=90.0).bound < 90


def test_the_same_trials_give_the_same_shares() -> None:
    configurations = drawn(60)
    losses = [u(c) for c in configurations]
    first, again = (importance_of(SPACE, configurations, losses, seed=3) for _ in range(2))
    assert first == again
