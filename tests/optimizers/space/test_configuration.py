import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import mixed_space

from prefect_tune.optimizers import Configuration, Encoding
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.sampling import sample_configuration

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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("scale"), "has the steps scale, model"),
        (lambda d: d["model"].update(algorithm="svn"), "Did you mean 'svm'"),
        (lambda d: d["model"]["hyperparameters"].pop("C"), "takes the values of C, kernel"),
        (lambda d: d["model"]["hyperparameters"].update({"poly.degree": 3}), "takes the values"),
        (lambda d: d["model"]["hyperparameters"].update(C=1e9), "C=1000000000.0 cannot be"),
        (
            lambda d: d["model"]["hyperparameters"].update(C="x"),
            "C='x' cannot be of algorithm 'svm'",
        ),
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
