from dataclasses import replace
from typing import Any

import pytest
from worlds import mixed_space

from prefect_tune.optimizers import Objective
from prefect_tune.optimizers.methods.declarations import BracketOptions
from prefect_tune.optimizers.methods.halving import choose_rungs

KNOWN = Objective(
    n_rows=9_000,
    n_held_out=4_500,
    n_classes=2,
    n_rarest=3_000,
    n_folds=3,
    epochs=81,
    iterative=frozenset({"svm"}),
)
FEW = {"n_rows": 600, "n_rarest": 250}


def levels(objective: Objective, **options: Any) -> tuple[str, tuple[float, ...]]:
    rungs, _ = choose_rungs(mixed_space(), objective, BracketOptions(**options))
    return rungs.fidelity, rungs.levels


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, ("epochs", (1, 3, 9, 27, 81))),
        ({"epochs": None}, ("subset", (1 / 27, 1 / 9, 1 / 3, 1.0))),
        ({"iterative": frozenset()}, ("subset", (1 / 27, 1 / 9, 1 / 3, 1.0))),
        ({"epochs": None, **FEW}, ("folds", (1, 3))),
        ({"epochs": None, "n_folds": 1, **FEW}, ("subset", (1 / 3, 1.0))),
    ],
)
def test_the_default_is_the_best_that_the_study_can_have(
    facts: dict[str, Any], expected: tuple[str, tuple[float, ...]]
) -> None:
    assert levels(replace(KNOWN, **facts)) == expected


@pytest.mark.parametrize(
    ("facts", "options", "message"),
    [
        ({"epochs": None}, {"fidelity": "epochs"}, "fidelity=subset or fidelity=folds would"),
        ({"epochs": 1}, {"fidelity": "epochs"}, "at least 2 epochs; it has 1"),
        (
            {"iterative": frozenset()},
            {"fidelity": "epochs"},
            "no model of space 'mixed' trains in epochs; fidelity=subset",
        ),
        ({"n_folds": 1}, {"fidelity": "folds"}, "2 folds, and the study has 1; fidelity=epochs or"),
        ({"n_rows": 299}, {"fidelity": "subset"}, "one in 3 of the 299 training rows of a fold"),
        ({"n_rarest": 5}, {"fidelity": "subset"}, r"rarest class \(which has 5\)"),
        (
            {"n_classes": 300, "n_rows": 1_799},
            {"fidelity": "subset"},
            "takes 600 rows",
        ),
        ({"epochs": None, "n_folds": 1, "n_rows": 80}, {}, "a method without fidelities would"),
    ],
)
def test_a_fidelity_that_the_study_cannot_have_is_refused_with_those_it_can(
    facts: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        levels(replace(KNOWN, **facts), **options)


@pytest.mark.parametrize(
    ("facts", "smallest"),
    [
        ({}, 1 / 81),
        ({"n_rows": 900}, 1 / 9),
        ({"n_rows": 899}, 1 / 3),
        ({"n_rarest": 18}, 1 / 9),
        ({"n_rarest": 17}, 1 / 3),
        ({"n_classes": 0, "n_rarest": 1}, 1 / 81),
        ({"n_rows": None, "n_rarest": None}, 1 / 3**9),
    ],
)
def test_the_smallest_subset_has_enough_rows_and_two_of_each_class(
    facts: dict[str, Any], smallest: float
) -> None:
    assert levels(replace(KNOWN, **facts), fidelity="subset", n_rungs=10)[1][0] == smallest


def test_fewer_rungs_and_another_eta_are_taken() -> None:
    assert levels(KNOWN, n_rungs=2)[1] == (27, 81)
    assert levels(KNOWN, eta=9)[1] == (1, 9, 81)
    assert levels(KNOWN, fidelity="subset", n_rungs=2)[1] == (1 / 3, 1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eta": 1}, "eta must be >= 2"),
        ({"n_rungs": 1}, "n_rungs must be >= 2"),
        ({"fidelity": "rows"}, "fidelity must be epochs or subset or folds"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BracketOptions(**options)
