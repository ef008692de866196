"""ESMBO: turns of bootstrap histories, a joint Gaussian process, and the ensemble."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from worlds import ask_and_tell, counted_space, mixed_space, recorded, told

from prefect_tune.optimizers import (
    Asked,
    Budget,
    Constraint,
    Evaluation,
    Event,
    Jopt,
    Objective,
    Query,
    Told,
    Trial,
    replay,
)
from prefect_tune.optimizers.method import ordinal
from prefect_tune.optimizers.methods.esmbo import Esmbo
from prefect_tune.optimizers.models.gaussian_process import GaussianProcess
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.trials.objective import Bootstraps

N = 4
Risks = tuple[float, ...]


def depth_of(query: Query) -> float:
    return float(dict(query.configuration["model"].values).get("depth", 25)) / 50


def risks_of(query: Query) -> Risks:
    """Return risks such that each history has a different optimum."""
    return tuple(20.0 + 40 * (depth_of(query) - (j + 0.5) / N) ** 2 for j in range(N))


def esmbo(objective: Objective | None = None, **options: Any) -> Esmbo:
    return Esmbo(mixed_space(), 0, objective, **{"n_histories": N, **options})


def with_risks(number: int, query: Query, risks: Risks, **measured: float) -> Trial:
    loss = float(np.mean(risks))
    outcome = Evaluation(loss, cost_seconds=1.0, risks=risks, constraints=measured)
    return Trial(number, query).started().completed(outcome)


def tell(optimizer: Esmbo, risks: Risks | None = None, **measured: float) -> Query:
    """Ask, and tell the given risks or, by default, the risks of the query."""
    query, number = optimizer.ask(Budget()), len(optimizer.history) - 1
    optimizer.tell(with_risks(number, query, risks or risks_of(query), **measured))
    return query


@pytest.mark.slow
def test_single_history_of_all_examples_equals_plain_search() -> None:
    one, plain = esmbo(n_histories=1), Jopt(mixed_space(), 0, n_startup=5)
    for number in range(25):
        query = one.ask(Budget())
        assert query == plain.ask(Budget())
        loss = 20.0 + 30 * (depth_of(query) - 0.4) ** 2 + len(query.configuration.path[0])
        trial = told(number, query, None if number % 7 == 3 else loss)
        plain.tell(trial)
        if trial.evaluation is not None:
            trial = replace(trial, evaluation=replace(trial.evaluation, risks=(loss,)))
        one.tell(trial)
    losses = {t.number: t.loss for t in one.history.complete}
    best = [number for number, loss in losses.items() if loss == min(losses.values())]
    assert one.weights == {number: 1 / len(best) for number in best}


def test_histories_take_turns_and_improve_independently(monkeypatch) -> None:
    optimizer = esmbo()
    for _ in range(8):
        tell(optimizer)
    asked: list[int] = []
    of_targets = GaussianProcess.of_targets

    def noted(self: GaussianProcess, numbers: list[int]) -> GaussianProcess:
        asked.extend(numbers)
        return of_targets(self, numbers)

    monkeypatch.setattr(GaussianProcess, "of_targets", noted)
    queries = [tell(optimizer) for _ in range(12)]
    assert asked == [0, 1, 2, 3] * 3
    for number, query in list(zip(asked, queries, strict=True))[4:]:
        assert abs(depth_of(query) - (number + 0.5) / N) < 0.4


def test_paper_variant_fits_a_kernel_to_the_next_history_and_bootstraps_all_rows() -> None:
    optimizer = esmbo(variant="paper")
    assert (optimizer.bootstraps, esmbo().bootstraps) == (Bootstraps(N, 1.0), Bootstraps(N, 0.5))
    for _ in range(8):
        tell(optimizer)
    for number in range(8, 11):
        inputs, before = optimizer._search.inputs, optimizer.history.complete
        risks = [trial.evaluation.risks[number % N] for trial in before if trial.evaluation]
        observed = inputs.of(inputs.encode(trial.query.configuration for trial in before))
        rng = np.random.default_rng(np.random.SeedSequence(0, spawn_key=(number,)))
        kernel, targets = inputs.kernel, np.array(risks)
        alone = GaussianProcess.fit(kernel, observed, targets, rng=rng, n_restarts=1)
        tell(optimizer)
        assert optimizer.memo["theta"] == pytest.approx(alone.theta, abs=1e-6)
        assert f"in the {ordinal(number % N + 1)} of 4 bootstraps" in optimizer.reason.text


def test_weights_count_the_histories_won_by_each_feasible_trial() -> None:
    optimizer = esmbo()
    for risks in ((1.0, 5.0, 5.0, 2.0), (4.0, 1.0, 5.0, 2.0), (2.0, 2.0, 4.5, 3.0), (9.0,) * 4):
        tell(optimizer, risks)
    assert optimizer.weights == {0: 0.375, 1: 0.375, 2: 0.25}
    assert optimizer.decisions["effective"] == pytest.approx(1 / 0.34375)
    optimizer = esmbo(Objective(constraints=(Constraint("quantity", 1.0),)))
    tell(optimizer, (1.0,) * N, quantity=2.0)
    tell(optimizer, (2.0,) * N, quantity=0.5)
    ask_and_tell(optimizer, lambda _: None, 1)
    assert optimizer.weights == {1: 1.0}


def test_failed_trials_get_the_worst_risks_and_the_loss_replaces_missing_risks() -> None:
    optimizer = esmbo()
    query = optimizer.ask(Budget())
    trials = [
        with_risks(0, query, (1.0, 9.0, 5.0, 5.0)),
        told(1, query, None),
        with_risks(2, query, (3.0, 2.0, 5.0, 6.0)),
    ]
    risks, _ = optimizer._targets(trials, np.array([5.0, 5.0, 4.0]))
    assert risks.tolist() == [[1.0, 9.0, 5.0, 5.0], [3.0, 9.0, 5.0, 6.0], [3.0, 2.0, 5.0, 6.0]]
    risks, _ = optimizer._targets(trials, np.array([5.0, 100.0, 4.0]))
    assert risks[1].tolist() == [98.0, 104.0, 100.0, 101.0]
    optimizer.history = recorded(told(0, query, 3.0), with_risks(1, query, (1.0, 9.0, 5.0, 5.0)))
    risks, _ = optimizer._targets(list(optimizer.history), np.array([3.0, 5.0]))
    assert risks.tolist() == [[-1.0, 7.0, 3.0, 3.0], [1.0, 9.0, 5.0, 5.0]]
    assert optimizer.weights == {0: 1.0}  # better by two points in each of them


def number_of(query: Query) -> float:
    return float(query.configuration["step0"].values[0][1])


def test_replay_with_pending_trials_refits_at_the_same_asks_as_the_original_study() -> None:
    space, rng = counted_space((2, 2)), np.random.default_rng(0)
    events: list[Event] = []
    for number in range(62):
        query = Query(sample_configuration(space, rng))
        events += [Asked(number, query, Budget()), Told(told(number, query, number_of(query)))]
    unbroken, resumed = Jopt(space, 0, Objective()), Jopt(space, 0, Objective())
    replay(unbroken, events)
    fitted = []
    for number in range(62, 72, 2):
        queries = []
        for k in (number, number + 1):
            queries.append(query := unbroken.ask(Budget()))
            fitted.append(unbroken.memo["fitted"])
            events.append(Asked(k, query, Budget(), json.loads(json.dumps(unbroken.memo))))
        for k, query in enumerate(queries, number):
            unbroken.tell(ended := told(k, query, number_of(query)))
            events.append(Told(ended))
    # The process is refitted after a tenth more observations.
    assert fitted == [62, 62, 62, 62, 62, 62, 62, 62, 70, 70]
    replay(resumed, events)
    assert resumed.ask(Budget()) == unbroken.ask(Budget())


def test_pending_query_is_not_proposed_again() -> None:
    apart = []
    for seed in range(6):
        optimizer = Jopt(counted_space((1,), 1), seed, Objective(), n_startup=6)
        ask_and_tell(optimizer, lambda query: 10 + 50 * (number_of(query) - 0.3) ** 2, 6)
        first, second = (number_of(optimizer.ask(Budget())) for _ in range(2))
        apart.append(abs(first - second))
    assert np.median(apart) > 0.005
