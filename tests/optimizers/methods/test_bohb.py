"""BOHB: the rung used for modeling, and the densities of good and bad configurations."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import truncnorm
from worlds import counted_space, mixed_space, told

from prefect_tune.optimizers import (
    Bohb,
    Budget,
    Choice,
    Configuration,
    Constraint,
    Evaluation,
    Objective,
    Prior,
    PriorTrial,
    Query,
    Trial,
)
from prefect_tune.optimizers.methods import bohb
from prefect_tune.optimizers.methods.bohb import KernelDensity
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.space.vectors import Candidates, CandidateSpace

OBJECTIVE = Objective(epochs=9, iterative=frozenset({"a0"}))


def make(objective: Objective = OBJECTIVE) -> Bohb:
    """Return BOHB on one algorithm with two numbers; a rung has a model from 5 results on."""
    return Bohb(counted_space((1,), 2), 0, objective)


def seen(optimizer: Bohb, losses: list[float | None], *, epochs: int | None, seed: int = 0) -> None:
    """Record runs of random configurations as if they had been proposed and evaluated."""
    rng = np.random.default_rng(seed)
    for loss in losses:
        number = len(optimizer.history)
        query = Query(sample_configuration(optimizer.space, rng), epochs=epochs)
        optimizer.restore(number, query, None)
        optimizer.tell(told(number, query, loss))


def numbers(trials: list[Trial]) -> list[int]:
    return [t.number for t in trials]


def modeled(optimizer: Bohb) -> tuple[list[Trial], list[Trial]]:
    """Return the good and the bad results of the only ladder."""
    (ladder,) = optimizer.ladders.values()
    return optimizer.modeled(ladder)


def test_model_uses_the_highest_rung_with_enough_results() -> None:
    optimizer = make()
    seen(optimizer, [float(i) for i in range(8)], epochs=1)
    seen(optimizer, [float(i) for i in range(4)], epochs=3, seed=1)
    assert numbers(modeled(optimizer)[0]) == [0, 1, 2]
    seen(optimizer, [0.5], epochs=3, seed=2)
    assert numbers(modeled(optimizer)[0]) == [8, 12, 9]
    assert numbers(modeled(optimizer)[1]) == [10, 11]
    optimizer = make()
    for epochs in (1, 3, None):
        seen(optimizer, [1.0] * 4, epochs=epochs, seed=epochs or 9)
    assert modeled(optimizer) is None
    # A choice of two algorithms with two numbers each has three dimensions.
    both = frozenset({"a0", "a1"})
    optimizer = Bohb(counted_space((2,), 2), 0, Objective(epochs=9, iterative=both))
    seen(optimizer, [float(i) for i in range(6)], epochs=1)
    assert numbers(modeled(optimizer)[0]) == [0, 1, 2, 3]


def test_failures_and_violations_count_as_bad_and_only_the_best_share_as_good() -> None:
    optimizer = make()
    seen(optimizer, [None, None, 1.0, 2.0, 3.0, 4.0], epochs=1)
    assert modeled(optimizer) is None
    seen(optimizer, [5.0], epochs=1, seed=1)
    good, bad = modeled(optimizer)
    assert numbers(good) == [2, 3, 4]
    assert numbers(bad) == [5, 6, 0, 1]
    optimizer = make()
    seen(optimizer, [float(i) for i in range(40)], epochs=1)
    assert numbers(modeled(optimizer)[0]) == list(range(6))
    optimizer = make(replace(OBJECTIVE, constraints=(Constraint("latency_us", 50.0),)))
    for number, latency in enumerate((90.0, 40.0, 80.0, 40.0, 40.0)):
        query = optimizer.ask(Budget())
        outcome = Evaluation(1.0 + number, constraints={"latency_us": latency})
        optimizer.tell(Trial(number, query).started().completed(outcome))
    assert numbers(modeled(optimizer)[0]) == [1, 3, 4]


def test_older_results_count_as_feasible() -> None:
    optimizer = make(replace(OBJECTIVE, constraints=(Constraint("size", 50.0),)))
    drawn = [sample_configuration(optimizer.space, np.random.default_rng(i)) for i in range(21)]
    optimizer.begin_after(Prior(tuple(PriorTrial(c, float(i)) for i, c in enumerate(drawn[:20]))))
    optimizer.restore(0, query := Query(drawn[20]), None)
    outcome = Evaluation(99.0, constraints={"size": 40.0})
    optimizer.tell(Trial(0, query).started().completed(outcome))
    good, bad = modeled(optimizer)
    assert (len(good), bad[-1].number) == (3, 0)


def test_densities_of_a_fidelity_contain_models_of_the_ladder_only() -> None:
    """Models with epochs and models without epochs have full evaluations alone in common."""
    optimizer = Bohb(counted_space((2,), 2), 0, OBJECTIVE)
    seen(optimizer, [float(i) for i in range(24)], epochs=None)
    for fidelity, model in (("epochs", "a0"), ("subset", "a1")):
        good, bad = optimizer.modeled(optimizer.ladders[fidelity])
        assert {t.query.configuration.path for t in (*good, *bad)} == {(model,)}


def first_numbers(values: list[float], losses: list[float], random_share: float) -> np.ndarray:
    """Return the first number of each of 30 configurations proposed after losses at `values`."""
    optimizer = make()
    rng = np.random.default_rng(3)
    for number, (value, loss) in enumerate(zip(values, losses, strict=True)):
        choice = Choice.of("a0", {"h0": value, "h1": float(rng.random())})
        query = Query(Configuration((("step0", choice),)), epochs=1)
        optimizer.restore(number, query, None)
        optimizer.tell(told(number, query, loss))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bohb, "RANDOM_SHARE", random_share)
        queries = [optimizer.ask(Budget()) for _ in range(60)]
    known = {optimizer.history[number].query.configuration for number in range(len(values))}
    new = [q.configuration for q in queries if q.configuration not in known]
    return np.array([dict(c["step0"].values)["h0"] for c in new[:30]], dtype=float)


def test_new_configurations_resemble_good_configurations_except_a_random_share() -> None:
    values = list(np.random.default_rng(0).random(40))
    losses = [10 * (1 - value) for value in values]
    modeled, mixed, random = (first_numbers(values, losses, s) for s in (0.0, 1 / 3, 1.0))
    assert np.mean(modeled < 0.6) <= 0.1
    assert 0.1 < np.mean(mixed < 0.6) < 0.5
    assert np.mean(random < 0.6) > 0.4


def test_region_with_fewer_bad_results_wins_among_equally_good_regions() -> None:
    near = list(np.linspace(0.18, 0.22, 20))
    values = [*near[:3], 0.78, 0.8, 0.82, *near[3:], *np.linspace(0.02, 0.18, 17)]
    taken = first_numbers(values, [1.0] * 6 + [5.0] * 34, 0.0)
    assert np.mean(taken > 0.6) > 0.8


def one_number(*units: float) -> tuple[CandidateSpace, Candidates]:
    space = CandidateSpace(counted_space((1,)))
    return space, at(*units)


def at(*units: float) -> Candidates:
    return Candidates(np.zeros((len(units), 1), dtype=np.intp), np.array(units)[:, None])


def test_density_of_one_number_has_truncated_normal_kernels_and_the_prior() -> None:
    space, points = one_number(0.1, 0.3, 0.8)
    density = KernelDensity.fit(space, points, 1)
    width = 3 ** (-1 / 5) * np.std([0.1, 0.3, 0.8])
    x = np.array([0.0, 0.2, 0.9])
    kernels = [truncnorm(-c / width, (1 - c) / width, c, width).pdf(x) for c in (0.1, 0.3, 0.8)]
    expected = (np.sum(kernels, axis=0) + 1) / 4
    assert np.exp(density.log_density(at(*x))) == pytest.approx(expected)


def test_inactive_hyperparameters_do_not_change_the_density() -> None:
    space = CandidateSpace(mixed_space())
    rng = np.random.default_rng(1)
    points = space.encode(sample_configuration(mixed_space(), rng) for _ in range(12))
    density = KernelDensity.fit(space, points, 4)
    drawn = space.sample(50, rng)
    other = np.where(space.active(drawn), drawn.units, rng.random(drawn.units.shape))
    moved = Candidates(drawn.algorithms, other)
    assert density.log_density(moved) == pytest.approx(density.log_density(drawn))


def test_unseen_algorithm_has_the_probability_of_one_extra_observation() -> None:
    space = CandidateSpace(counted_space((2,), 0))
    points = Candidates(np.zeros((3, 1), dtype=np.intp), np.empty((3, 0)))
    density = KernelDensity.fit(space, points, 1)
    leaving = 3 ** (-1 / 5) * (1 - (3 / 4) ** 2 - (1 / 4) ** 2)
    other = Candidates(np.ones((1, 1), dtype=np.intp), np.empty((1, 0)))
    assert np.exp(density.log_density(other)) == pytest.approx((3 * leaving + 1) / 4)


def test_wider_kernels_draw_farther_away_and_change_algorithms_more_often() -> None:
    space, points = one_number(0.45, 0.5, 0.55)
    density = KernelDensity.fit(space, points, 1)
    near, far = (
        np.std(density.sample(2_000, widening, np.random.default_rng(0)).units)
        for widening in (1.0, 3.0)
    )
    assert far > 1.1 * near
    space = CandidateSpace(counted_space((4,)))
    points = Candidates(np.zeros((20, 1), dtype=np.intp), np.full((20, 4), 0.3))
    density = KernelDensity.fit(space, points, 2)
    near, far = (
        np.mean(density.sample(4_000, widening, np.random.default_rng(0)).algorithms != 0)
        for widening in (1.0, 5.0)
    )
    assert far > 2 * near
