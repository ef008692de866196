from math import inf
from typing import Any

import pytest
from curve_worlds.nets import bapi

from prefect_tune.optimizers import UnknownName
from prefect_tune.optimizers.methods.bapi.options import BapiOptions, Settings

NEIGHBOURS = ("ei", "binoculars", "ms_ei")


def settings(**given: Any) -> Settings:
    return Settings.of(BapiOptions(**given))


def test_without_options_settings_are_the_defaults() -> None:
    assert settings() == Settings()


def test_the_paper_starts_at_random_and_divides_by_cost() -> None:
    paper = settings(variant="paper")
    assert (paper.start, paper.p, paper.choice) == ("random", 0.2, "per_cost")
    assert (paper.within, paper.cost, paper.score) == ("rbf", "linear", "raw")
    assert (paper.horizon, paper.n_points, paper.tau, paper.sure) == (4, 3, 2.0, inf)
    assert paper.monotone
    assert paper.early_stopping
    assert not paper.trains_in_full


@pytest.mark.parametrize("variant", NEIGHBOURS)
def test_neighbours_train_to_the_end_and_stop_nothing(variant: Any) -> None:
    neighbour = settings(variant=variant)
    assert neighbour.trains_in_full
    assert not neighbour.early_stopping
    assert neighbour.n_points == 1
    assert not neighbour.monotone


def test_neighbours_differ_in_how_far_they_look() -> None:
    ei, binoculars, ms_ei = (settings(variant=v) for v in NEIGHBOURS)
    assert (ei.horizon, ei.looks_ahead, ei.is_bounded) == (1, False, True)
    assert (binoculars.horizon, binoculars.looks_ahead, binoculars.is_bounded) == (4, False, False)
    assert (ms_ei.horizon, ms_ei.looks_ahead) == (1, True)


@pytest.mark.parametrize("variant", ["default", "paper"])
def test_options_that_are_given_win_over_the_variant(variant: Any) -> None:
    given = settings(
        variant=variant,
        horizon=8,
        p=0.5,
        tau=0.0,
        epsilon=0.0,
        start="random",
        n_first=2,
        choice="cool",
        n_points=7,
        monotone=False,
        of_time="rbf",
        within="matern",
        cost="log_rate",
        score="log",
        early_stopping=False,
    )
    assert (given.horizon, given.p, given.tau, given.epsilon) == (8, 0.5, 0.0, 0.0)
    assert (given.start, given.n_first, given.choice, given.n_points) == ("random", 2, "cool", 7)
    assert (given.monotone, given.of_time, given.within) == (False, "rbf", "matern")
    assert (given.cost, given.score, given.early_stopping) == ("log_rate", "log", False)


@pytest.mark.parametrize("variant", NEIGHBOURS)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("p", 0.2),
        ("looks_early", True),
        ("tau", 2.0),
        ("sure", 3.0),
        ("early_stopping", False),
        ("start", "halving"),
    ],
)
def test_what_has_no_effect_where_all_train_to_the_end_is_refused(
    variant: Any, name: str, value: object
) -> None:
    with pytest.raises(ValueError, match=rf"{name} has no effect in variant {variant}.* {value}"):
        BapiOptions(variant=variant, **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["horizon", "choice"])
def test_a_horizon_is_that_of_binoculars_alone(name: str) -> None:
    given: dict[str, Any] = {"horizon": 3, "choice": "per_cost"}
    for variant in ("ei", "ms_ei"):
        with pytest.raises(ValueError, match=f"{name} has no effect in variant {variant}"):
            BapiOptions(variant=variant, **{name: given[name]})  # type: ignore[arg-type]
    assert getattr(settings(variant="binoculars", **{name: given[name]}), name) == given[name]


@pytest.mark.parametrize(
    ("name", "value"), [("horizon", 0), ("n_first", 0), ("n_points", -1), ("horizon", -4)]
)
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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("variant", "published"),
        ("start", "sobol"),
        ("choice", "cheapest"),
        ("of_time", "linear"),
        ("within", "matern32"),
        ("cost", "log"),
        ("score", "logit"),
    ],
)
def test_words_are_those_that_are_known(name: str, value: str) -> None:
    with pytest.raises((ValueError, TypeError), match=value):
        BapiOptions(**{name: value})  # type: ignore[arg-type]


def test_an_option_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(UnknownName, match="horizont"):
        bapi(horizont=4)
