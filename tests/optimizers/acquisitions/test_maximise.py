import numpy as np
import pytest
from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer
from flash_worlds import counted_space
from worlds import finite_space

from prefect_tune.optimizers import Algorithm, Configuration, Space, Step
from prefect_tune.optimizers.acquisitions.expected_improvement import AugmentedImprovement
from prefect_tune.optimizers.acquisitions.gaussian_search import GaussianSearch, maximise
from prefect_tune.optimizers.space.candidate_space import Candidates
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


class Peak:
    """An acquisition that is largest at one point of the inputs."""

    def __init__(self, at: np.ndarray) -> None:
        self.at = at

    def score(self, inputs: np.ndarray, penalties: np.ndarray) -> np.ndarray:
        return -((inputs - self.at) ** 2).sum(axis=1) - penalties

    def score_with_gradient(
        self, inputs: np.ndarray, penalties: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        return self.score(inputs, penalties), -2 * (inputs - self.at)


def one_algorithm(*hyperparameters: object) -> GaussianSearch:
    values = ConfigurationSpace(space=list(hyperparameters))  # type: ignore[arg-type]
    algorithm = Algorithm(id="a", estimator="x.Y", hyperparameters=values)
    return GaussianSearch(Space("one", (Step("s", (algorithm,)),)))


def best_for(search: GaussianSearch, at: list[float], *seen: dict[str, object]) -> Candidates:
    configurations = [Configuration.of(search.space, ("a",), [values]) for values in seen]
    observed = search.inputs.encode(configurations)
    peak = Peak(np.array(at))
    ranked = maximise(peak, search.inputs, observed, np.random.default_rng(0))  # type: ignore[arg-type]
    return ranked[:1]


def test_numbers_are_polished_to_the_peak() -> None:
    search = one_algorithm(*(Float(f"x{i}", (0.0, 1.0)) for i in range(6)))
    at = [0.11, 0.93, 0.57, 0.71, 0.33, 0.05]
    best = best_for(search, at, {f"x{i}": 0.5 for i in range(6)})
    assert best.units[0] == pytest.approx(at, abs=1e-4)


def test_an_integer_a_step_beside_the_best_is_tried() -> None:
    others = [Float(f"x{i}", (0.0, 1.0)) for i in range(4)]
    search = one_algorithm(Integer("a_k", (1, 5000)), *others)
    at = [(700 - 1) / 4999, 0.5, 0.5, 0.5, 0.5]
    seen = {f"x{i}": 0.5 for i in range(4)}
    for beside in (699, 701, 702):
        best = best_for(search, at, {"a_k": beside, **seen})
        found = search.candidates.decode(best, 0)
        assert found is not None
        assert dict(found["s"].values)["a_k"] == 700


@pytest.mark.parametrize("kind", [111, 611, 823, 1037])
def test_every_other_category_is_tried_with_the_numbers_of_the_best(kind: int) -> None:
    numbers = [Float(f"x{i}", (0.0, 1.0)) for i in range(4)]
    search = one_algorithm(Categorical("a_kind", [f"c{i}" for i in range(1200)]), *numbers)
    at = [*np.eye(1200)[kind] / np.sqrt(2), 0.2, 0.4, 0.6, 0.8]
    best = best_for(search, at, {"a_kind": "c7", **{f"x{i}": 0.2 + 0.2 * i for i in range(4)}})
    found = search.candidates.decode(best, 0)
    assert found is not None
    assert dict(found["s"].values)["a_kind"] == f"c{kind}"
    assert best.units[0][1:] == pytest.approx([0.2, 0.4, 0.6, 0.8], abs=1e-3)


def test_penalties_count_in_every_round() -> None:
    search = one_algorithm(Integer("a_k", (1, 100)), Float("x", (0.0, 1.0)))
    observed = search.inputs.encode(
        [Configuration.of(search.space, ("a",), [{"a_k": 50, "x": 0.5}])]
    )

    def penalty(candidates: Candidates) -> np.ndarray:
        return 100.0 * (np.abs(candidates.units[:, 0] - 0.3) > 0.006)

    peak = Peak(np.array([0.9, 0.5]))
    ranked = maximise(
        peak,  # type: ignore[arg-type]
        search.inputs,
        observed,
        np.random.default_rng(0),
        penalty=penalty,
    )
    assert ranked.units[0][0] == pytest.approx(0.3, abs=0.006)
