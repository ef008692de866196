"""Spaces: counts as in the papers, stable digests, and studies that already started."""

import hashlib
import json
from dataclasses import replace

import pytest

from prefect_tune.optimizers import Algorithm
from prefect_tune.optimizers.space.configuration import Configuration, default_choice
from prefect_tune.optimizers.space.space import Space, Step
from prefect_tune.optimizers.trials.objective import MANY_ROWS, Objective
from prefect_tune.tasks.catalogue import spaces
from prefect_tune.tasks.catalogue.modern import PORTFOLIOS, portfolio_of
from prefect_tune.tasks.catalogue.spaces import OPTIONAL, SPACES
from prefect_tune.tasks.fitting.recipe import MatrixSummary, recipe
from prefect_tune.tasks.problem import Problem, algorithm_ids

PINNED = {
    "small": (120, 120, 17, "43f8cf2543363549", "6fd1c6851e6af533"),
    "flash": (1456, 1456, 102, "bfa7cb03d6205f68", "a04f573325e64edd"),
    "healthcare": (2912, 2544, 104, "3fa9ccbbf04ef131", "e2b0a5a46dfd6d0f"),
    "regression": (728, 728, 98, "825a54f218569758", "3ff244cca75c16d2"),
    "admm": (108, 108, 37, "81db801fa37c9573", "fb4ad98a355e0d72"),
    "admm_large": (6776, 6776, 93, "22a892ec60a98479", "646fb211c7aca667"),
    "svm": (1, 1, 2, "a2283dc9a265abf2", "8d492486a5fa96cf"),
    "svr": (1, 1, 3, "2c4d0b3282fb46e9", "b97cb1e7be102d6a"),
    "random_forest": (1, 1, 3, "06e6cac45b1a2e21", "cdd9121f567fa462"),
    "gradient_boosting": (1, 1, 3, "570b303b5ad6d464", "1a665d473a882609"),
    "gradient_boosting_regressor": (1, 1, 3, "116dacc393d211cf", "a50c62480405ef3d"),
    "random_forest_regressor": (1, 1, 3, "5e7a0081fafa6e59", "04b3ca6fd9dcbad4"),
    "mlp": (1, 1, 5, "2a8a47557635d28e", "3324b4d328957829"),
    "modern": (2040, 1896, 55, "6b84e711e3e14dfe", "e7a3355fa90c50d0"),
    "modern_healthcare": (240, 198, 52, "53c6266b4598b616", "70fade7c1d2dff1d"),
    "events": (460, 380, 51, "4871c6e22ae17d91", "f2826158a9a6b8cd"),
    "modern_regression": (1308, 1236, 54, "b088cc50fd99bbf4", "b3f329e262d4e3df"),
}
"""Paths, paths that can run, hyperparameters (ADMM's 36 and 92 leave out that of the imputer).

Then digests: of the space, by which studies on disk name it, and of the effective values of its
algorithms, by which artifacts are found.
"""


DENSE = MatrixSummary(1000, 20, "dense", "float64", n_classes=3)
SPARSE = MatrixSummary(300, 5000, "sparse", "float64", 0.01, 0.0, n_classes=2)


def recipes_digest(name: str) -> str:
    """Return a digest of all default algorithms on dense and sparse data, without versions."""
    documents = []
    for step in SPACES[name].steps:
        for algorithm in step.algorithms:
            for summary in (DENSE, SPARSE) if algorithm.estimator else ():
                for balanced in (False, True):
                    made = recipe(algorithm, default_choice(algorithm), summary, balanced=balanced)
                    documents.append(replace(made, library="").to_json(7))
    return hashlib.sha256(json.dumps(documents, sort_keys=True).encode()).hexdigest()[:16]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["small", "modern", "events", *(pytest.param(n, marks=pytest.mark.full) for n in PINNED)],
)
def test_counts_and_digests_of_a_space_are_unchanged(name) -> None:
    space = SPACES[name]
    counts = (space.n_paths, space.n_feasible_paths, space.n_hyperparameters)
    found = (*counts, space.digest[:16], recipes_digest(name))
    assert found == PINNED[name], "see `A built-in algorithm` in CONTRIBUTING.md"


@pytest.mark.parametrize("name", ["modern", "modern_regression"])
def test_tables_of_many_rows_and_few_columns_have_a_portfolio_of_their_own(name) -> None:
    space, sizes = SPACES[name], Objective(n_rows=MANY_ROWS + 1, n_columns=20)
    few, many = portfolio_of(space), portfolio_of(space, sizes)
    entries = json.loads((PORTFOLIOS / f"{name}_large.json").read_text())
    assert [configuration.to_json() for configuration in many] == entries
    assert portfolio_of(space, replace(sizes, n_rows=MANY_ROWS)) == few != many
    assert set(portfolio_of(space, replace(sizes, n_columns=10_000))) == set(few)
    assert portfolio_of(SPACES["events"], sizes) == portfolio_of(SPACES["events"])


@pytest.mark.parametrize("name", ["modern", "modern_regression", "events"])
def test_portfolio_lies_in_the_space_with_and_without_optional_libraries(name) -> None:
    space = SPACES[name]
    for ending in ("", "_without_boosting"):
        entries = json.loads((PORTFOLIOS / f"{name}{ending}.json").read_text())
        assert [Configuration.from_json(entry, space).to_json() for entry in entries] == entries
    portfolio = portfolio_of(space)
    assert 16 <= len(portfolio) == len(set(portfolio)) <= 32
    models = {c["fit model"].algorithm for c in portfolio}
    assert len(models) >= 4
    kept = {
        s.name: {a.id for a in s.algorithms if OPTIONAL.keys().isdisjoint(a.requires)}
        for s in space.searched
    }
    plain = portfolio_of(space.restricted_to(kept))
    assert len(plain) == len(portfolio)
    assert "lightgbm" in {c["fit model"].algorithm for c in plain} <= kept["fit model"]
    assert models - kept["fit model"]
    assert portfolio_of(replace(SPACES["small"], name=name)) == []  # of a user


FLASH = spaces.space_named("flash")
PROBLEM = Problem("d", "s", "flash", FLASH.digest, "error", 0, algorithms=algorithm_ids(FLASH))
NEW = Algorithm(id="new", estimator="sklearn.naive_bayes.BernoulliNB")


def changed(step: str, *algorithms: Algorithm) -> Space:
    steps = [replace(s, algorithms=algorithms) if s.name == step else s for s in FLASH.steps]
    return replace(FLASH, steps=tuple(steps))


MODELS = FLASH.step("fit model").algorithms
GROWN = changed("fit model", NEW, *MODELS)


def test_growth_of_the_catalog_does_not_change_the_space_of_a_study(monkeypatch) -> None:
    monkeypatch.setitem(spaces.SPACES._known, "flash", GROWN)
    found = PROBLEM.find_space()
    assert GROWN.digest != found.digest == FLASH.digest
    assert list(found.paths()) == list(FLASH.paths())


@pytest.mark.parametrize(
    "space",
    [
        changed("fit model", replace(MODELS[0], fixed={"tol": 1}), *MODELS[1:]),
        changed("fit model", *MODELS[1:]),
        replace(FLASH, steps=(Step("more", (NEW, replace(NEW, id="b"))), *FLASH.steps)),
    ],
)
def test_changed_or_removed_algorithms_and_added_steps_change_the_digest_of_a_space(space) -> None:
    assert PROBLEM.as_started(space).digest != FLASH.digest
