"""The spaces as the papers count them."""

import pytest
from ConfigSpace.hyperparameters import CategoricalHyperparameter

from prefect_tune.optimizers import Algorithm, UnknownName
from prefect_tune.tasks.catalogue.spaces import DEFAULT_SPACES, SPACES, space_named
from prefect_tune.tasks.fitting.memory_estimate import MEMORY_RULES
from prefect_tune.tasks.fitting.recipe import TRANSFORMS

TABLE_5 = {
    "rescale": {
        "none": (0, 0),
        "minmax": (0, 0),
        "standardize": (0, 0),
        "normalize": (0, 0),
    },
    "balance": {"none": (0, 0), "weighting": (0, 0)},
    "preprocess": {
        "extra_trees": (2, 3),
        "fast_ica": (3, 1),
        "agglomerate": (2, 1),
        "kernel_pca": (1, 6),
        "kitchen_sinks": (0, 2),
        "linear_svm": (0, 2),
        "none": (0, 0),
        "nystroem": (1, 8),
        "pca": (1, 1),
        "polynomial": (1, 2),
        "trees_embedding": (0, 4),
        "select_percentile": (1, 1),
        "select_univariate": (1, 2),
    },
    "fit model": {
        "ada_boost": (1, 3),
        "decision_tree": (1, 3),
        "extra_trees": (2, 3),
        "gaussian_nb": (0, 0),
        "gradient_boosting": (0, 6),
        "k_nearest": (2, 1),
        "linear_discriminant": (1, 3),
        "linear_svm": (0, 2),
        "kernel_svm": (2, 5),
        "multinomial_nb": (1, 1),
        "passive_aggressive": (1, 2),
        "quadratic_discriminant": (0, 1),
        "random_forest": (2, 3),
        "sgd": (4, 6),
    },
}
"""FLASH, Table 5: categorical and continuous (whole numbers included) hyperparameters."""

COUNTS = {
    "small": (120, 120, 17),
    "flash": (1456, 1456, 102),
    "healthcare": (2912, 2544, 104),
    "regression": (728, 728, 98),
    "admm": (108, 108, 37),
    "admm_large": (6776, 6776, 93),
    "svm": (1, 1, 2),
    "svr": (1, 1, 3),
    "random_forest": (1, 1, 3),
    "gradient_boosting": (1, 1, 3),
    "gradient_boosting_regressor": (1, 1, 3),
    "random_forest_regressor": (1, 1, 3),
    "mlp": (1, 1, 5),
    "modern": (2040, 1896, 53),
    "modern_healthcare": (240, 192, 50),
    "modern_regression": (1308, 1236, 52),
}
"""Paths, paths that can run, hyperparameters. ADMM's 36 and 92 leave out that of the imputer."""


def kinds(algorithm: Algorithm) -> tuple[int, int]:
    hyperparameters = algorithm.hyperparameters.values()
    categorical = sum(isinstance(h, CategoricalHyperparameter) for h in hyperparameters)
    return categorical, len(hyperparameters) - categorical


def test_every_row_of_flash_is_that_of_table_5() -> None:
    rows = {s.name: {a.id: kinds(a) for a in s.algorithms} for s in SPACES["flash"].searched}
    assert rows == TABLE_5
    assert [list(step) for step in rows.values()] == [list(step) for step in TABLE_5.values()]


def test_totals_of_flash() -> None:
    rows = [row for step in TABLE_5.values() for row in step.values()]
    assert len(rows) == 33
    assert [sum(column) for column in zip(*rows, strict=True)] == [30, 72]


@pytest.mark.parametrize("name", SPACES)
def test_counts_of_the_spaces(name) -> None:
    space = SPACES[name]
    assert (space.n_paths, space.n_feasible_paths, space.n_hyperparameters) == COUNTS[name]


def test_healthcare_is_flash_behind_two_steps() -> None:
    construct, densify, *rest = SPACES["healthcare"].steps
    assert rest == list(SPACES["flash"].searched)
    assert (construct.algorithms[0].n_hyperparameters, len(densify.algorithms)) == (2, 2)


def test_what_is_kept_sparse_never_meets_a_dense_only_algorithm() -> None:
    paths = [path for path in SPACES["healthcare"].paths() if path[1] == "keep_sparse"]
    assert len(paths) == 8 * (13 * 14 - 2 * 14 - 6 * 3)
    assert not {path[4] for path in paths} & {"fast_ica", "agglomerate"}
    kept = {"none", "polynomial", "linear_svm", "extra_trees"}
    dense_only = {"gaussian_nb", "linear_discriminant", "quadratic_discriminant"}
    assert not [path for path in paths if path[4] in kept and path[5] in dense_only]


def test_every_rule_that_an_algorithm_names_exists() -> None:
    steps = [step for space in SPACES.values() for step in space.steps]
    algorithms = [algorithm for step in steps for algorithm in step.algorithms]
    assert {rule for a in algorithms for rule in a.transforms.values()} == set(TRANSFORMS)
    assert {a.memory for a in algorithms if a.memory} == set(MEMORY_RULES)


def test_defaults_fit_what_they_are_for() -> None:
    for (data, target), name in DEFAULT_SPACES.items():
        assert (SPACES[name].data, SPACES[name].target) == (data, target)


def test_an_unknown_space_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'healthcare'"):
        space_named("healthcar")
