"""Successive halving and Hyperband: rungs, fidelities, brackets and incumbents."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ConfigSpace import Float
from contracts.optimizer import OBJECTIVE
from simulation import Outcome, Simulation, share_of, share_to_do
from worlds import NONE, UNIT, algorithm, mixed_space, told

from prefect_tune.optimizers import (
    Budget,
    Constraint,
    Evaluation,
    Halving,
    History,
    Hyperband,
    Query,
    Space,
    Step,
    Trial,
    make_optimizer,
)
from prefect_tune.optimizers.methods.declarations import BracketOptions
from prefect_tune.optimizers.methods.halving import (
    Brackets,
    choose_rungs,
    counted_levels,
    hyperband_plan,
    ranked,
)
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.sampling import new_configuration

ALIKE = replace(OBJECTIVE, iterative=frozenset({"svm", "bayes", "tree"}))
"""An objective for which all models of `mixed_space` train in epochs."""


def test_models_that_no_path_leads_to_have_no_ladder() -> None:
    pairs = {(("scale", scale), ("model", "net")) for scale in ("none", "unit")}
    models = algorithm("net"), algorithm("svm", Float("x", (0.0, 1.0)))
    steps = Step("scale", (NONE, UNIT)), Step("model", models)
    objective = replace(OBJECTIVE, iterative=frozenset({"net"}))
    optimizer = Hyperband(Space("s", steps, frozenset(pairs)), 0, objective)
    assert optimizer.ask(Budget()).subset == 1 / 27
    assert list(optimizer.ladders) == ["subset"]


def test_single_model_without_a_choice_trains_in_epochs() -> None:
    steps = Step("scale", (NONE, UNIT)), Step("model", (algorithm("tree"),), fixed=True)
    assert Halving(Space("s", steps), 0, OBJECTIVE).ask(Budget()).epochs == 1


def test_brackets_have_as_many_rungs_as_their_ladder() -> None:
    ladders = Halving(mixed_space(), 0, replace(OBJECTIVE, epochs=27, n_rows=250)).ladders
    first = {f: ladder.brackets.next_of(configurations(1)[0])[0] for f, ladder in ladders.items()}
    assert {f: bracket.size for f, bracket in first.items()} == {"epochs": 27, "subset": 1}


class OfThree(Halving):
    """Brackets of three configurations."""

    def plan(self, index: int, n_rungs: int) -> tuple[int, int]:  # noqa: ARG002
        return 3, 0


def tell(optimizer: Halving, number: int, loss: float, latency: float = 40.0) -> None:
    seen = Evaluation(loss, constraints={"latency_us": latency})
    optimizer.tell(Trial(number, optimizer.history[number].query).started().completed(seen))


@pytest.mark.parametrize(("latency", "answer"), [(40.0, 5), (60.0, 0)])
def test_complete_rung_is_promoted_first_and_the_incumbent_is_feasible(
    latency: float, answer: int
) -> None:
    bounded = replace(ALIKE, constraints=(Constraint("latency_us", 50.0),))
    optimizer = OfThree(mixed_space(), 0, bounded)
    queries = [optimizer.ask(Budget()) for _ in range(5)]
    assert len({q.configuration for q in queries}) == 5
    assert optimizer.incumbent is None
    for number in range(3):
        tell(optimizer, number, float(number))
    assert optimizer.incumbent == optimizer.history[0]
    assert optimizer.ask(Budget()).configuration == queries[0].configuration
    assert optimizer.ask(Budget()).configuration not in {q.configuration for q in queries}
    tell(optimizer, 5, 9.0, latency)
    assert optimizer.incumbent == optimizer.history[answer]


def test_workers_wait_only_at_the_end_of_the_trials() -> None:
    optimizer = Halving(mixed_space(), 0, OBJECTIVE)

    def outcome(query: Query) -> Outcome:
        loss = float(len(query.configuration.canonical) % 13)
        return loss, share_to_do(query, optimizer)

    study = Simulation(optimizer, outcome, n_workers=4, trials=40)
    for _ in study.ends():
        assert study.n_waits == 0 or study.budget.trials_left == 0
    assert study.n_waits > 0
    assert optimizer.history.complete
    assert not optimizer.history.pending


@pytest.mark.parametrize(
    ("total", "levels"),
    [(81, (1, 3, 9, 27, 81)), (50, (2, 6, 17, 50)), (3, (1, 3)), (2, (1, 2)), (10, (1, 3, 10))],
)
def test_fidelity_levels_match_the_table(total: int, levels: tuple[int, ...]) -> None:
    assert counted_levels(total, 3) == levels
    assert len(counted_levels(3**29, 3)) == 30


@pytest.mark.parametrize(
    ("facts", "fidelity", "levels"),
    [
        ({}, "epochs", (1, 3, 9)),
        ({"epochs": None}, "subset", (1 / 27, 1 / 9, 1 / 3, 1.0)),
        ({"iterative": frozenset(), "n_rows": 899}, "folds", (1, 3)),
        ({"epochs": None, "n_folds": 1, "n_rows": 600, "n_rarest": 250}, "subset", (1 / 3, 1.0)),
        ({"epochs": None, "n_rarest": 18}, "subset", (1 / 9, 1 / 3, 1.0)),
        ({"epochs": None, "n_rarest": 17}, "folds", (1, 3)),
        ({"epochs": None, "n_classes": 0, "n_rarest": 1}, "subset", (1 / 27, 1 / 9, 1 / 3, 1.0)),
    ],
)
def test_default_fidelity_is_the_best_available(facts, fidelity, levels) -> None:
    """Subsets need enough rows and two of each class; folds are better than two subsets."""
    rungs, _ = choose_rungs(mixed_space(), replace(OBJECTIVE, **facts), BracketOptions())
    assert (rungs.fidelity, rungs.levels) == (fidelity, levels)
    queries = [rungs.query(configurations(1)[0], k) for k in range(len(levels))]
    assert [q.is_full for q in queries] == [False] * (len(levels) - 1) + [True]
    assert [rungs.level(q) for q in queries] == list(levels)


@pytest.mark.parametrize(
    ("facts", "options", "message"),
    [
        ({"epochs": None}, {"fidelity": "epochs"}, "fidelity=folds"),
        ({"epochs": 1}, {"fidelity": "epochs"}, "it has 1"),
        ({"n_folds": 1}, {"fidelity": "folds"}, "fidelity=epochs"),
        ({"n_rows": 299}, {"fidelity": "subset"}, "299 training rows"),
        ({"n_rarest": 5}, {"fidelity": "subset"}, "has 5"),
        ({"n_classes": 300, "n_rows": 1_799}, {"fidelity": "subset"}, "needs 600 rows"),
        ({"epochs": None, "n_folds": 1, "n_rows": 80}, {}, "evaluates in full"),
    ],
)
def test_unavailable_fidelity_is_refused_with_the_alternatives(
    facts: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        choose_rungs(mixed_space(), replace(OBJECTIVE, **facts), BracketOptions(**options))


def configurations(n: int) -> list[Configuration]:
    drawn: list[Configuration] = []
    for seed in range(n):
        drawn.append(new_configuration(mixed_space(), set(drawn), np.random.default_rng(seed)))
    return drawn


class Study:
    """Brackets of two rungs with eta 3, and a history to ask and tell."""

    def __init__(self, *plans: tuple[int, int]) -> None:
        self.history = History()
        self.brackets = Brackets(3, 3, lambda i: plans[i])

    def ask(self, configuration: Configuration, epochs: int = 1) -> int:
        number = len(self.history)
        self.history.record(Trial(number, Query(configuration, epochs=epochs)))
        self.brackets.enter(self.history[number])
        return number

    def tell(self, **losses: float | None) -> None:
        for name, loss in losses.items():
            number = int(name[1:])
            self.history.record(told(number, self.history[number].query, loss))

    def begin(self, losses: Sequence[float | None], offset: int = 0) -> None:
        for configuration, loss in zip(configurations(12)[offset:], losses, strict=False):
            self.tell(**{f"t{self.ask(configuration)}": loss})

    def promoted(self) -> list[int]:
        """Ask for all promotions, and return the numbers of the promoted runs."""
        numbers = []
        while (run := self.brackets.promotion(self.history)) is not None:
            numbers.append(run.number)
            self.ask(run.query.configuration, 3)
        return numbers


def test_round_of_hyperband_matches_the_table() -> None:
    levels = counted_levels(81, 3)
    brackets = []
    for index in range(len(levels)):
        n, first = hyperband_plan(index, len(levels), 3)
        brackets.append([(max(1, n // 3**k), level) for k, level in enumerate(levels[first:])])
        assert hyperband_plan(len(levels) + index, len(levels), 3) == (n, first)
    assert brackets == [
        [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)],
        [(34, 3), (11, 9), (3, 27), (1, 81)],
        [(15, 9), (5, 27), (1, 81)],
        [(8, 27), (2, 81)],
        [(5, 81)],
    ]


@pytest.mark.parametrize(("n", "kept"), [(1, 1), (2, 1), (5, 1), (6, 2), (8, 2), (9, 3), (11, 3)])
def test_rung_promotes_one_in_eta_runs_and_at_least_one_run(n: int, kept: int) -> None:
    study = Study((n, 0))
    study.begin([float(i) for i in range(n)])
    assert study.promoted() == list(range(kept))


def test_rung_is_complete_once_all_runs_and_retries_are_told() -> None:
    study = Study((3, 0))
    for configuration in configurations(3):
        study.ask(configuration)
    study.tell(t0=1.0, t2=None)
    assert study.promoted() == []
    study.tell(t1=2.0)
    study.history.record(study.history[2].waiting())
    assert study.promoted() == []
    study.tell(t2=0.5)
    assert study.promoted() == [2]


@pytest.mark.parametrize("n_workers", [1, 3])
@pytest.mark.parametrize("method", ["halving", "hyperband", "bohb"])
def test_first_bracket_is_completed_although_the_budget_is_short(method, n_workers) -> None:
    """A full evaluation takes 27 seconds, and a whole bracket 108 worker-seconds."""
    optimizer = make_optimizer(method, mixed_space(), 0, replace(ALIKE, epochs=27), {})
    levels = optimizer.rungs.levels

    def outcome(query: Query) -> Outcome:
        return float(query.epochs or 27), 27.0 * share_to_do(query, optimizer)

    study = Simulation(optimizer, outcome, n_workers, seconds=50 / n_workers, is_end_told=True)
    study.run()
    assert {optimizer.rungs.level(t.query) for t in optimizer.history} == set(levels)
    assert optimizer.incumbent.query.is_full


def test_first_rung_ends_when_three_further_rungs_need_the_seconds_left() -> None:
    optimizer = Halving(mixed_space(), 0, replace(ALIKE, epochs=27))
    for number in range(3):
        optimizer.ask(Budget())
        tell(optimizer, number, float(number))
    budgets = (Budget(seconds_spent=10.0, seconds_left=left) for left in (31.0, 29.0))
    assert [optimizer.ask(budget).epochs for budget in budgets] == [1, 3]


def test_incomplete_bracket_promotes_only_when_no_more_runs_can_start() -> None:
    study = Study((9, 0), (9, 0))
    study.begin([3.0, 1.0, 2.0])
    assert study.brackets.promotion(study.history) is None
    closing = study.brackets.promotion(study.history, n_closing=1)
    assert closing.number == 1
    study.ask(closing.query.configuration, 3)
    study.begin([1.0], offset=3)  # more may be begun after all: in the next bracket
    places = study.brackets.places
    first, second = (places[t.query.configuration][0] for t in list(study.history)[::4])
    assert first is not second


def test_next_bracket_starts_at_the_planned_rung_and_older_brackets_promote_first() -> None:
    study, rungs = Study((2, 0), (1, 1), (1, 2)), []
    for configuration in configurations(4):
        rungs.append(study.brackets.next_of(configuration)[1])
        study.ask(configuration)
    assert rungs == [0, 0, 1, 2]
    study = Study((3, 0), (3, 0))
    for configuration in configurations(6):
        study.ask(configuration)
    study.tell(t3=1.0, t4=1.0, t5=1.0, t0=2.0, t1=2.0, t2=2.0)
    assert study.promoted() == [0, 3]


def test_infeasible_runs_rank_last() -> None:
    history = History((Constraint("latency_us", 50.0),))
    measured = [(1.0, 200.0), (2.0, 60.0), (9.0, 40.0), (8.0, 50.0), (0.0, None)]
    trials = []
    for number, (loss, latency) in enumerate(measured):
        seen = Evaluation(loss, constraints={} if latency is None else {"latency_us": latency})
        trials.append(Trial(number, Query(configurations(5)[number])).started().completed(seen))
    assert [t.number for t in ranked(trials, history)] == [3, 2, 1, 0, 4]


def test_hyperband_round_trains_each_epoch_once_and_matches_the_epochs_in_the_table() -> None:
    objective = replace(ALIKE, epochs=50)
    optimizer = Hyperband(mixed_space(), 0, objective)
    epochs = 0.0

    def outcome(query: Query) -> Outcome:
        nonlocal epochs
        epochs += 50 * share_to_do(query, optimizer)
        return float(len(query.configuration.canonical) % 13), 1.0

    Simulation(optimizer, outcome, trials=27 + 12 + 6 + 4).run()
    assert round(epochs) == 673
    at = [t.query.epochs for t in optimizer.history]
    assert [at.count(e) for e in (2, 6, 17, None)] == [27, 9 + 12, 3 + 4 + 6, 1 + 1 + 2 + 4]


@pytest.mark.parametrize("method", ["halving", "hyperband", "bohb"])
@pytest.mark.parametrize("best", ["net", "svm"])
@pytest.mark.parametrize(("n_rows", "least"), [(9_000, 1 / 27), (250, 1.0)])
def test_models_with_and_without_epochs_are_compared_by_full_evaluations_only(
    method: str, best: str, n_rows: int, least: float
) -> None:
    """Two of five models train in epochs; on few epochs, losses are far higher than on few rows."""
    numbers = Float("x", (0.0, 1.0)), Float("y", (0.0, 1.0))
    models = tuple(algorithm(name, *numbers) for name in ("net", "boost", "svm", "knn", "bayes"))
    objective = replace(OBJECTIVE, epochs=27, iterative=frozenset({"net", "boost"}), n_rows=n_rows)
    optimizer = make_optimizer(method, Space("s", (Step("model", models),)), 0, objective, {})

    def outcome(query: Query) -> Outcome:
        model, share = query.configuration["model"], share_to_do(query, optimizer)
        values = dict(model.values)
        loss = 20 + 30 * ((values["x"] - 0.7) ** 2 + (values["y"] - 0.3) ** 2)
        loss += 0 if (model.algorithm in objective.iterative) == (best == "net") else 10
        missing = 1 - share_of(query, objective)
        return loss + missing * (30 if query.epochs else 3), share

    Simulation(optimizer, outcome, seconds=12.0).run()
    by_epochs, others = (
        [t.query for t in optimizer.history if (t.query.configuration.path[0] in named) == told]
        for named, told in ((objective.iterative, True), (objective.iterative, False))
    )
    assert optimizer.incumbent.loss < 24
    assert {q.epochs for q in by_epochs} == {1, 3, 9, None}
    assert {q.epochs for q in others} == {None}
    assert min(q.subset for q in others) == least
    shares = [sum(share_of(q, objective) for q in asked) for asked in (by_epochs, others)]
    assert shares[0] / 2 == pytest.approx(shares[1] / 3, abs=1.0)
