import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import mixed_space

from prefect_tune.optimizers import Choice, Configuration, Encoding
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.sampling import sample_configuration

SPACE = mixed_space()


ENCODING = Encoding(SPACE)


def drawn(seed: int) -> Configuration:
    return sample_configuration(SPACE, np.random.default_rng(seed))


@given(st.integers(0, 10_000))
def test_a_drawn_configuration_survives_the_unit_cube(seed) -> None:
    configuration = drawn(seed)
    positions, active = ENCODING.to_cube(configuration)
    assert ((positions >= 0) & (positions <= 1)).all()
    assert (positions[~active] == 0.5).all()
    again = ENCODING.from_cube(configuration.path, positions)
    assert again.path == configuration.path
    for (step, there), (_, here) in zip(again.choices, configuration.choices, strict=True):
        for (name, value), (_, original) in zip(there.values, here.values, strict=True):
            assert value == pytest.approx(original), (step, name)


@given(st.integers(0, 10_000))
def test_a_one_hot_path_has_one_column_per_step(seed) -> None:
    one_hot = ENCODING.one_hot(drawn(seed).path)
    assert one_hot.sum() == 2
    assert one_hot[:2].sum() == 1


def test_the_cube_has_one_column_per_hyperparameter_of_the_space() -> None:
    assert [name for _, _, name in ENCODING.columns] == ["C", "kernel", "poly.degree", "depth"]
    assert len(ENCODING.algorithms) == 5


def test_inactive_hyperparameters_are_not_part_of_a_configuration() -> None:
    default = default_configuration(SPACE, ("unit", "svm"))
    assert default["model"] == Choice("svm", (("C", 1.0), ("kernel", "rbf")))
    _, active = ENCODING.to_cube(default)
    assert active.tolist() == [True, True, False, False]
