import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import mixed_space

from prefect_tune.optimizers import Encoding
from prefect_tune.optimizers.space.unit_interval import from_unit, to_unit

SPACE = mixed_space()


ENCODING = Encoding(SPACE)


@given(st.integers(0, 3), st.floats(0, 1))
def test_every_position_stands_for_a_legal_value(column, u) -> None:
    step, algorithm, name = ENCODING.columns[column]
    hyperparameter = SPACE.step(step).algorithm(algorithm).hyperparameters[name]
    value = from_unit(hyperparameter, u)
    assert hyperparameter.legal_value(value)
    assert from_unit(hyperparameter, to_unit(hyperparameter, value)) == pytest.approx(value)
