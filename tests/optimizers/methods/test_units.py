"""Proposals do not depend on units, names, or the order of outcomes.

Factors are powers of two and losses are multiples of 2^-20, so that changes of the unit cause no
rounding errors. If the queries of a method change, a constant of the method has a unit. Seconds are
far above the lower bound of measured seconds, and the seconds of Fabolas' dispatch, a constant,
are in the unit of the study.
"""

from dataclasses import dataclass, replace
from functools import cache
from math import inf
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
import pytest
from ConfigSpace import Categorical, ConfigurationSpace, EqualsCondition, Float, Integer
from contracts.methods import ALL
from contracts.optimizer import OBJECTIVE, Case
from simulation import share_of
from worlds import NONE, algorithm

from prefect_tune.optimizers import (
    METHODS,
    Budget,
    Constraint,
    Evaluation,
    Failure,
    FailureKind,
    NotYet,
    Objective,
    Optimizer,
    Prior,
    PriorTrial,
    Query,
    Racing,
    Space,
    Step,
    StepCost,
    Trial,
)
from prefect_tune.optimizers.methods.fabolas.rules import RULES
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.space.vectors import CandidateSpace

Tier = Literal["", "slow", "full"]
BOUNDS = {"percent": (0.0, 1.0), "range": (0.0, 1.0), "above": (0.0, inf), "any": (-inf, inf)}
"""Lower and upper bounds of metrics. Fabolas takes logarithms of errors in percent."""


@dataclass(frozen=True)
class Units:
    """The units, names and order of a study.

    Attributes:
        metric: Key in `BOUNDS`.
        loss: Unit of the losses.
        origin: Number added to the losses.
        second: Unit of the seconds.
        is_renamed: Whether steps and algorithms have other names, in the opposite order.
        is_last_first: Whether the trial that was asked last is told first.
        is_after: Whether the study follows an earlier run.
        bound: Bound of the size in the unit of the size; None without constraints.
        size: Unit of the size.
    """

    metric: str = "percent"
    loss: float = 1.0
    origin: float = 0.0
    second: float = 1.0
    is_renamed: bool = False
    is_last_first: bool = False
    is_after: bool = False
    bound: float | None = None
    size: float = 1.0

    def name(self, known: str) -> str:
        return "".join(chr(219 - ord(c)) for c in known) if self.is_renamed else known

    @property
    def space(self) -> Space:
        svm = ConfigurationSpace(
            space=[
                Float("C", (1e-3, 1e3), log=True, default=1.0),
                Categorical("kernel", ["rbf", "poly"], default="rbf"),
                Integer("degree", (2, 5), default=3),
            ]
        )
        svm.add(EqualsCondition(svm["degree"], svm["kernel"], "poly"))
        power, depth = Float("p", (0.5, 2.0)), Integer("depth", (1, 50), log=True, default=5)
        count = algorithm("count", Categorical("family", ["a", "b", "c"], default="a"))
        models = algorithm("svm", hyperparameters=svm), algorithm("tree", depth), algorithm("bayes")
        scalers = NONE, algorithm("unit"), algorithm("power", power)
        steps = {"construct": (count,), "scale": scalers, "model": models}
        return Space(
            "toy",
            tuple(
                Step(self.name(step), tuple(replace(a, id=self.name(a.id)) for a in algorithms))
                for step, algorithms in steps.items()
            ),
        )

    @property
    def objective(self) -> Objective:
        lower, upper, chance = (self.told(x) for x in (*BOUNDS[self.metric], 0.75))
        bounds = () if self.bound is None else (Constraint("size", self.bound * self.size),)
        return replace(
            OBJECTIVE,
            constraints=bounds,
            unit="percent" if self.metric == "percent" else "",
            lower=lower,
            upper=upper,
            chance=chance,
            iterative=frozenset(map(self.name, OBJECTIVE.iterative)),
        )

    def told(self, loss: float) -> float:
        """Return a loss in the unit of the study."""
        rounded = round(loss * 2**20) / 2**20 if np.isfinite(loss) else loss
        return rounded * self.loss + self.origin


BEST = np.array([0.5, 0.31, 0.62, 0.9, 0.17, 0.41])
"""Best positions of the hyperparameters."""


def outcome(trial: Trial, encoded: CandidateSpace, units: Units) -> Trial:
    """Return an ended trial; models that train in epochs have learning curves."""
    query, objective = trial.query, units.objective
    point, share = encoded.encode([query.configuration]), share_of(query, objective)
    (_, i, j), (is_active,) = point.algorithms[0].tolist(), encoded.active(point)
    distance = float((is_active * (point.units[0] - BEST) ** 2).sum())
    end = 0.03 + (0.11, 0.05, 0.02)[i] + (0.08, 0.12, 0.2)[j] + 0.3 * distance
    seconds = [100 * share * s for s in (2.0, (1.0, 3.0, 9.0)[i], (40.0, 10.0, 2.0)[j])]
    steps = tuple(
        StepCost(step.name, 0, round(s) * units.second, 0.0, hit=False, key="")
        for step, s in zip(encoded.space.steps, seconds, strict=True)
    )
    cost = sum(step.seconds for step in steps) + 4 * units.second
    if int(64 * distance) % 9 == 5:
        failure = Failure(FailureKind.ERROR, "no loss", cost_seconds=cost, steps=steps)
        return trial.started().failed(failure)
    n_epochs, n = query.epochs or objective.epochs or 1, query.folds or objective.n_folds or 1
    path = query.configuration.path
    epochs = range(1, n_epochs + 1) if path[-1] in objective.iterative else (n_epochs,)
    curve = tuple(units.told(end + 0.2 * (1 - query.subset) + 0.3 / e) for e in epochs)
    folds = tuple(curve[-1] + units.loss * (k - (n - 1) / 2) / 64 for k in range(n))
    known = {"curve": curve, "best_epoch": n_epochs} if len(epochs) > 1 else {}
    size = {"size": max(round(1000 * distance) - 200, 0) * units.size}
    ended = Evaluation(curve[-1], folds, cost, cost, steps, constraints=size, **known)
    return trial.started().completed(ended)


