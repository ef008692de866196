"""Methods that enter a comparison, as users write them."""

import pytest

from prefect_tune.flows.comparison.comparison import parse_methods
from prefect_tune.optimizers.space.wording import UnknownName


@pytest.mark.parametrize(("methods", "guess"), [("randm,tpe", "random"), ("random,tp", "tpe")])
def test_an_unknown_method_is_named_with_the_nearest(methods, guess) -> None:
    with pytest.raises(UnknownName, match=f"Did you mean '{guess}'"):
        parse_methods(methods)


def test_variants_of_one_method_are_told_apart() -> None:
    one, other = parse_methods('flash, flash:variant=paper:r=5:design="random"')
    assert (one.method, other.method, one.options) == ("flash", "flash", {})
    assert other.options == {"variant": "paper", "r": 5, "design": "random"}
    assert one.suffix != other.suffix
    assert other.suffix == "flash-variant-paper-r-5-design-random"
