import numpy as np
from ConfigSpace import (
    Categorical,
    ConfigurationSpace,
    Constant,
    EqualsCondition,
    Float,
    Integer,
    OrdinalHyperparameter,
)
from worlds import mixed_space

from prefect_tune.optimizers import Algorithm, Space, Step
from prefect_tune.optimizers.methods.tpe import Dimensions, to_value
from prefect_tune.optimizers.space.sampling import sample_configuration


def conditional_space() -> Space:
    """One algorithm: two numbers always, two of one kernel, one of the other, and a constant."""
    names = ["C", "tol", "degree", "coef0", "gamma"]
    values = ConfigurationSpace(
        space=[Categorical("kernel", ["rbf", "poly"]), Constant("fixed", 3)]
        + [Float(name, (0.0, 1.0)) for name in names]
    )
    for name, kernel in (("degree", "poly"), ("coef0", "poly"), ("gamma", "rbf")):
        values.add(EqualsCondition(values[name], values["kernel"], kernel))
    svm = Algorithm(id="svm", estimator="x.Svm", hyperparameters=values)
    return Space("conditional", (Step("model", (svm, Algorithm(id="bayes", estimator="x.B"))),))


def test_hyperparameters_that_are_active_together_are_a_group() -> None:
    dimensions = Dimensions(conditional_space())
    groups = {
        name: {key.rpartition("/")[2] for key in dimensions.group("model", "svm", name) or ()}
        for name in ("C", "degree", "gamma", "fixed")
    }
    assert groups == {
        "C": {"C", "tol", "kernel"},
        "degree": {"degree", "coef0"},
        "gamma": {"gamma"},
        "fixed": set(),
    }


def test_what_lies_in_the_space_comes_back_as_it_was() -> None:
    space, rng = mixed_space(), np.random.default_rng(0)
    dimensions = Dimensions(space)
    for _ in range(50):
        configuration = sample_configuration(space, rng)
        params, distributions = dimensions.of(configuration)
        assert params.keys() == distributions.keys()
        for step, choice in configuration.choices:
            assert params[step] == choice.algorithm
            of_algorithm = space.step(step).algorithm(choice.algorithm).hyperparameters
            for name, value in choice.values:
                back = to_value(of_algorithm[name], params[f"{step}/{choice.algorithm}/{name}"])
                assert back == value or abs(back - value) < 1e-9 * abs(value)


def test_what_lies_outside_of_a_part_is_left_out() -> None:
    space = mixed_space()
    part = Dimensions(space.restricted_to({"scale": ["unit"], "model": ["tree", "bayes"]}))
    rng = np.random.default_rng(0)
    svm = sample_configuration(space, rng, ("unit", "svm"))
    assert part.of(svm)[0] == {"scale": "unit"}


def test_ordinals_and_integers_are_positions_and_categories_are_counted() -> None:
    values = ConfigurationSpace(
        space=[
            OrdinalHyperparameter("size", ["s", "m", "l"]),
            Integer("n", (1, 9)),
            Categorical("kind", ["a", "b", "c"]),
        ]
    )
    assert [to_value(values["size"], u) for u in (0.1, 0.5, 0.9)] == ["s", "m", "l"]
    assert [to_value(values["n"], u) for u in (0.0, 0.5, 1.0)] == [1, 5, 9]
    assert [to_value(values["kind"], i) for i in range(3)] == ["a", "b", "c"]