class Raced(Case):
    """A method with a race of its configurations."""

    def make(self, space: Space, seed: int = 0) -> Optimizer:
        return Racing(super().make(space, seed))


def case(name: str, tier: Tier = "slow", **options: Any) -> Case:
    return replace(ALL[name], options={**ALL[name].options, **options}, tier=tier)


CASES = {
    **ALL,
    "tpe": case("tpe", "", n_startup=4),
    **{name: case(name, n_startup=4) for name in ("smac", "jopt")},
    "flash": case("flash", n_init=5, n_prune=4, r=2),
    "raced": Raced("smac", {"n_startup": 4}, tier="slow"),
    **{f"{name} paper": case(name, "full", variant="paper") for name in ("admm", "bapi")},
    "fabolas paper": case("fabolas", "full", variant="paper", n_first=13),
    "flash paper": case("flash", "full", variant="paper", n_init=5, n_prune=4, r=2),
}
N = 16
"""Number of proposals."""


@cache
def queries_of(name: str, units: Units) -> list[Any]:
    """Return the queries of a method without names, with two trials at a time."""
    space = units.space
    encoded = CandidateSpace(space)
    optimizer = replace(CASES[name], objective=units.objective).make(space)
    if units.is_after:
        rng = np.random.default_rng(1)
        drawn = [Trial(k, Query(sample_configuration(space, rng))) for k in range(40)]
        ended = [(t.query.configuration, outcome(t, encoded, units).loss) for t in drawn]
        optimizer.begin_after(Prior(tuple(PriorTrial(c, y) for c, y in ended if y is not None)))
    asked, pending, spent = list[Any](), list[Trial](), 0.0
    while len(asked) < N:
        left = 5e4 * units.second - spent
        try:
            query = optimizer.ask(Budget(len(asked), N - len(asked), spent, left, n_workers=2))
        except NotYet:
            assert pending
        else:
            pending.append(Trial(len(asked), query))
            point = encoded.encode([query.configuration])
            values = np.where(encoded.active(point), point.units, -1.0).tolist()
            asked.append(
                (point.algorithms.tolist(), values, query.subset, query.folds, query.epochs)
            )
            if len(pending) < 2:
                continue
        for trial in pending[:: -1 if units.is_last_first else 1]:
            ended = outcome(trial, encoded, units)
            spent += ended.cost_seconds
            optimizer.tell(ended)
        pending = []
    return asked


def every(*, but: str = "", is_constrained: bool = False) -> pytest.MarkDecorator:
    """Return a decorator that runs a test for every case, or for the methods with constraints."""
    marks = {"": (), "slow": pytest.mark.slow, "full": pytest.mark.full}
    names = [
        pytest.param(name, marks=marks[case.tier])
        for name, case in CASES.items()
        if name != but and (not is_constrained or METHODS[case.method].honors_constraints)
    ]
    return pytest.mark.parametrize("name", names)


@pytest.mark.parametrize("metric", ["percent", "above", "any"])
@every()
def test_unit_of_losses_does_not_change_the_queries(name: str, metric: str) -> None:
    for k in (-30, 30):
        assert queries_of(name, Units(metric, loss=2.0**k)) == queries_of(name, Units(metric))


@pytest.mark.parametrize("metric", ["range", "any"])
@every(but="flash paper")  # equation 1 has no intercept
def test_number_added_to_losses_does_not_change_the_queries(name: str, metric: str) -> None:
    assert queries_of(name, Units(metric, origin=1024.0)) == queries_of(name, Units(metric))


@every(but="flash paper")  # the paper divides by the logarithm of the seconds
def test_unit_of_seconds_does_not_change_the_queries(name: str) -> None:
    for k in (-6, 10):
        second = 2.0**k
        rules = replace(RULES, dispatch_seconds=RULES.dispatch_seconds * second)
        with patch("prefect_tune.optimizers.methods.fabolas.fabolas.RULES", rules):
            assert queries_of(name, Units(second=second)) == queries_of(name, Units())


@every()
def test_names_do_not_change_the_queries(name: str) -> None:
    assert queries_of(name, Units(is_renamed=True)) == queries_of(name, Units())


@every()
def test_order_of_outcomes_does_not_change_the_queries(name: str) -> None:
    assert queries_of(name, Units(is_last_first=True)) == queries_of(name, Units())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tpe", "smac", "flash", "admm", "jopt", "ei"])
def test_unit_of_losses_does_not_change_the_queries_after_an_earlier_run(name: str) -> None:
    after = Units("any", is_after=True)
    for k in (-30, 30):
        assert queries_of(name, replace(after, loss=2.0**k)) == queries_of(name, after)


@pytest.mark.parametrize("is_after", [False, True])
@every(but="flash paper", is_constrained=True)
def test_units_do_not_change_the_queries_under_a_constraint(name: str, *, is_after: bool) -> None:
    under = Units("any", is_after=is_after, bound=0.0 if is_after else 256.0)
    changes = [{"loss": 2.0**k, "size": 2.0**-k} for k in (-30, 30)]
    changes += [{"is_renamed": True}, {"is_last_first": True}]
    if not is_after:  # losses of earlier runs are mapped to the new scale, with rounding errors
        changes += [{"origin": 1024.0}]
    for change in changes:
        assert queries_of(name, replace(under, **change)) == queries_of(name, under), change
