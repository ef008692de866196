from math import inf
from typing import Any

import pytest
from curve_worlds.nets import bapi

from prefect_tune.optimizers import UnknownName
from prefect_tune.optimizers.methods.bapi.declaration import BapiOptions, Settings


def settings(**given: Any) -> Settings:
    return Settings.of(BapiOptions(**given))


def test_without_options_settings_are_the_defaults() -> None:
    assert settings() == Settings()


def test_the_paper_starts_at_random_and_divides_by_cost() -> None:
    paper = settings(variant="paper")
    assert (paper.start, paper.p, paper.choice) == ("random", 0.2, "per_cost")
    assert (paper.within, paper.cost, paper.score) == ("rbf", "linear", "raw")
    assert (paper.horizon, paper.n_points, paper.tau, paper.sure) == (4, 3, 2.0, inf)
    assert paper.early_stopping


@pytest.mark.parametrize("variant", ["default", "paper"])
def test_options_that_are_given_win_over_the_variant(variant: Any) -> None:
    given: dict[str, Any] = {
        "horizon": 8,
        "p": 0.5,
        "tau": 0.0,
        "sure": 9.0,
        "epsilon": 0.0,
        "n_first": 2,
        "early_stopping": False,
    }
    found = settings(variant=variant, **given)
    assert {name: getattr(found, name) for name in given} == given


@pytest.mark.parametrize(("name", "value"), [("horizon", 0), ("n_first", 0), ("horizon", -4)])
def test_numbers_that_cannot_be_are_named_with_their_value(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be >= 1; got {value}"):
        BapiOptions(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["tau", "sure", "epsilon"])
def test_tolerances_are_not_negative(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be >= 0; got -0.1"):
        BapiOptions(**{name: -0.1})  # type: ignore[arg-type]


@pytest.mark.parametrize("p", [0.0, -0.2, 1.5])
def test_p_is_a_share(p: float) -> None:
    with pytest.raises(ValueError, match=rf"p must be in \(0, 1\], a share .*; got {p}"):
        BapiOptions(p=p)
    assert BapiOptions(p=1.0).p == 1.0


def test_an_option_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(UnknownName, match="horizont"):
        bapi(horizont=4)
