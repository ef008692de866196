import numpy as np
import pytest
from ConfigSpace import Categorical, ConfigurationSpace
from worlds import mixed_space

from prefect_tune.optimizers import Algorithm, Configuration, Space, Step
from prefect_tune.optimizers.acquisitions.gaussian_search import GaussianSearch
from prefect_tune.optimizers.space.candidates import Candidates
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.surrogates.pipeline_inputs import KernelKind

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
