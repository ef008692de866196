"""ESMBO: the histories of bootstraps in turn, one process for all, and the ensemble of them."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from worlds import counted_space, mixed_space, planted_loss, told

from prefect_tune.optimizers import (
    Asked,
    Budget,
    Constraint,
    Evaluation,
    Event,
    Jopt,
    Objective,
    Optimizer,
    Query,
    Told,
    Trial,
    make_optimizer,
    replay,
)
from prefect_tune.optimizers.methods.esmbo import Esmbo
from prefect_tune.optimizers.models.gaussian_process import GaussianProcess
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.trials.objective import Bootstraps

N = 4


def depth_of(query: Query) -> float:
    return float(dict(query.configuration["model"].values).get("depth", 25)) / 50


def loss_of(query: Query) -> float:
    return 20.0 + 30 * (depth_of(query) - 0.4) ** 2 + len(query.configuration.path[0])


def risks_of(query: Query, n: int = N) -> tuple[float, ...]:
    """Each history has its best elsewhere."""
    return tuple(20.0 + 40 * (depth_of(query) - (j + 0.5) / n) ** 2 for j in range(n))


def esmbo(seed: int = 0, objective: Objective | None = None, **options: Any) -> Esmbo:
    return Esmbo(mixed_space(), seed, objective, **{"n_histories": N, **options})


def ended(number: int, query: Query, risks: tuple[float, ...], **changes: Any) -> Trial:
    loss = float(np.mean(risks))
    outcome = Evaluation(loss, cost_seconds=1.0, risks=risks, **changes)
    return Trial(number, query).started().completed(outcome)


def study(optimizer: Esmbo, n: int) -> list[Query]:
    queries = []
    for _ in range(n):
        query = optimizer.ask(Budget())
        number = len(optimizer.history) - 1
        optimizer.tell(ended(number, query, risks_of(query, optimizer.options.n_histories)))
        queries.append(query)
    return queries


@pytest.mark.slow
def test_with_one_history_of_all_examples_it_is_plain_search_trial_by_trial() -> None:
    one = esmbo(n_histories=1)
    plain = Jopt(mixed_space(), 0, n_startup=5)
    for number in range(25):
        query, same = one.ask(Budget()), plain.ask(Budget())
        assert query == same
        fails = number % 7 == 3
        trial = told(number, query, None if fails else loss_of(query))
        plain.tell(trial)
        if trial.evaluation is not None:
            trial = replace(trial, evaluation=replace(trial.evaluation, risks=(trial.loss or 0.0,)))
        one.tell(trial)
    losses = {t.number: t.loss for t in one.history.complete}
    best = [number for number, loss in losses.items() if loss == min(losses.values())]
    assert one.weights == {number: 1 / len(best) for number in best}


def test_histories_take_turns_and_each_improves_on_its_own_best(monkeypatch) -> None:
    optimizer = esmbo()
    study(optimizer, 8)
    asked: list[int] = []
    of_target = GaussianProcess.of_target

    def noted(self: GaussianProcess, number: int) -> GaussianProcess:
        asked.append(number)
        return of_target(self, number)

    monkeypatch.setattr(GaussianProcess, "of_target", noted)
    queries = study(optimizer, 12)
    assert asked == [0, 1, 2, 3] * 3
    for number, query in list(zip(asked, queries, strict=True))[4:]:
        assert abs(depth_of(query) - (number + 0.5) / N) < 0.3


def test_weights_count_the_histories_in_which_a_trial_is_the_best() -> None:
    optimizer = esmbo()
    told_risks = [(1.0, 5.0, 5.0, 2.0), (4.0, 1.0, 5.0, 2.0), (2.0, 2.0, 4.5, 3.0), (9.0,) * 4]
    for number, risks in enumerate(told_risks):
        optimizer.tell(ended(number, optimizer.ask(Budget()), risks))
    assert optimizer.weights == {0: 0.375, 1: 0.375, 2: 0.25}
    assert optimizer.decisions["effective"] == pytest.approx(1 / 0.34375)


def test_what_failed_or_violates_has_no_weight() -> None:
    limited = Objective(constraints=(Constraint("quantity", 1.0),))
    optimizer = esmbo(objective=limited)
    best, second = (1.0,) * N, (2.0,) * N
    query = optimizer.ask(Budget())
    optimizer.tell(ended(0, query, best, constraints={"quantity": 2.0}))
    query = optimizer.ask(Budget())
    optimizer.tell(ended(1, query, second, constraints={"quantity": 0.5}))
    optimizer.tell(told(2, optimizer.ask(Budget()), None))
    assert optimizer.weights == {1: 1.0}


def test_failed_trials_are_as_bad_as_any_and_those_without_risks_as_their_loss() -> None:
    optimizer = esmbo()
    trials = [ended(0, optimizer.ask(Budget()), (1.0, 9.0, 5.0, 5.0))]
    trials.append(told(1, optimizer.ask(Budget()), None))
    trials.append(ended(2, optimizer.ask(Budget()), (3.0, 2.0, 5.0, 6.0)))
    risks, number = optimizer._targets(trials, np.array([5.0, 5.0, 4.0]))
    assert risks.tolist() == [[1.0, 9.0, 5.0, 5.0], [3.0, 9.0, 5.0, 6.0], [3.0, 2.0, 5.0, 6.0]]
    assert number == 3
    risks, _ = optimizer._targets(trials, np.array([5.0, 100.0, 4.0]))
    assert risks[1].tolist() == [98.0, 104.0, 100.0, 101.0]
    optimizer = esmbo()
    optimizer.tell(told(0, optimizer.ask(Budget()), 3.0))
    assert optimizer.weights == {0: 1.0}
    optimizer.tell(ended(1, optimizer.ask(Budget()), (1.0, 9.0, 5.0, 5.0)))  # a loss of 5
    risks, _ = optimizer._targets(list(optimizer.history), np.array([3.0, 5.0]))
    assert risks.tolist() == [[-1.0, 7.0, 3.0, 3.0], [1.0, 9.0, 5.0, 5.0]]
    assert optimizer.weights == {0: 1.0}  # better by two points in each of them


def test_random_configurations_equal_random_search_and_end_in_an_ensemble() -> None:
    ers = make_optimizer("ers", mixed_space(), 3, None, {"n_histories": N})
    assert ers.bootstraps == Bootstraps(N, 0.5) == esmbo().bootstraps
    plain: Optimizer = make_optimizer("random", mixed_space(), 3)
    for number in range(12):
        query = ers.ask(Budget())
        assert plain.ask(Budget()) == query
        ers.tell(ended(number, query, risks_of(query)))
    assert len(ers.weights) > 1
    assert sum(ers.weights.values()) == pytest.approx(1)


def test_with_many_observations_and_two_workers_replay_fits_when_the_unbroken_study_does() -> None:
    space, loss_of = counted_space((2, 2)), planted_loss((2, 2), 0)
    rng = np.random.default_rng(0)
    events: list[Event] = []
    for number in range(66):
        query = Query(sample_configuration(space, rng))
        events += [Asked(number, query, Budget()), Told(told(number, query, loss_of(query)))]
    unbroken = Jopt(space, 0, Objective())
    replay(unbroken, events)
    fitted, pending = [], []
    for number in range(66, 76):
        query = unbroken.ask(Budget())
        fitted.append(unbroken.memo["fitted"])
        events.append(Asked(number, query, Budget(), json.loads(json.dumps(unbroken.memo))))
        pending.append(Trial(number, query))
        if len(pending) == 2:
            for trial in pending:
                ended = told(trial.number, trial.query, loss_of(trial.query))
                unbroken.tell(ended)
                events.append(Told(ended))
            pending = []
    assert fitted == [66, 66, 66, 66, 70, 70, 70, 70, 74, 74]
    resumed = Jopt(space, 0, Objective())
    replay(resumed, events)
    assert resumed.ask(Budget()) == unbroken.ask(Budget())


def test_where_a_query_is_under_way_no_other_is_asked_for() -> None:
    space = counted_space((1,), 1)
    apart = []
    for seed in range(6):
        optimizer = Jopt(space, seed, Objective(), n_startup=6)
        for number in range(6):
            query = optimizer.ask(Budget())
            x = float(dict(query.configuration["step0"].values)["h0"])
            optimizer.tell(told(number, query, 10 + 50 * (x - 0.3) ** 2))
        pair = [optimizer.ask(Budget()).configuration["step0"].values[0][1] for _ in range(2)]
        apart.append(abs(float(pair[0]) - float(pair[1])))
    assert np.median(apart) > 0.005
