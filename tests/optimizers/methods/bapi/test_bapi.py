"""Whole studies: budgets, replay, trainings that end early or run into trouble."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from curve_worlds import (
    CURVES,
    T_MAX,
    PowerLaws,
    bapi,
    crashed,
    mixed_nets,
    nets,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import Simulation
from worlds import finite_space, mixed_space

from prefect_tune.optimizers import (
    Algorithm,
    Budget,
    Configuration,
    Constraint,
    Evaluation,
    Objective,
    Query,
    Space,
    SpaceExhausted,
    Step,
    Trial,
)
from prefect_tune.optimizers.methods.bapi.bapi import Bapi

Curve = Callable[[Configuration], Sequence[float] | np.ndarray]


def level_of(configuration: Configuration) -> float:
    return float(dict(configuration["model"].values)["level"])


def tell(optimizer, number, losses, **evaluation) -> Trial:
    """Tell a stretch, of a whole curve or of the epochs that were asked for."""
    query = optimizer.history[number].query
    epochs = query.epochs or optimizer.t_max
    before = optimizer.history.trials_of(query.configuration)
    done = max((t.query.epochs or optimizer.t_max for t in before if t.loss is not None), default=0)
    curve = tuple(float(x) for x in losses[:epochs])
    known: dict[str, Any] = {"resumed_from": done, "cost_seconds": float(epochs - done)}
    best = int(np.argmin(curve)) + 1
    outcome = Evaluation(min(curve), curve=curve, best_epoch=best, **{**known, **evaluation})
    ended = Trial(number, query).started().completed(outcome)
    optimizer.tell(ended)
    return ended


def study(optimizer: Bapi, curve: Curve, n: int, budget: Budget | None = None) -> list[Query]:
    """Ask and tell one after the other."""
    queries = []
    for _ in range(n):
        query = optimizer.ask(budget or Budget())
        tell(optimizer, len(optimizer.history) - 1, curve(query.configuration))
        queries.append(query)
    return queries


def power(configuration: Configuration) -> list[float]:
    end = 5 + 60 * (level_of(configuration) - 0.3) ** 2
    return [end + (80 - end) / epoch for epoch in range(1, T_MAX + 1)]


def test_without_epochs_or_a_model_that_trains_in_them_it_is_refused() -> None:
    fitted = Objective(epochs=20, iterative=frozenset({"mlp"}))
    with pytest.raises(ValueError, match="smac or fabolas"):
        Bapi(finite_space(), 0, fitted)
    with pytest.raises(ValueError, match="--epochs 50"):
        Bapi(mixed_space(), 0, Objective(iterative=frozenset({"tree"})))
    with pytest.raises(ValueError, match="4 epochs"):
        bapi(epochs=4)
    assert bapi(epochs=5).ask(Budget()).epochs


@pytest.mark.parametrize("left", [0.0, 1e-6])
def test_a_budget_that_affords_no_epoch_ends_the_search(left: float) -> None:
    optimizer = bapi(n_first=4)
    study(optimizer, power, 3)
    with pytest.raises(SpaceExhausted, match="affords no epoch"):
        optimizer.ask(Budget(seconds_spent=100.0, seconds_left=left))


def falling_slowly(configuration: Configuration) -> np.ndarray:
    """Good below the middle; at 60 % from the beginning above it."""
    level = level_of(configuration)
    noise = np.random.default_rng(crc32(configuration.canonical.encode())).normal(0, 0.3, 50)
    return noise + (60.0 if level > 0.5 else 5 + 60 * (level - 0.3) ** 2 + 40 / np.arange(1, 51))


def newcomers(losses: np.ndarray, n: int, **options: Any) -> tuple[Bapi, list[list[Query]]]:
    """What follows a start of fifteen if all that are begun later have such losses.

    Of each newcomer in n asks, the stretches until another was asked for.
    """
    optimizer = bapi(epochs=50, n_first=15, **options)
    own = dict[Configuration, None]()

    def curve(configuration: Configuration) -> np.ndarray:
        if len(own) < 15:
            own.setdefault(configuration)
        noise = np.random.default_rng(crc32(configuration.canonical.encode())).normal(0, 0.3, 50)
        return falling_slowly(configuration) if configuration in own else losses + noise

    queries = study(optimizer, curve, n)
    runs = [list(run) for _, run in groupby(queries, lambda query: query.configuration)]
    first = {run[0].configuration: run for run in runs[::-1]}
    return optimizer, [run for configuration, run in first.items() if configuration not in own]


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["default", pytest.param("paper", marks=pytest.mark.full)])
def test_a_curve_that_stays_behind_the_best_is_stopped_at_the_first_or_second_look(variant) -> None:
    optimizer, runs = newcomers(np.full(50, 60.0), 45, variant=variant)
    assert len(runs) > 2
    ends = optimizer.decisions["ends"]
    assert ends["stopped"] + ends["finished"] >= len(runs) / 2
    assert np.mean([len(run) <= 2 for run in runs]) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "first", "then"),
    [("default", 2, 5), pytest.param("paper", 10, 10, marks=pytest.mark.full)],
)
def test_a_curve_that_will_be_the_best_is_looked_at_soon_and_then_by_quanta(variant, first, then):
    _, runs = newcomers(1.0 + 40.0 / np.arange(1, 51), 40, variant=variant, epsilon=0.0)
    assert max(len(run) for run in runs) >= 4
    assert {run[0].epochs for run in runs} == {first}
    steps = {(b.epochs or 50) - (a.epochs or 50) for run in runs for a, b in pairwise(run)}
    assert max(steps) == then


@pytest.mark.full
@settings(max_examples=5, deadline=None)
@given(
    seed=st.integers(0, 1000),
    n_workers=st.sampled_from([1, 4]),
    n_full=st.floats(1.0, 6.0),
    variant=st.sampled_from(["default", "paper"]),
)
def test_a_budget_is_overspent_by_one_stretch_of_each_worker_at_most(
    seed: int, n_workers: int, n_full: float, variant: str
) -> None:
    optimizer = bapi(seed=seed, variant=variant)
    law = PowerLaws(optimizer, seed=seed, spread=0.5)
    total = n_full * T_MAX * np.e  # in full trainings of the median
    done = Simulation(optimizer, law, n_workers, seconds=total / n_workers, is_end_told=True).run()
    told = sum(s.trial.cost_seconds for s in done.stretches)
    dearest = max(law.rate(c) for c in optimizer.history.asked)
    assert told <= total + n_workers * optimizer.quantum * dearest


@pytest.mark.slow
def test_models_that_are_fitted_at_once_are_asked_for_in_full() -> None:
    optimizer = bapi(mixed_nets(), n_first=6)
    Simulation(optimizer, PowerLaws(optimizer), trials=14).run()
    fitted = [t for t in optimizer.history if t.query.configuration.path[-1] == "knn"]
    assert fitted
    assert all(t.query.epochs is None for t in fitted)
    assert len({t.query.configuration for t in fitted}) == len(fitted)
    nets_asked = [t for t in optimizer.history if t.query.configuration.path[-1] == "net"]
    assert any(t.query.epochs is not None for t in nets_asked)


@pytest.mark.slow
def test_a_diverging_training_ends_with_its_best_epoch_and_is_not_resumed() -> None:
    optimizer = bapi(n_first=4)
    queries = study(optimizer, power, 12)
    query = optimizer.ask(Budget())
    while query.configuration in {q.configuration for q in queries}:
        tell(optimizer, len(optimizer.history) - 1, power(query.configuration))
        query = optimizer.ask(Budget())
    diverged = query.configuration
    tell(optimizer, len(optimizer.history) - 1, [30.0], trouble="no epoch 2 in fold 0: not finite")
    later = study(optimizer, power, 25)
    assert diverged not in {q.configuration for q in later}
    assert optimizer.decisions["ends"]["diverged"] == 1


@pytest.mark.slow
def test_a_lost_stretch_falls_back_to_the_epochs_told_and_can_be_run_again() -> None:
    optimizer = bapi(n_first=4)
    study(optimizer, power, 14)
    number, query = len(optimizer.history), optimizer.ask(Budget())
    while not optimizer.history.trials_of(query.configuration)[:-1]:  # until one is gone on with
        tell(optimizer, number, power(query.configuration))
        number, query = number + 1, optimizer.ask(Budget())
    told = optimizer.history.trials_of(query.configuration)[-2]
    assert told.query.epochs is not None
    optimizer.tell(crashed(number, query.configuration, query.epochs))
    curve = optimizer.curves[query.configuration]
    assert (curve.done, curve.is_closed) == (told.query.epochs, True)
    assert optimizer.incumbent is not None
    study(optimizer, power, 3)
    optimizer.retry(number)
    assert query.configuration not in {optimizer.ask(Budget()).configuration for _ in range(3)}
    tell(optimizer, number, power(query.configuration))
    curve = optimizer.curves[query.configuration]
    assert curve.done == query.epochs
    assert not curve.has_failed


def test_a_space_smaller_than_the_start_is_trained_to_the_end() -> None:
    models = Algorithm(id="net", estimator="x.Net"), Algorithm(id="knn", estimator="x.Knn")
    optimizer = bapi(Space("two", (Step("model", models),)))

    def outcome(query: Query) -> Evaluation:
        losses = tuple(50.0 - epoch for epoch in range(query.epochs or T_MAX))
        if query.configuration.path == ("knn",):
            return Evaluation(60.0, cost_seconds=1.0)
        return Evaluation(losses[-1], cost_seconds=1.0, curve=losses)

    Simulation(optimizer, outcome).run()
    assert len(optimizer.history.asked) == 2
    assert len(optimizer.history.complete) == 2
    with pytest.raises(SpaceExhausted, match="space 'two'"):
        optimizer.ask(Budget())


def test_a_training_resumed_after_others_is_counted_as_thawed() -> None:
    optimizer = bapi(n_first=4)
    study(optimizer, power, 5)
    assert optimizer.decisions["thawed"] == 0
    left = Budget(trials_left=0)
    query = optimizer.ask(left)
    assert query.configuration in {t.query.configuration for t in list(optimizer.history)[:5]}
    assert optimizer.decisions["thawed"] == 1


class HalfFeasible(PowerLaws):
    """Power laws of which the better half violates a constraint."""

    def __call__(self, query: Query) -> Evaluation:
        level = float(dict(query.configuration["model"].values)["level"])
        quantity = 2.0 if level < 0.45 else 0.5
        return replace(super().__call__(query), constraints={"quantity": quantity})


@pytest.mark.slow
def test_a_violating_configuration_is_neither_resumed_nor_planned_again() -> None:
    limited = replace(CURVES, constraints=(Constraint("quantity", 1.0),))
    optimizer = Bapi(nets(), 0, limited, n_first=9)
    Simulation(optimizer, HalfFeasible(optimizer), trials=24).run()
    history = optimizer.history
    violating = [t for t in history if history.violation(t) > 0]
    assert len({t.query.configuration for t in violating}) == len(violating)  # one look each
    planned = list(history)[len(history) // 2 :]
    assert np.mean([history.violation(t) > 0 for t in planned]) < 0.3  # by chance, 0.45
    assert optimizer.incumbent is not None
    assert history.violation(optimizer.incumbent) <= 0


def test_where_nothing_is_to_be_gained_the_best_is_trained_to_its_end_all_the_same() -> None:
    optimizer = bapi(n_first=4)

    def outcome(query: Query) -> Evaluation:
        losses = (50.0,) * (query.epochs or T_MAX)
        return Evaluation(50.0, cost_seconds=1.0, curve=losses, best_epoch=1)

    Simulation(optimizer, outcome, trials=6).run()
    assert len(optimizer.history.complete) == 1
