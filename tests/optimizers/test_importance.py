"""Shares of the variance against closed forms, and what is said of trials."""

from typing import Any

import numpy as np
import pytest
from ConfigSpace import Float
from numpy.typing import ArrayLike
from worlds import algorithm

from prefect_tune.optimizers.importance import (
    LEAST_TRIALS,
    Effect,
    Importance,
    effects,
    importance_of,
)
from prefect_tune.optimizers.space.algorithm import Algorithm, Step
from prefect_tune.optimizers.space.candidate_space import CandidateSpace
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.space.space import Space


def made(name: str, *names: str, **more: Any) -> Algorithm:
    return algorithm(name, *(Float(h, (0.0, 1.0)) for h in names), **more)


def by_name(found: list[Effect]) -> dict[str, Effect]:
    return {e.input.hyperparameter or e.input.step: e for e in found}


def test_indices_of_the_ishigami_function_equal_its_closed_form() -> None:
    """Ishigami and Homma 1990, with a = 7 and b = 0.1."""
    space = CandidateSpace(Space("one", (Step("model", (made("m", "x1", "x2", "x3"),)),)))

    def ishigami(features):
        x1, x2, x3 = np.pi * (2 * features[:, 1:].T - 1)
        return (np.sin(x1) + 7 * np.sin(x2) ** 2 + 0.1 * x3**4 * np.sin(x1))[None]

    found = by_name(effects(space, ishigami, n=4096))
    for name, main, total in (("x1", 0.3139, 0.5576), ("x2", 0.4424, 0.4424), ("x3", 0.0, 0.2437)):
        assert found[name].main == pytest.approx(main, abs=0.03)
        assert found[name].total == pytest.approx(total, abs=0.03)
    assert found["model"].total == 0


def test_indices_of_a_conditional_space_are_those_computed_by_hand() -> None:
    """The loss is u where `y` is chosen, else 0: of a variance of 5/48 the choice makes 3/48 by
    itself, u makes 1/48 by itself, and both together 1/48."""
    space = CandidateSpace(Space("two", (Step("model", (made("x", "idle"), made("y", "u"))),)))

    def loss(features):
        assert set(np.unique(features[features[:, 1] == 0, 3])) == {-1.0}  # u is not active in x
        return np.where(features[:, 1] == 1, features[:, 3], 0.0)[None]

    found = by_name(effects(space, loss))
    assert found["model"].main == pytest.approx(3 / 5, abs=0.02)
    assert found["model"].total == pytest.approx(4 / 5, abs=0.02)
    assert found["u"].main == pytest.approx(1 / 5, abs=0.02)
    assert found["u"].total == pytest.approx(2 / 5, abs=0.02)
    assert found["idle"].total == 0


def test_a_choice_that_the_model_ignores_has_its_effect_elsewhere() -> None:
    """Trees ignore the scale: of the loss, that is 1 without scaling and with the other model."""
    none, scaled = Algorithm(id="none"), made("scaled")
    tree, linear = made("tree", ignores=("rescale",)), made("linear")
    steps = (Step("rescale", (none, scaled)), Step("model", (tree, linear)))
    space = CandidateSpace(Space("ignoring", steps))

    def loss(features):
        is_none, is_linear = features[:, 0] == 1, features[:, 3] == 1
        assert is_none[~is_linear].all()  # a tree is there once
        return (is_none & is_linear).astype(float)[None]

    found = by_name(effects(space, loss))  # a product of two coins: 1/3 each, 1/3 both
    for name in ("rescale", "model"):
        assert found[name].main == pytest.approx(1 / 3, abs=0.02)
        assert found[name].total == pytest.approx(2 / 3, abs=0.02)


def test_the_deviation_comes_from_the_models() -> None:
    space = CandidateSpace(Space("pair", (Step("model", (made("m", "a", "b"),)),)))

    def models(features):
        a, b = features[:, 1], features[:, 2]
        return np.array([a, b])  # the one says that a is all, the other that b is

    found = by_name(effects(space, models))
    for name in ("a", "b"):
        assert found[name].main == pytest.approx(0.5, abs=0.02)
        assert found[name].main_deviation == pytest.approx(0.5, abs=0.02)


def test_models_that_learned_a_constant_do_not_count() -> None:
    space = CandidateSpace(Space("pair", (Step("model", (made("m", "a", "b"),)),)))

    def models(features):
        a = features[:, 1]
        return np.array([np.full(len(a), 0.3), a, np.full(len(a), 7.0)])

    found = by_name(effects(space, models))
    assert found["a"].total == pytest.approx(1.0, abs=0.02)
    assert found["a"].total_deviation == pytest.approx(0.0, abs=0.02)
    assert effects(space, lambda features: np.ones((3, len(features)))) == []


def test_the_work_grows_with_what_is_active_and_not_with_the_space() -> None:
    """Of 40 models with 3 hyperparameters each one is active: 5 predictions for each draw."""
    models = tuple(made(f"m{k}", f"a{k}", f"b{k}", f"c{k}") for k in range(40))
    space = CandidateSpace(Space("wide", (Step("model", models),)))
    n_predicted = 0

    def predict(features):
        nonlocal n_predicted
        n_predicted += len(features)
        return features[:, :1].T

    effects(space, predict, n=512)
    assert n_predicted <= 6 * 512  # A, B, another model, and the three of its own


SPACE = Space("two", (Step("model", (made("x"), made("y", "u", "idle"))),))


def drawn(n: int) -> list[Configuration]:
    rng = np.random.default_rng(0)
    return [sample_configuration(SPACE, rng) for _ in range(n)]


def learned(configurations: list[Configuration], losses: ArrayLike) -> Importance:
    return importance_of(SPACE, [c.to_json() for c in configurations], losses)


def u(configuration: Configuration) -> float:
    return float(dict(configuration["model"].values).get("u", 0.0))


def test_it_is_learned_from_trials_and_says_how_sure_it_is() -> None:
    """The conditional space of test_effects, by forests: 4/5 and 2/5 in all."""
    configurations = drawn(400)
    found = learned(configurations, [u(c) for c in configurations])
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
    few = learned(drawn(LEAST_TRIALS - 1), np.arange(LEAST_TRIALS - 1))
    assert few.effects == ()
    assert "at least 20 are needed" in few.reason
    noise = np.random.default_rng(1).normal(size=200)
    unclear = learned(drawn(200), noise)
    assert unclear.effects == ()
    assert unclear.r2 < 0.2
    same = learned(drawn(50), np.ones(50))
    assert same.reason == "all losses are the same"


def test_useless_corners_do_not_hide_the_rest() -> None:
    """A fiftieth of the space is a thousand times worse, which says nothing of u elsewhere."""
    configurations = drawn(600)
    is_corner = [dict(c["model"].values).get("idle", 0) > 0.96 for c in configurations]
    losses = np.where(is_corner, 1000.0, [u(c) for c in configurations])
    found = learned(configurations, losses)
    assert found.bound < 2
    assert found.effects[0].input.step == "model"
    shares = {e.input.hyperparameter: e.total for e in found.effects}
    assert shares["u"] > shares["idle"]
