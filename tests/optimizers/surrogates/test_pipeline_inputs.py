import numpy as np
import pytest
from ConfigSpace import Categorical, ConfigurationSpace
from worlds import mixed_space

from prefect_tune.optimizers import Algorithm, Configuration, Space, Step
from prefect_tune.optimizers.acquisitions.gaussian_search import GaussianSearch
from prefect_tune.optimizers.space.candidate_space import Candidates, CandidateSpace
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.surrogates.kernel import Parameter
from prefect_tune.optimizers.surrogates.pipeline_inputs import KernelKind, PipelineInputs, Priors

KINDS: tuple[KernelKind, ...] = ("one_hot", "conditional")


def drawn(space: Space, n: int, seed: int = 0) -> list[Configuration]:
    rng = np.random.default_rng(seed)
    return [sample_configuration(space, rng) for _ in range(n)]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_inactive_does_not_change_the_inputs(kind: KernelKind) -> None:
    search = GaussianSearch(mixed_space(), kind)
    configurations = drawn(mixed_space(), 50)
    encoded = search.inputs.encode(configurations)
    active = search.candidates.columns.active(encoded)
    noise = np.random.default_rng(1).random(encoded.units.shape)
    moved = Candidates(encoded.algorithms, np.where(active, encoded.units, noise))
    assert search.inputs.of(moved) == pytest.approx(search.inputs.of(encoded))
    distinct = np.unique(np.round(search.inputs.of(encoded), 9), axis=0)
    assert len(distinct) == len(set(configurations))


def test_unordered_categories_are_as_far_from_one_another_as_two_paths() -> None:
    three = ConfigurationSpace(space=[Categorical("kind", ["a", "b", "c"], default="a")])
    algorithms = (
        Algorithm(id="one", estimator="x.One", hyperparameters=three),
        Algorithm(id="two", estimator="x.Two"),
    )
    space = Space("kinds", (Step("model", algorithms),))
    search = GaussianSearch(space)
    kinds = [Configuration.of(space, ("one",), [{"kind": kind}]) for kind in "abc"]
    rows = search.inputs.of(search.inputs.encode([*kinds, *drawn(space, 9)]))
    distances = np.linalg.norm(rows[:3, None] - rows[None, :3], axis=-1)
    assert distances == pytest.approx(1 - np.eye(3))
    other = Configuration.of(space, ("two",), [{}])
    apart = rows[0] - search.inputs.of(search.inputs.encode([other]))[0]
    assert np.linalg.norm(apart) == pytest.approx(1.0)


def test_the_size_stands_behind_the_inputs() -> None:
    inputs = PipelineInputs(CandidateSpace(mixed_space()), "conditional")
    candidates = inputs.encode(drawn(mixed_space(), 4))
    each = inputs.at(candidates, np.array([0.0, 0.2, 0.5, 1.0]))
    assert each.shape == (4, inputs.width + 1)
    assert each[:, -1].tolist() == [0.0, 0.2, 0.5, 1.0]
    assert (each[:, :-1] == inputs.of(candidates)).all()
    assert inputs.at(candidates, 0.7)[:, -1].tolist() == [0.7] * 4


def test_the_column_of_a_choice_tells_which_algorithm_a_step_has() -> None:
    space = mixed_space()
    inputs = PipelineInputs(CandidateSpace(space), "conditional")
    configurations = drawn(space, 20)
    rows = inputs.of(inputs.encode(configurations))
    for k, step in enumerate(space.searched):
        column = inputs.choice_column(step.name)
        assert column is not None
        names = [a.id for a in step.algorithms]
        assert [names[int(x)] for x in rows[:, column]] == [c.path[k] for c in configurations]


def test_a_step_without_a_choice_has_no_such_column_nor_has_a_one_hot_path() -> None:
    alone = Algorithm(
        id="one", estimator="x.One", hyperparameters=ConfigurationSpace({"p": (0, 1)})
    )
    fixed = Space("fixed", (Step("model", (alone,)),))
    assert PipelineInputs(CandidateSpace(fixed), "conditional").choice_column("model") is None
    mixed = CandidateSpace(mixed_space())
    assert PipelineInputs(mixed, "conditional").choice_column("nowhere") is None
    assert PipelineInputs(mixed, "one_hot").choice_column("model") is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_kernel_within_lacks_only_the_amplitude(kind: KernelKind) -> None:
    inputs = PipelineInputs(CandidateSpace(mixed_space()), kind)
    rows = inputs.of(inputs.encode(drawn(mixed_space(), 9)))
    assert inputs.within is not None
    theta = np.array([p.start for p in inputs.within.parameters])
    within = inputs.within.covariance(theta, rows, rows)
    assert np.diag(within) == pytest.approx(1.0)
    amplified = inputs.kernel.covariance(np.append(np.log(3.0), theta), rows, rows)
    assert amplified == pytest.approx(3 * within)


def test_a_space_with_one_configuration_has_no_kernel_within() -> None:
    one = Space("one", (Step("model", (Algorithm(id="one", estimator="x.One"),)),))
    assert PipelineInputs(CandidateSpace(one), "conditional").within is None


def test_priors_are_those_that_are_given() -> None:
    asked: list[tuple[str, int]] = []

    def lengthscale(name: str, n: int) -> Parameter:
        asked.append((name, n))
        return Parameter(f"my {name}", 0.25, -1.0, 1.0)

    priors = Priors(lengthscale, lambda step: Parameter(f"of {step}", -2.0, -5.0, 5.0))
    inputs = PipelineInputs(CandidateSpace(mixed_space()), "conditional", priors)
    assert inputs.within is not None
    names = [p.name for p in inputs.within.parameters]
    assert {"of scale", "of model"} < set(names)
    assert all(name.startswith(("of ", "my ")) for name in names)
    assert asked == [(f"lengthscale {i}", len(asked)) for i in range(len(asked))]
