import pytest

from prefect_tune.optimizers.methods.fabolas.declaration import FabolasOptions, SurrogateOptions


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
