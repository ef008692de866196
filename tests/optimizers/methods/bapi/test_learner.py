"""What is learned from curves, and from their slopes."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from curve_worlds import (
    CURVES,
    T_MAX,
    crashed,
    curves_from,
    knn,
    mixed_nets,
    net,
    nets,
    stretch,
)

from prefect_tune.optimizers import Query, Trial
from prefect_tune.optimizers.methods.bapi.curves import LearningCurve
from prefect_tune.optimizers.methods.bapi.declaration import BapiOptions, Settings, Sites
from prefect_tune.optimizers.methods.bapi.learner import CurveBelief, CurveLearner


def learner(**options: Any) -> CurveLearner:
    return CurveLearner(mixed_nets(), CURVES, Settings.of(BapiOptions(**options)), T_MAX)


def curves(*trials: Trial) -> list[LearningCurve]:
    return list(curves_from(*trials, space=mixed_nets()).values())


def falling(number: int, level: float, n: int = 4) -> Trial:
    losses = [20 + 30 * level + 40 / epoch for epoch in range(1, n + 1)]
    return stretch(number, net(level, scale="none"), losses, cost_seconds=float(n))


SEVEN = [falling(i, i / 7) for i in range(7)]


def learned(which: list[LearningCurve], **options: Any) -> tuple[CurveBelief, dict[str, Any]]:
    return learner(**options).learn(which, {}, np.random.default_rng(0))


@pytest.mark.parametrize("variant", ["default", "paper"])
def test_what_was_learned_is_recalled_from_json(variant: Any) -> None:
    belief, memo = learned(curves(*SEVEN), variant=variant)
    again = learner(variant=variant).recall(curves(*SEVEN), json.loads(json.dumps(memo)))
    rows = learner().inputs.of(learner().inputs.encode([net(0.35, scale="unit"), knn(0.5)]))
    assert again.predict(rows, T_MAX)[0] == pytest.approx(belief.predict(rows, T_MAX)[0])
    assert again.seconds(rows) == pytest.approx(belief.seconds(rows))
    assert len(json.dumps(memo)) < 5_000


def site_rows(of: CurveBelief) -> np.ndarray:
    rows: np.ndarray = of.process.sites[:, :-1]
    return np.unique(rows.round(9), axis=0)


def test_sites_stand_at_curves_that_may_go_on_and_nowhere_else() -> None:
    full, diverged = falling(7, 0.95, T_MAX), stretch(
        8, net(0.9, scale="unit"), [60.0, 59.0], 4, trouble="no epoch 3"
    )  # fmt: skip
    others = stretch(9, knn(0.5), 30.0), crashed(10, net(0.99, scale="unit"), 2)
    which = curves(*SEVEN, full, diverged, *others)
    belief, _ = learned(which, variant="paper")
    inputs = learner().inputs
    expected = inputs.of(inputs.encode(t.query.configuration for t in SEVEN))
    assert site_rows(belief) == pytest.approx(np.unique(expected.round(9), axis=0))
    fitted = belief.process.process.inputs
    at_knn = inputs.at(inputs.encode([knn(0.5)]), 1.0)[0]
    assert np.isclose(fitted, at_knn).all(axis=1).sum() == 1


@pytest.mark.slow
def test_sites_are_few_and_what_is_under_way_has_its_own() -> None:
    many = [falling(i, i / 80) for i in range(80)]
    worst = Trial(80, Query(net(79 / 80, scale="none"), epochs=6))
    belief, _ = learned(curves(*many, worst), variant="paper")
    assert 60 <= len(belief.process.sites) <= 120
    inputs = learner().inputs
    under_way = inputs.of(inputs.encode([worst.query.configuration]))[0]
    assert np.isclose(site_rows(belief), under_way).all(axis=1).any()


@pytest.mark.parametrize("variant", ["default", "paper"])
def test_equal_losses_everywhere_are_learned_from(variant: Any) -> None:
    flat = [stretch(i, net(i / 5, scale="none"), [50.0] * 4) for i in range(5)]
    belief, _ = learned(curves(*flat), variant=variant)
    row = learner().inputs.of(learner().inputs.encode([net(0.3, scale="none")]))
    curve = belief.curve(row)
    assert np.isfinite(curve).all()
    assert curve == pytest.approx(np.full(T_MAX, 50.0), abs=1.0)
    assert belief.predict(row, T_MAX)[1] < 0.01
    assert np.isfinite(belief.improvement(row, T_MAX, float(belief.scores.of_loss(50.0)))).all()


def test_predicted_losses_never_rise_and_stay_in_the_metrics_range() -> None:
    steep = [stretch(i, net(i / 5, scale="none"), [90.0, 40.0, 8.0, 1.0]) for i in range(5)]
    for options in ({}, {"variant": "paper"}):
        belief, _ = learned(curves(*steep), **options)
        inputs = learner().inputs
        for configuration in (net(0.1, scale="none"), net(0.55, scale="unit")):
            curve = belief.curve(inputs.of(inputs.encode([configuration])))
            assert curve.shape == (T_MAX,)
            assert (np.diff(curve) <= 1e-12).all()
            assert 0.0 <= curve.min() <= curve.max() <= 100.0


def ending(at: Callable[[float], float]) -> list[LearningCurve]:
    """Flat curves of twelve nets, by the loss that each level ends at."""
    levels = [(i + 0.5) / 12 for i in range(12)]
    which = enumerate(levels)
    return curves(*(stretch(i, net(u, scale="none"), [at(u)] * 3) for i, u in which))


@pytest.mark.parametrize(
    ("kind", "at"),
    [("log", lambda u: 0.5 * np.exp(5 * u)), ("raw", lambda u: 20 + 60 * u)],
    ids=["rising by factors", "rising by steps"],
)
def test_losses_are_learned_in_the_scores_that_make_them_likelier(
    kind: str, at: Callable[[float], float]
) -> None:
    _, memo = learned(ending(at))
    assert memo["score"] == kind


def n_fits(*plans: list[LearningCurve]) -> list[int]:
    """How often parameters were fitted up to each of some plans."""
    memo: dict[str, Any] = {}
    found = []
    for which in plans:
        _, memo = learner().learn(which, memo, np.random.default_rng(0))
        found.append(memo["n_fits"])
    return found


def test_parameters_are_fitted_at_every_plan_while_points_are_few() -> None:
    assert n_fits(*[curves(*SEVEN)] * 3) == [1, 2, 3]


@pytest.mark.slow
def test_parameters_of_many_points_are_fitted_at_every_third_plan_or_once_points_have_grown() -> (
    None
):
    many = [falling(i, i / 20) for i in range(20)]
    assert n_fits(*[curves(*many)] * 5) == [1, 1, 1, 2, 2]
    assert n_fits(curves(*many[:16]), curves(*many[:17]), curves(*many)) == [1, 1, 2]


LEVELS = np.linspace(0.1, 0.9, 6)


def learned_with_sites(sites: Sites | None = "falling") -> CurveBelief:
    """Of curves that were seen for a fifth, one of them flat from the beginning."""
    settings = replace(Settings(), sites=sites)
    drops = 40.0 * LEVELS - 4.0
    losses = [[50.0 - drop * (1 - 3.0**-epoch) for epoch in range(4)] for drop in drops]
    curves = curves_from(*(stretch(i, net(x), losses[i]) for i, x in enumerate(LEVELS)))
    learner = CurveLearner(nets(), CURVES, settings, T_MAX)
    return learner.learn(list(curves.values()), {}, np.random.default_rng(0))[0]


def slopes(belief: CurveBelief) -> np.ndarray:
    rows = np.column_stack([LEVELS, np.full(6, 0.5)])
    return belief.process.slopes(belief.at(rows, T_MAX))[0]


def test_by_default_sites_stand_where_the_model_would_fall() -> None:
    nowhere, falling, everywhere = (
        learned_with_sites(None),
        learned_with_sites(),
        learned_with_sites("all"),
    )
    assert not len(nowhere.process.sites)
    assert (slopes(nowhere) < 0).any()
    assert 0 < len(falling.process.sites) < len(everywhere.process.sites) == 2 * len(LEVELS)
    assert (slopes(falling) >= -1e-9).all()
