"""TPE: trials passed to Optuna, and proposals."""

from typing import Any

import numpy as np
import optuna
import pytest
from ConfigSpace import Categorical
from worlds import counted_space, mixed_space, told, told_history

from prefect_tune.optimizers import (
    Budget,
    Configuration,
    History,
    Objective,
    Query,
    Space,
    Tpe,
    Trial,
)
from prefect_tune.optimizers.methods.tpe import Dimensions, to_value
from prefect_tune.optimizers.space.sampling import new_configuration, sample_configuration


def search_of(space: Space, history: History, **options: Any) -> Tpe:
    optimizer = Tpe(space, 0, Objective(chance=50.0), **options)
    optimizer.history = history
    return optimizer


def proposals(search: Tpe, n: int = 40) -> list[Configuration]:
    rngs = map(np.random.default_rng, range(n))
    return [search._propose(Budget(), rng).configuration for rng in rngs]


def line(*numbers: float) -> Query:
    """Return a query of a space with one path, by its numbers."""
    named = {f"h{i}": x for i, x in enumerate(numbers)}
    return Query(Configuration.of(counted_space((1,), len(numbers)), ("a0",), [named]))


def numbers_of(configurations: list[Configuration]) -> np.ndarray:
    return np.array([[v for _, v in c["step0"].values] for c in configurations])


def test_two_trials_of_one_configuration_are_two_observations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space, create, seen = mixed_space(), optuna.create_study, list[Any]()

    def noted(**given: Any) -> optuna.Study:
        seen.append([(t.number, t.value) for t in given["storage"].get_all_trials(0)])
        return create(**given)

    monkeypatch.setattr(optuna, "create_study", noted)
    query = Query(sample_configuration(space, np.random.default_rng(0)))
    search = search_of(space, told_history([(query, 1.0), (query, 90.0)]), n_startup=2)
    proposals(search, 2)
    assert seen == [[(0, 1.0), (1, 90.0)]] * 2


def test_configurations_are_drawn_from_the_prior_until_enough_trials_ended() -> None:
    space, history = mixed_space(), History()
    search = search_of(space, history, n_startup=3)
    for number, loss in enumerate((3.0, None, 5.0)):
        prior = new_configuration(space, history.asked, np.random.default_rng(9))
        assert search._propose(Budget(), np.random.default_rng(9)).configuration == prior
        history.record(told(number, Query(prior), loss))
    prior = new_configuration(space, history.asked, np.random.default_rng(9))
    assert search._propose(Budget(), np.random.default_rng(9)).configuration != prior


def test_proposals_lie_where_losses_are_small_and_pending_trials_count_as_bad() -> None:
    places = np.random.default_rng(0).random(40)
    history = told_history((line(x), abs(x - 0.3)) for x in places)
    search = search_of(counted_space((1,), 1), history)
    before = numbers_of(proposals(search))
    assert np.mean(abs(before - 0.3) < 0.15) > 0.8
    for number in range(10):
        history.record(Trial(40 + number, line(0.28 + 0.004 * number)))
    after = numbers_of(proposals(search))
    assert np.abs(after - 0.3).mean() > 2 * np.abs(before - 0.3).mean()


def test_hyperparameters_active_together_form_a_group() -> None:
    dimensions = Dimensions(mixed_space())
    for name, group in (("C", {"C", "kernel"}), ("poly.degree", {"poly.degree"})):
        keys = dimensions.groups[f"model/svm/{name}"]
        assert {key.rpartition("/")[2] for key in keys} == group


def test_configurations_survive_the_translation_to_optuna() -> None:
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
    letters = "abcdefghijklmnopqrstuv"
    assert "".join(to_value(Categorical("c", letters), k) for k in range(22)) == letters
