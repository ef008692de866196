import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import finite_space, mixed_space

from prefect_tune.optimizers import Choice, Configuration, Encoding, Query
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.enumeration import enumerate_configurations
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.space.unit_interval import from_unit, to_unit

SPACE = mixed_space()
ENCODING = Encoding(SPACE)


def drawn(seed: int) -> Configuration:
    return sample_configuration(SPACE, np.random.default_rng(seed))


@given(st.integers(0, 10_000))
def test_a_drawn_configuration_survives_json(seed) -> None:
    configuration = drawn(seed)
    document = json.loads(configuration.canonical)
    assert Configuration.from_json(document, SPACE) == configuration
    assert hash(Configuration.from_json(document, SPACE)) == hash(configuration)


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


@given(st.integers(0, 3), st.floats(0, 1))
def test_every_position_stands_for_a_legal_value(column, u) -> None:
    step, algorithm, name = ENCODING.columns[column]
    hyperparameter = SPACE.step(step).algorithm(algorithm).hyperparameters[name]
    value = from_unit(hyperparameter, u)
    assert hyperparameter.legal_value(value)
    assert from_unit(hyperparameter, to_unit(hyperparameter, value)) == pytest.approx(value)


def test_the_cube_has_one_column_per_hyperparameter_of_the_space() -> None:
    assert [name for _, _, name in ENCODING.columns] == ["C", "kernel", "poly.degree", "depth"]
    assert len(ENCODING.algorithms) == 5


def test_inactive_hyperparameters_are_not_part_of_a_configuration() -> None:
    default = default_configuration(SPACE, ("unit", "svm"))
    assert default["model"] == Choice("svm", (("C", 1.0), ("kernel", "rbf")))
    _, active = ENCODING.to_cube(default)
    assert active.tolist() == [True, True, False, False]


def test_values_are_spread_evenly_over_their_range() -> None:
    """log10 C is uniform on [-3, 3]: mean 0, sd 1.73; of 400 draws the mean errs by 0.087."""
    draws = [
        dict(sample_configuration(SPACE, np.random.default_rng(i), ("unit", "svm"))["model"].values)
        for i in range(400)
    ]
    logs = np.log10([float(d["C"]) for d in draws])
    assert abs(logs.mean()) < 0.44  # five standard errors
    assert logs.min() < -2.7
    assert logs.max() > 2.7


def test_a_finite_space_is_listed_without_what_is_forbidden() -> None:
    listed = enumerate_configurations(finite_space(), 100)
    assert listed is not None
    assert len(set(listed)) == len(listed) == 5


def test_a_continuous_or_large_space_is_not_listed() -> None:
    assert enumerate_configurations(SPACE, 10_000) is None
    assert enumerate_configurations(finite_space(), 4) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("scale"), "has the steps scale, model"),
        (lambda d: d["model"].update(algorithm="svn"), "Did you mean 'svm'"),
        (lambda d: d["model"]["hyperparameters"].pop("C"), "takes the values of C, kernel"),
        (lambda d: d["model"]["hyperparameters"].update({"poly.degree": 3}), "takes the values"),
        (lambda d: d["model"]["hyperparameters"].update(C=1e9), "C=1000000000.0 is outside"),
        (lambda d: d["scale"].update(algorithm="none"), "none > svm cannot run"),
    ],
)
def test_a_configuration_that_is_not_of_the_space_is_refused_with_the_reason(
    change, message
) -> None:
    document = default_configuration(SPACE, ("unit", "svm")).to_json()
    change(document)
    with pytest.raises(ValueError, match=message):
        Configuration.from_json(document, SPACE)


@pytest.mark.parametrize(
    ("fidelity", "message"),
    [
        ({"subset": 0.0}, r"share of the rows in \(0, 1\]; got 0.0"),
        ({"subset": 1.5}, "got 1.5"),
        ({"subset_draw": -1}, "counts from 0; got -1"),
        ({"epochs": 0}, "at least 1, or None for a full fit; got 0"),
    ],
)
def test_a_fidelity_out_of_range_is_refused(fidelity, message) -> None:
    with pytest.raises(ValueError, match=message):
        Query(drawn(0), **fidelity)


def test_paths_that_can_run_are_drawn_equally_often() -> None:
    """Of 1000 draws, each of 5 paths gets 200, with a standard deviation of 12.6."""
    rng = np.random.default_rng(1)
    counts = Counter(sample_configuration(SPACE, rng).path for _ in range(1000))
    assert len(counts) == 5
    assert all(abs(count - 200) < 63 for count in counts.values())  # five of them
