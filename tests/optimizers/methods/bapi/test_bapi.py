"""Whole studies with BAPI: budgets, partial training, early ends and failures."""

from dataclasses import replace
from functools import partial
from itertools import groupby, islice, pairwise
from math import inf

import pytest
from curve_worlds import CURVES, T_MAX, bapi, mixed_nets, nets, power_law
from simulation import Simulation
from worlds import ask_and_tell, finite_space, mixed_space

from prefect_tune.optimizers import (
    Algorithm,
    Budget,
    Configuration,
    Evaluation,
    Objective,
    Query,
    Space,
    SpaceExhausted,
    Step,
)
from prefect_tune.optimizers.methods.bapi.bapi import Bapi


@pytest.mark.parametrize(
    ("space", "objective", "remedy"),
    [
        (finite_space(), Objective(epochs=20, iterative=frozenset({"mlp"})), "smac or fabolas"),
        (mixed_space(), Objective(iterative=frozenset({"tree"})), "--epochs"),
        (nets(), Objective(epochs=4, iterative=frozenset({"net"})), "4 epochs"),
    ],
)
def test_space_without_epochs_or_iterative_models_is_refused(space, objective, remedy):
    with pytest.raises(ValueError, match=remedy):
        Bapi(space, 0, objective)
    assert bapi(epochs=5).ask(Budget()).epochs


@pytest.mark.slow
def test_winning_curve_is_trained_early_and_in_quanta() -> None:
    """Fifteen curves start first, and better curves start later."""
    optimizer = bapi(epochs=50, n_first=15, epsilon=0.0)
    own = dict[Configuration, None]()

    def outcome(query: Query) -> Evaluation:
        if len(own) < 15:
            own.setdefault(query.configuration)
        found = power_law(optimizer, query)
        if query.configuration in own:
            return found
        losses = tuple(1 + 40 / epoch for epoch in range(1, (query.epochs or 50) + 1))
        return replace(found, loss=losses[-1], fold_losses=losses[-1:], curve=losses)

    ended = islice(Simulation(optimizer, outcome).ends(), 40)
    queries = [stretch.trial.query for stretch in ended]
    runs = [list(run) for _, run in groupby(queries, lambda query: query.configuration)]
    begun = {run[0].configuration: run for run in runs[::-1] if run[0].configuration not in own}
    assert max(len(run) for run in begun.values()) >= 4
    assert {run[0].epochs for run in begun.values()} == {2}
    pairs = (pair for run in begun.values() for pair in pairwise(run))
    assert max((b.epochs or 50) - (a.epochs or 50) for a, b in pairs) == 5


def test_failures_alone_are_followed_by_random_configurations() -> None:
    optimizer = bapi(n_first=2)
    ask_and_tell(optimizer, lambda _: None, 4)
    assert optimizer.reason.phase == "start"
    assert len(optimizer.history.asked) == 4


@pytest.mark.slow
def test_models_without_epochs_are_evaluated_in_full() -> None:
    optimizer = bapi(mixed_nets(), n_first=6)
    Simulation(optimizer, partial(power_law, optimizer), trials=14).run()
    fitted = [t for t in optimizer.history if t.query.configuration.path[-1] == "knn"]
    assert fitted
    assert all(t.query.epochs is None for t in fitted)
    assert len({t.query.configuration for t in fitted}) == len(fitted)


def test_space_smaller_than_the_initial_design_is_trained_to_the_end() -> None:
    models = Algorithm(id="net", estimator="x.Net"), Algorithm(id="knn", estimator="x.Knn")
    optimizer = bapi(Space("two", (Step("model", models),)))

    def outcome(query: Query) -> Evaluation:
        losses = tuple(50.0 - epoch for epoch in range(query.epochs or T_MAX))
        if query.configuration.path == ("knn",):
            return Evaluation(60.0, cost_seconds=1.0)
        return Evaluation(losses[-1], cost_seconds=1.0, curve=losses)

    Simulation(optimizer, outcome).run()
    assert len(optimizer.history.asked) == len(optimizer.history.complete) == 2
    with pytest.raises(SpaceExhausted):
        optimizer.ask(Budget())


def test_unaffordable_epochs_end_the_search_and_resumed_configurations_count_as_thawed() -> None:
    optimizer = bapi(n_first=4)
    assert len([*islice(Simulation(optimizer, partial(power_law, optimizer)).ends(), 5)]) == 5
    with pytest.raises(SpaceExhausted, match="too small for"):
        optimizer.ask(Budget(seconds_spent=100.0, seconds_left=1e-6))
    assert optimizer.decisions["thawed"] == 0
    query = optimizer.ask(Budget(trials_left=0))
    assert query.configuration in {t.query.configuration for t in list(optimizer.history)[:5]}
    assert optimizer.decisions["thawed"] == 1


def test_best_configuration_is_completed_even_if_no_improvement_is_possible() -> None:
    optimizer = bapi(n_first=4)

    def outcome(query: Query) -> Evaluation:
        losses = (50.0,) * (query.epochs or T_MAX)
        return Evaluation(50.0, cost_seconds=1.0, curve=losses, best_epoch=1)

    Simulation(optimizer, outcome, trials=6).run()
    assert len(optimizer.history.complete) == 1


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["default", "paper"])
def test_unit_of_the_loss_does_not_change_the_queries(variant: str) -> None:
    def queries(unit: float) -> list[Query]:
        objective = replace(CURVES, metric="rmse", unit="", lower=0.0, upper=inf)
        optimizer = Bapi(nets(), 0, objective, variant=variant, n_first=5)

        def outcome(query: Query) -> Evaluation:
            found = power_law(optimizer, query)
            curve = tuple(unit * loss for loss in found.curve)
            return replace(found, loss=unit * found.loss, fold_losses=(curve[-1],), curve=curve)

        Simulation(optimizer, outcome, trials=10).run()
        return [t.query for t in optimizer.history]

    assert queries(2.0**-40) == queries(1.0) == queries(2.0**30)
