"""What every option of every method promises."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from prefect_tune.optimizers import make_optimizer
from prefect_tune.optimizers.method import check_options
from prefect_tune.optimizers.methods.fabolas.declaration import FabolasOptions, SurrogateOptions
from prefect_tune.tasks.catalogue.spaces import space_named


@dataclass
class Options:
    count: int = 1
    share: float = 0.5
    limit: float | None = None
    is_fast: bool = True
    rule: Literal["one", "other"] = "one"
    perhaps: Literal["one", "other"] | None = None


@pytest.mark.parametrize(
    "given",
    [{}, {"share": 1}, {"limit": None}, {"limit": 2.5}, {"perhaps": None}, {"perhaps": "other"}],
)
def test_values_of_the_annotated_kind_are_taken(given: dict[str, Any]) -> None:
    check_options(Options(**given))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"count": 2.5}, "count must be a whole number; got 2.5"),
        ({"count": True}, "count must be a whole number; got True"),
        ({"count": None}, "count must be a whole number; got None"),
        ({"share": "x"}, "share must be a number; got 'x'"),
        ({"share": float("nan")}, "share must be a finite number; got nan"),
        ({"limit": "x"}, "limit must be a number; got 'x'"),
        ({"is_fast": "no"}, "is_fast must be true or false; got 'no'"),
        ({"rule": "two"}, "rule must be one or other; got 'two'"),
        ({"rule": None}, "rule must be one or other; got None"),
    ],
)
def test_other_values_are_refused_by_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        check_options(Options(**given))


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("smac", {"n_trees": 2.5}, "n_trees must be a whole number"),
        ("smac", {"is_log": "no"}, "is_log must be true or false"),
        ("tpe", {"n_candidates": 2.5}, "n_candidates must be a whole number"),
        ("flash", {"xi": "abc"}, "xi must be a number"),
    ],
)
def test_methods_check_their_options_before_any_work(
    method: str, given: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make_optimizer(method, space_named("small"), 0, None, given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_samples", 0),
        ("n_first", 0),
        ("subset_draws", 0),
        ("subset_folds", -1),
        ("verify_every", -1),
        ("n_confirmed", -1),
    ],
)
def test_numbers_that_cannot_be_are_refused_by_name_and_value(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be >= [01]; got {value}"):
        FabolasOptions(**{name: value})  # type: ignore[arg-type]


def test_no_subset_folds_no_verification_and_no_confirmation_are_options() -> None:
    options = FabolasOptions(subset_folds=0, verify_every=0, n_confirmed=0)
    assert (options.subset_folds, options.verify_every, options.n_confirmed) == (0, 0, 0)


@pytest.mark.parametrize(("name", "value"), [("inference", "exact"), ("variant", "published")])
def test_words_are_those_that_are_known(name: str, value: str) -> None:
    with pytest.raises((ValueError, TypeError), match=value):
        FabolasOptions(**{name: value})  # type: ignore[arg-type]


def test_what_fabolas_is_compared_with_has_the_same_checks() -> None:
    with pytest.raises(ValueError, match="n_samples must be >= 1; got 0"):
        SurrogateOptions(n_samples=0)
