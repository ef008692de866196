import numpy as np
import pytest
from ConfigSpace import Categorical, Integer, OrdinalHyperparameter
from hypothesis import given
from hypothesis import strategies as st
from worlds import mixed_space

from prefect_tune.optimizers import Encoding
from prefect_tune.optimizers.space.unit_interval import from_unit, to_unit, values_of

SPACE = mixed_space()


ENCODING = Encoding(SPACE)


@given(st.integers(0, 3), st.floats(0, 1))
def test_every_position_stands_for_a_legal_value(column, u) -> None:
    step, algorithm, name = ENCODING.columns[column]
    hyperparameter = SPACE.step(step).algorithm(algorithm).hyperparameters[name]
    value = from_unit(hyperparameter, u)
    assert hyperparameter.legal_value(value)
    assert from_unit(hyperparameter, to_unit(hyperparameter, value)) == pytest.approx(value)


@pytest.mark.parametrize(("lower", "upper"), [(0, 1), (1, 10), (-3, 3), (5, 7)])
def test_each_integer_has_the_same_share_of_the_prior_the_ends_too(lower: int, upper: int) -> None:
    k, n = Integer("k", (lower, upper)), upper - lower + 1
    drawn = [from_unit(k, (i + 0.5) / (100 * n)) for i in range(100 * n)]
    assert [drawn.count(value) for value in range(lower, upper + 1)] == [100] * n


@pytest.mark.parametrize(
    "hyperparameter", [Categorical("c", ["x", "y", "z"]), OrdinalHyperparameter("o", [1, 2, 5, 9])]
)
def test_categories_share_the_prior_evenly(hyperparameter) -> None:
    n = int(hyperparameter.size)
    drawn = [from_unit(hyperparameter, (i + 0.5) / (100 * n)) for i in range(100 * n)]
    assert [drawn.count(value) for value in values_of(hyperparameter)] == [100] * n


def test_in_logarithms_the_ends_have_their_whole_rounding_cell() -> None:
    """The share of k is ln (k + 1/2) / (k - 1/2) of ln (16.5 / 0.5)."""
    k = Integer("k", (1, 16), log=True)
    drawn = [from_unit(k, (i + 0.5) / 100_000) for i in range(100_000)]
    for value in (1, 2, 7, 16):
        share = np.log((value + 0.5) / (value - 0.5)) / np.log(16.5 / 0.5)
        assert drawn.count(value) / 100_000 == pytest.approx(share, abs=2e-5)


def test_integers_of_studies_begun_before_are_read_as_they_were() -> None:
    """Their positions went from 0, the first, to 1, the last."""
    for n in (2, 3, 10, 200):
        k = Integer("k", (1, n))
        assert [from_unit(k, i / (n - 1)) for i in range(n)] == list(range(1, n + 1))


@pytest.mark.parametrize(
    "hyperparameter",
    [
        Integer("a", (3, 50)),
        Integer("b", (1, 9_000), log=True),
        Integer("c", (-5, 2_000_000_000)),
        Categorical("d", ["x", "y", "z"]),
        OrdinalHyperparameter("e", [1, 2, 5]),
    ],
    ids=lambda h: h.name,
)
def test_discrete_values_survive_the_interval(hyperparameter) -> None:
    values = (
        values_of(hyperparameter) if hyperparameter.size < 10_000 else [-5, -4, 77, 2_000_000_000]
    )
    assert [from_unit(hyperparameter, to_unit(hyperparameter, v)) for v in values] == values


def test_the_values_of_an_integer_in_logarithms_are_all_of_them() -> None:
    assert values_of(Integer("k", (1, 50), log=True)) == list(range(1, 51))
