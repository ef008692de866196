import numpy as np
import pytest
from flash_worlds import counted_space
from worlds import finite_space

from prefect_tune.optimizers import Configuration, Space
from prefect_tune.optimizers.acquisitions.augmented_improvement import AugmentedImprovement
from prefect_tune.optimizers.acquisitions.gaussian_search import GaussianSearch
from prefect_tune.optimizers.space.candidates import Candidates
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.surrogates.pipeline_inputs import KernelKind

KINDS: tuple[KernelKind, ...] = ("one_hot", "conditional")


def drawn(space: Space, n: int, seed: int = 0) -> list[Configuration]:
    rng = np.random.default_rng(seed)
    return [sample_configuration(space, rng) for _ in range(n)]


def value_of(configuration: Configuration) -> float:
    """Paths differ by their ids, numbers are best at 0.3."""
    total = 0.0
    for _, choice in configuration.choices:
        total += 0.3 * int(choice.algorithm[1:])
        total += sum((float(v) - 0.3) ** 2 for _, v in choice.values)
    return total


@pytest.mark.parametrize("kind", KINDS)
def test_the_maximiser_is_no_worse_than_ten_thousand_random_candidates(kind: KernelKind) -> None:
    space = counted_space((2, 3), 2)
    search = GaussianSearch(space, kind)
    configurations = drawn(space, 30)
    values = np.array([value_of(c) for c in configurations])
    observed = search.inputs.encode(configurations)
    rng = np.random.default_rng(0)
    process, _ = search.learned(observed, values[:, None], rng)
    acquisition = AugmentedImprovement(process, float(values.min()))
    ranked = search.ranked(acquisition, observed[np.argsort(values)], rng)
    best = acquisition.score(search.inputs.of(ranked[:1]), np.zeros(1))[0]
    others = search.candidates.sample(10_000, rng)
    random_best = acquisition.score(search.inputs.of(others), np.zeros(10_000)).max()
    assert best >= random_best - 0.02
    assert value_of(next(search.new_configurations(ranked, set()))) < np.quantile(values, 0.2)


def test_a_penalty_moves_the_choice_of_a_category() -> None:
    space = finite_space()
    search = GaussianSearch(space)
    configurations = drawn(space, 3)
    observed = search.inputs.encode(configurations)
    rng = np.random.default_rng(0)
    process, _ = search.learned(observed, np.zeros((3, 1)), rng)
    acquisition = AugmentedImprovement(process, 0.0)

    def penalty(candidates: Candidates) -> np.ndarray:
        return 100.0 * (candidates.algorithms[:, 0] != 2)

    ranked = search.ranked(acquisition, observed, rng, penalty)
    assert next(search.new_configurations(ranked, set())).path == ("two",)


def test_a_box_holds_the_numbers() -> None:
    space = counted_space((1,), 3)
    search = GaussianSearch(space)
    configurations = drawn(space, 8)
    values = np.array([value_of(c) for c in configurations])
    observed = search.inputs.encode(configurations)
    rng = np.random.default_rng(0)
    process, _ = search.learned(observed, values[:, None], rng)
    within = np.array([0.6, 0.1, 0.0]), np.array([0.8, 0.2, 0.5])
    ranked = search.ranked(
        AugmentedImprovement(process, float(values.min())), observed, rng, None, within
    )
    assert (ranked.units >= within[0] - 1e-12).all()
    assert (ranked.units <= within[1] + 1e-12).all()
