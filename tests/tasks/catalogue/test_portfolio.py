"""Portfolios: what they hold, and what is left out of them."""

import pytest

from prefect_tune.tasks.catalogue.portfolios.portfolio import PORTFOLIOS, portfolio_of
from prefect_tune.tasks.catalogue.spaces import SPACES

NAMES = sorted(path.stem for path in PORTFOLIOS.glob("*.json"))


def test_the_modern_spaces_of_tables_have_one_and_together_they_are_small() -> None:
    assert NAMES == ["modern", "modern_regression"]
    assert sum(path.stat().st_size for path in PORTFOLIOS.glob("*.json")) < 100_000


@pytest.mark.parametrize("name", NAMES)
def test_it_has_16_to_32_different_configurations_of_the_space(name) -> None:
    portfolio = portfolio_of(SPACES[name])
    assert 16 <= len(portfolio) == len(set(portfolio)) <= 32
    assert len({c["fit model"].algorithm for c in portfolio}) >= 4


@pytest.mark.parametrize("name", NAMES)
def test_of_libraries_that_are_missing_nothing_is_begun_with(name) -> None:
    space = SPACES[name]
    kept = {s.name: {a.id for a in s.algorithms if not a.requires} for s in space.searched}
    left = portfolio_of(space.restricted_to(kept))
    assert left == [c for c in portfolio_of(space) if c["fit model"].algorithm in kept["fit model"]]
    assert 0 < len(left) < len(portfolio_of(space))


def test_other_spaces_have_none() -> None:
    assert portfolio_of(SPACES["flash"]) == []
