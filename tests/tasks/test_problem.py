"""A study keeps the space that it was started with, while the catalogue changes under it."""

from dataclasses import replace

import pytest

from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.space import Space, Step
from prefect_tune.tasks.catalogue import spaces
from prefect_tune.tasks.problem import Problem, algorithm_ids

FLASH = spaces.space_named("flash")
PROBLEM = Problem("d", "s", "flash", FLASH.digest, "error", 0, algorithms=algorithm_ids(FLASH))
NEW = Algorithm(id="new", estimator="sklearn.naive_bayes.BernoulliNB")


def changed(step: str, *algorithms: Algorithm) -> Space:
    steps = [replace(s, algorithms=algorithms) if s.name == step else s for s in FLASH.steps]
    return replace(FLASH, steps=tuple(steps))


MODELS = FLASH.step("fit model").algorithms
GROWN = changed("fit model", NEW, *MODELS)


def test_a_problem_survives_json() -> None:
    assert Problem.from_json(PROBLEM.to_json()) == PROBLEM


def test_a_study_keeps_its_space_when_the_catalogue_grows(monkeypatch) -> None:
    monkeypatch.setitem(spaces.SPACES, "flash", GROWN)
    found = PROBLEM.find_space()
    assert GROWN.digest != found.digest == FLASH.digest
    assert list(found.paths()) == list(FLASH.paths())


@pytest.mark.parametrize(
    "space",
    [
        changed("fit model", replace(MODELS[0], fixed={"tol": 1}), *MODELS[1:]),
        changed("fit model", *MODELS[1:]),
        changed("fit model", *MODELS[1:], MODELS[0]),
        changed("fit model", NEW),
        replace(FLASH, steps=(Step("more", (NEW, replace(NEW, id="b"))), *FLASH.steps)),
        replace(FLASH, steps=FLASH.steps[:2] + FLASH.steps[3:]),
    ],
    ids=["other", "fewer", "reordered", "all new", "a step more", "a step less"],
)
def test_a_space_that_changed_otherwise_shows_it_in_its_digest(space) -> None:
    assert PROBLEM.as_started(space).digest != FLASH.digest


def test_of_a_study_that_kept_no_algorithms_nothing_is_restricted() -> None:
    assert replace(PROBLEM, algorithms=()).as_started(GROWN) is GROWN
