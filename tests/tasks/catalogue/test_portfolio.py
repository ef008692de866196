"""Portfolios: what they hold, and what is left out of them."""

from dataclasses import replace

import pytest

from prefect_tune.tasks.catalogue.portfolios import PORTFOLIOS, portfolio_of
from prefect_tune.tasks.catalogue.spaces import SPACES

NAMES = ["modern", "modern_regression"]


def test_the_modern_spaces_of_tables_have_one_and_together_they_are_small() -> None:
    files = {path.stem for path in PORTFOLIOS.glob("*.json")}
    assert files == {*NAMES, *(f"{name}_without_boosting" for name in NAMES)}
    assert sum(path.stat().st_size for path in PORTFOLIOS.glob("*.json")) < 100_000


@pytest.mark.parametrize("name", NAMES)
def test_it_has_16_to_32_different_configurations_of_the_space(name) -> None:
    portfolio = portfolio_of(SPACES[name])
    assert 16 <= len(portfolio) == len(set(portfolio)) <= 32
    assert len({c["fit model"].algorithm for c in portfolio}) >= 4


@pytest.mark.parametrize("name", NAMES)
def test_without_optional_libraries_there_are_as_many_which_need_none(name) -> None:
    space = SPACES[name]
    kept = {s.name: {a.id for a in s.algorithms if not a.requires} for s in space.searched}
    plain, portfolio = portfolio_of(space.restricted_to(kept)), portfolio_of(space)
    assert len(plain) == len(portfolio)
    assert {c["fit model"].algorithm for c in plain} <= kept["fit model"]
    assert any(c["fit model"].algorithm not in kept["fit model"] for c in portfolio)


def test_a_space_of_the_users_that_has_the_name_of_one_has_none() -> None:
    assert portfolio_of(replace(SPACES["small"], name="modern")) == []


def test_other_spaces_have_none() -> None:
    assert portfolio_of(SPACES["flash"]) == []
