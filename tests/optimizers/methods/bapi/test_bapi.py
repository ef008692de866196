"""Whole studies: budgets, looks at trainings, and those that end early or run into trouble."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby, pairwise

import numpy as np
import pytest
from curve_worlds import T_MAX, bapi, mixed_nets, nets, power_law
from simulation import Simulation
from worlds import finite_space, mixed_space

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
    Trial,
)
from prefect_tune.optimizers.methods.bapi.bapi import Bapi

Curve = Callable[[Configuration], Sequence[float]]


def tell(optimizer: Bapi, number: int, losses: Sequence[float]) -> None:
    """Tell a stretch, of the losses of all epochs."""
    query = optimizer.history[number].query
    epochs = query.epochs or optimizer.t_max
    before = optimizer.history.trials_of(query.configuration)
    done = max((t.query.epochs or optimizer.t_max for t in before if t.loss is not None), default=0)
    curve, seconds = tuple(float(x) for x in losses[:epochs]), float(epochs - done)
    best = int(np.argmin(curve)) + 1
    outcome = Evaluation(
        min(curve), cost_seconds=seconds, curve=curve, best_epoch=best, resumed_from=done
    )
    optimizer.tell(Trial(number, query).started().completed(outcome))


def study(optimizer: Bapi, curve: Curve, n: int) -> list[Query]:
    """Ask and tell one after the other."""
    queries = []
    for _ in range(n):
        queries.append(query := optimizer.ask(Budget()))
        tell(optimizer, len(optimizer.history) - 1, curve(query.configuration))
    return queries


def power(configuration: Configuration) -> list[float]:
    level = float(dict(configuration["model"].values)["level"])
    end = 5 + 60 * (level - 0.3) ** 2
    return [end + (80 - end) / epoch for epoch in range(1, 51)]


@pytest.mark.parametrize(
    ("space", "objective", "remedy"),
    [
        (finite_space(), Objective(epochs=20, iterative=frozenset({"mlp"})), "smac or fabolas"),
        (mixed_space(), Objective(iterative=frozenset({"tree"})), "--epochs 50"),
        (nets(), Objective(epochs=4, iterative=frozenset({"net"})), "4 epochs"),
    ],
)
def test_without_epochs_or_a_model_that_trains_in_them_it_is_refused(space, objective, remedy):
    with pytest.raises(ValueError, match=remedy):
        Bapi(space, 0, objective)
    assert bapi(epochs=5).ask(Budget()).epochs


def test_a_budget_that_affords_no_epoch_ends_the_search() -> None:
    optimizer = bapi(n_first=4)
    study(optimizer, power, 3)
    for left in (0.0, 1e-6):
        with pytest.raises(SpaceExhausted, match="affords no epoch"):
            optimizer.ask(Budget(seconds_spent=100.0, seconds_left=left))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "first", "then"),
    [("default", 2, 5), pytest.param("paper", 10, 10, marks=pytest.mark.full)],
)
def test_a_curve_that_will_be_the_best_is_looked_at_soon_and_then_by_quanta(variant, first, then):
    """Of fifteen curves at the start, and better ones that are begun later."""
    optimizer = bapi(epochs=50, n_first=15, variant=variant, epsilon=0.0)
    own = dict[Configuration, None]()

    def curve(configuration: Configuration) -> list[float]:
        if len(own) < 15:
            own.setdefault(configuration)
        better = [1 + 40 / epoch for epoch in range(1, 51)]
        return power(configuration) if configuration in own else better

    queries = study(optimizer, curve, 40)
    runs = [list(run) for _, run in groupby(queries, lambda query: query.configuration)]
    begun = {run[0].configuration: run for run in runs[::-1] if run[0].configuration not in own}
    assert max(len(run) for run in begun.values()) >= 4
    assert {run[0].epochs for run in begun.values()} == {first}
    pairs = (pair for run in begun.values() for pair in pairwise(run))
    assert max((b.epochs or 50) - (a.epochs or 50) for a, b in pairs) == then


@pytest.mark.slow
def test_models_that_are_fitted_at_once_are_asked_for_in_full() -> None:
    optimizer = bapi(mixed_nets(), n_first=6)
    Simulation(optimizer, partial(power_law, optimizer), trials=14).run()
    fitted = [t for t in optimizer.history if t.query.configuration.path[-1] == "knn"]
    assert fitted
    assert all(t.query.epochs is None for t in fitted)
    assert len({t.query.configuration for t in fitted}) == len(fitted)


def test_a_space_smaller_than_the_start_is_trained_to_the_end() -> None:
    models = Algorithm(id="net", estimator="x.Net"), Algorithm(id="knn", estimator="x.Knn")
    optimizer = bapi(Space("two", (Step("model", models),)))

    def outcome(query: Query) -> Evaluation:
        losses = tuple(50.0 - epoch for epoch in range(query.epochs or T_MAX))
        if query.configuration.path == ("knn",):
            return Evaluation(60.0, cost_seconds=1.0)
        return Evaluation(losses[-1], cost_seconds=1.0, curve=losses)

    Simulation(optimizer, outcome).run()
    assert len(optimizer.history.asked) == len(optimizer.history.complete) == 2
    with pytest.raises(SpaceExhausted, match="space 'two'"):
        optimizer.ask(Budget())


def test_a_training_resumed_after_others_is_counted_as_thawed() -> None:
    optimizer = bapi(n_first=4)
    study(optimizer, power, 5)
    assert optimizer.decisions["thawed"] == 0
    query = optimizer.ask(Budget(trials_left=0))
    assert query.configuration in {t.query.configuration for t in list(optimizer.history)[:5]}
    assert optimizer.decisions["thawed"] == 1


def test_where_nothing_is_to_be_gained_the_best_is_trained_to_its_end_all_the_same() -> None:
    optimizer = bapi(n_first=4)

    def outcome(query: Query) -> Evaluation:
        losses = (50.0,) * (query.epochs or T_MAX)
        return Evaluation(50.0, cost_seconds=1.0, curve=losses, best_epoch=1)

    Simulation(optimizer, outcome, trials=6).run()
    assert len(optimizer.history.complete) == 1
