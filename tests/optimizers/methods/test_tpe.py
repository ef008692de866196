"""TPE: what Optuna is told, and what it draws."""

import logging
from typing import Any

import numpy as np
import optuna
import pytest
from ConfigSpace import Categorical, ConfigurationSpace, Constant, EqualsCondition, Float
from flash_worlds import counted_space
from worlds import BAYES, algorithm, mixed_space, told, told_history

from prefect_tune.optimizers import (
    Budget,
    Configuration,
    History,
    Objective,
    Query,
    Space,
    Step,
    Tpe,
    Trial,
)
from prefect_tune.optimizers.methods.declarations import TpeOptions
from prefect_tune.optimizers.methods.tpe import Dimensions, ParzenSearch, to_value
from prefect_tune.optimizers.space.sampling import new_configuration, sample_configuration


def search_of(space: Space, **options: Any) -> ParzenSearch:
    return ParzenSearch(space, Objective(chance=50.0), TpeOptions(**options))


def proposals(search: ParzenSearch, history: History, n: int = 40) -> list[Configuration]:
    return [search.propose(history, np.random.default_rng(i))[0].configuration for i in range(n)]


def line(*numbers: float) -> Query:
    """A query of a space of one path, by its numbers."""
    named = {f"h{i}": x for i, x in enumerate(numbers)}
    return Query(Configuration.of(counted_space((1,), len(numbers)), ("a0",), [named]))


def numbers_of(configurations: list[Configuration]) -> np.ndarray:
    return np.array([[v for _, v in c["step0"].values] for c in configurations])


def test_two_trials_of_one_configuration_are_two_observations() -> None:
    space = mixed_space()
    query = Query(sample_configuration(space, np.random.default_rng(0)))
    history = told_history([(query, 1.0), (query, 90.0)])
    search = search_of(space)
    for _ in range(2):
        seen = search._study(history).get_trials()
        assert [(t.number, t.value) for t in seen] == [(0, 1.0), (1, 90.0)]


def test_of_many_trials_the_best_quarter_and_the_last_are_known(monkeypatch) -> None:
    history, known = told_history((line(n / 50), float(n)) for n in range(50)), []
    search = search_of(counted_space((1,), 1), n_known=20)
    study_of = search._study

    def noted(known_now: History) -> Any:
        known.append([t.number for t in known_now])
        return study_of(known_now)

    monkeypatch.setattr(search, "_study", noted)
    search.propose(history, np.random.default_rng(0))
    assert known == [[*range(5), *range(35, 50)]]


def test_the_prior_is_drawn_from_until_so_many_have_ended() -> None:
    space, history = mixed_space(), History()
    search = search_of(space, n_startup=3)
    for number, loss in enumerate((3.0, None, 5.0)):
        prior = new_configuration(space, history.asked, np.random.default_rng(9))
        assert search.propose(history, np.random.default_rng(9))[0].configuration == prior
        history.record(told(number, Query(prior), loss))
    prior = new_configuration(space, history.asked, np.random.default_rng(9))
    assert search.propose(history, np.random.default_rng(9))[0].configuration != prior


def test_proposals_are_drawn_from_where_losses_were_small() -> None:
    history = told_history((line(x), abs(x - 0.3)) for x in np.linspace(0.01, 0.99, 40))
    found = numbers_of(proposals(search_of(counted_space((1,), 1)), history))
    assert np.mean(abs(found - 0.3) < 0.15) > 0.8


def test_pending_trials_are_among_the_bad_ones_until_they_end() -> None:
    places = np.random.default_rng(0).random(40)
    history = told_history((line(x), abs(x - 0.3)) for x in places)
    search = search_of(counted_space((1,), 1))
    before = numbers_of(proposals(search, history))
    for number in range(10):
        history.record(Trial(40 + number, line(0.28 + 0.004 * number)))
    after = numbers_of(proposals(search, history))
    assert np.abs(after - 0.3).mean() > 2 * np.abs(before - 0.3).mean()
    history, search = History(), search_of(counted_space((1,), 1))
    history.record(told(0, line(0.1), 7.0))
    history.record(Trial(1, line(0.2)))
    pending = search._study(history).get_trials()[1]
    assert (pending.value, pending.state.is_finished()) == (None, False)
    history.record(told(1, line(0.2), 3.0))
    ended = search._study(history).get_trials()[1]
    assert (ended.value, ended.state.is_finished()) == (3.0, True)


@pytest.mark.parametrize(("rule", "value"), [("worst", 8.0), ("chance", 50.0), ("bound", 100.0)])
def test_failed_trials_have_the_loss_of_the_rule(rule: str, value: float) -> None:
    history = told_history([(line(0.0), 8.0), (line(0.1), None)])
    seen = search_of(counted_space((1,), 1), failure_cost=rule)._study(history).get_trials()
    assert [t.value for t in seen] == [8.0, value]


def in_mixed_corners(joint: str) -> float:
    """Share of proposals where one number is low and one high, and only equal ones are good."""
    history, rng = History(), np.random.default_rng(0)
    for number in range(200):
        x, y = (rng.random(2) < 0.5) * 0.6 + 0.2 + rng.normal(0, 0.05, 2)
        loss = 10.0 * ((x < 0.5) != (y < 0.5)) + rng.random()
        history.record(told(number, line(x, y), float(loss)))
    found = numbers_of(proposals(search_of(counted_space((1,), 2), joint=joint), history))
    return float(np.mean((found[:, 0] < 0.5) != (found[:, 1] < 0.5)))


@pytest.mark.slow
def test_groups_of_hyperparameters_have_a_density_together() -> None:
    assert in_mixed_corners("groups") < 0.1
    assert in_mixed_corners("choices") > 0.2


def matching(joint: str) -> float:
    """Share of proposals with two equal algorithms, where only these are good."""
    space, history, rng = counted_space((3, 3), 1), History(), np.random.default_rng(0)
    for number in range(60):
        query = Query(sample_configuration(space, rng))
        first, second = query.configuration.path
        history.record(told(number, query, 10.0 * (first != second) + rng.random()))
    found = proposals(search_of(space, joint=joint), history)
    return float(np.mean([len(set(c.path)) == 1 for c in found]))


@pytest.mark.slow
def test_the_choices_of_all_steps_have_a_density_together() -> None:
    assert matching("choices") > 0.9
    assert matching("groups") > 0.9
    assert matching("nothing") < 0.9


@pytest.mark.slow
def test_so_many_candidates_are_compared() -> None:
    """Of many candidates the best has the larger share of good trials around it."""
    places = np.random.default_rng(0).random(100)
    history = told_history((line(x), min(abs(x - 0.3), 0.2)) for x in places)
    space = counted_space((1,), 1)
    few, many = (numbers_of(proposals(search_of(space, n_candidates=n), history)) for n in (1, 100))
    assert np.std(many) < 0.5 * np.std(few)


def test_of_trials_outside_a_part_the_inside_is_used() -> None:
    whole, history, rng = counted_space((2, 2), 1), History(), np.random.default_rng(0)
    for number in range(40):
        x = float(rng.random())
        values = [{"h0": 0.5}, {"h0": x}]
        configuration = Configuration.of(whole, ("a1", "a0"), values)
        history.record(told(number, Query(configuration), abs(x - 0.3)))
    part = whole.restricted_to({"step0": ["a0"], "step1": ["a0"]})
    found = proposals(search_of(part), history)
    assert {c.path for c in found} == {("a0", "a0")}
    assert np.mean([abs(c["step1"].values[0][1] - 0.3) < 0.15 for c in found]) > 0.7


def conditional_space() -> Space:
    """One algorithm: two numbers always, two of one kernel, one of the other, and a constant."""
    names = ["C", "tol", "degree", "coef0", "gamma"]
    values = ConfigurationSpace(
        space=[Categorical("kernel", ["rbf", "poly"]), Constant("fixed", 3)]
        + [Float(name, (0.0, 1.0)) for name in names]
    )
    for name, kernel in (("degree", "poly"), ("coef0", "poly"), ("gamma", "rbf")):
        values.add(EqualsCondition(values[name], values["kernel"], kernel))
    return Space("conditional", (Step("model", (algorithm("svm", hyperparameters=values), BAYES)),))


def test_hyperparameters_that_are_active_together_are_a_group() -> None:
    dimensions = Dimensions(conditional_space())
    groups = {
        name: {key.rpartition("/")[2] for key in dimensions.group("model", "svm", name) or ()}
        for name in ("C", "degree", "gamma", "fixed")
    }
    assert groups == {
        "C": {"C", "tol", "kernel"},
        "degree": {"degree", "coef0"},
        "gamma": {"gamma"},
        "fixed": set(),
    }


def test_what_lies_in_the_space_comes_back_as_it_was() -> None:
    space, rng = mixed_space(), np.random.default_rng(0)
    dimensions = Dimensions(space)
    for _ in range(50):
        configuration = sample_configuration(space, rng)
        params, distributions = dimensions.of(configuration)
        assert params.keys() == distributions.keys()
        for step, choice in configuration.choices:
            assert params[step] == choice.algorithm
            of_algorithm = space.step(step).algorithm(choice.algorithm).hyperparameters
            for name, value in choice.values:
                back = to_value(of_algorithm[name], params[f"{step}/{choice.algorithm}/{name}"])
                assert back == value or abs(back - value) < 1e-9 * abs(value)


def test_what_lies_outside_of_a_part_is_left_out() -> None:
    space = mixed_space()
    part = Dimensions(space.restricted_to({"scale": ["unit"], "model": ["tree", "bayes"]}))
    rng = np.random.default_rng(0)
    svm = sample_configuration(space, rng, ("unit", "svm"))
    assert part.of(svm)[0] == {"scale": "unit"}


def test_it_says_nothing_and_leaves_optunas_logger_as_it_was(capfd) -> None:
    before = optuna.logging.get_verbosity()
    optimizer = Tpe(mixed_space(), 0, Objective(), n_startup=2)
    for number in range(6):
        optimizer.tell(told(number, optimizer.ask(Budget()), float(number)))
    assert optuna.logging.get_verbosity() == before == logging.INFO
    assert capfd.readouterr() == ("", "")
