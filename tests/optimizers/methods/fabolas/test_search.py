from math import log

import numpy as np
import pytest
from flash_worlds import counted_space
from numpy.typing import NDArray
from subset_worlds.beliefs import DEFAULT, belief_of
from subset_worlds.problems import BEST, ROWS, Result, configuration, cube, history_of
from worlds import told

from prefect_tune.optimizers import Configuration, History, Query
from prefect_tune.optimizers.methods.fabolas.belief import (
    SubsetBelief,
    SubsetLearner,
    pipeline_inputs,
)
from prefect_tune.optimizers.methods.fabolas.observations import SubsetObservations
from prefect_tune.optimizers.methods.fabolas.recipe import Acquisition, SearchRecipe
from prefect_tune.optimizers.methods.fabolas.search import ScoredCandidate, Search
from prefect_tune.optimizers.methods.fabolas.sizes import Sizes
from prefect_tune.optimizers.space.candidate_space import Candidates

LINE = pipeline_inputs(cube())
LEVELS = np.array([0.25, 0.5, 0.75, 1.0])
SHARES = tuple(256 ** (s - 1) for s in LEVELS)
SMOOTH = {"lengthscale 0": log(0.3)}


def parabola(*, of_x: float = 0.0, drop: float = 60.0) -> list[Result]:
    """Results about 0.5; seconds rise with x by e^of_x, and by the drop from s = 0 to 1."""
    return [
        (x, 256 ** (s - 1), (x - 0.5) ** 2, float(np.exp(of_x * x)) * drop**s)
        for x in (0.1, 0.3, 0.5, 0.7, 0.9)
        for s in (0.25, 0.5)
    ] + [(x, 1.0, (x - 0.5) ** 2, float(np.exp(of_x * x)) * drop) for x in (0.0, 1.0)]


def search_in(belief: SubsetBelief, seed: int = 0, sizes: NDArray[np.float64] = LEVELS) -> Search:
    return Search(
        LINE,
        belief,
        sizes=sizes,
        evaluated=LINE.encode([configuration(0.1), configuration(0.9)]),
        best=0.0,
        rng=np.random.default_rng(seed),
    )


def run(
    belief: SubsetBelief,
    acquisition: Acquisition = "gain_per_cost",
    overhead: float = 0.0,
    seed: int = 0,
) -> ScoredCandidate:
    return search_in(belief, seed).run(acquisition, overhead)


def chosen_sizes(belief: SubsetBelief, overhead: float = 0.0) -> list[float]:
    """The size that comes first, of four seeds."""
    firsts = (next(run(belief, overhead=overhead, seed=seed).best_first()) for seed in range(4))
    return [float(LEVELS[level]) for _, level in firsts]


def seconds_of(belief: SubsetBelief, candidates: Candidates) -> NDArray[np.float64]:
    columns = [belief.seconds(LINE.at(candidates, float(s))) for s in LEVELS]
    return np.column_stack(columns)


def test_the_best_comes_first_and_what_is_not_to_be_asked_for_never() -> None:
    scores = np.array([[0.1, -np.inf], [0.3, 0.2], [-np.inf, 0.4]])
    candidates = Candidates(np.zeros((3, 1), dtype=np.intp), np.zeros((3, 1)))
    found = ScoredCandidate(candidates, scores, scores)
    assert list(found.best_first()) == [(2, 1), (1, 0), (1, 1), (0, 0)]


def test_information_is_divided_by_seconds_with_the_overhead() -> None:
    belief = belief_of(history_of(*parabola()), parameters=SMOOTH)
    found = run(belief, overhead=3.0)
    seconds = seconds_of(belief, found.candidates)
    assert seconds.max() > 10 * seconds.min()
    np.testing.assert_allclose(found.scores, found.gains / (seconds + 3.0))


def test_of_two_of_equal_gain_the_cheap_one_comes_first() -> None:
    # Losses are symmetric about 0.5, and what is on the right costs e^3 of what is on the left.
    costs = {"lengthscale 0": log(1.0)}
    belief = belief_of(history_of(*parabola(of_x=3.0)), parameters=SMOOTH, costs=costs)
    divided, undivided = run(belief), run(belief, "gain")
    x = divided.candidates.units[:, 0]
    gains = undivided.gains[:, 2]
    left, right = gains[undivided.candidates.units[:, 0] < 0.5].max(), gains.max()
    assert left > 0.8 * right  # as much is to be learned there
    first = [row for row, _ in divided.best_first()][:20]
    assert x[first].max() < 0.5


def test_a_large_overhead_makes_subsets_larger() -> None:
    belief = belief_of(history_of(*parabola()), parameters=SMOOTH)
    small, large = chosen_sizes(belief), chosen_sizes(belief, overhead=1e3)
    assert max(small) <= min(large)
    assert np.mean(small) < np.mean(large)


def test_noise_of_small_subsets_makes_subsets_larger() -> None:
    history = history_of(*parabola(drop=8.0))
    name = "noise variance of the smallest subset"
    quiet, loud = (
        belief_of(history, parameters={**SMOOTH, name: log(variance)}) for variance in (1e-6, 4.0)
    )
    assert np.mean(chosen_sizes(loud)) > np.mean(chosen_sizes(quiet))
    gains = [run(b, "gain").gains.max(axis=0) for b in (quiet, loud)]
    # At s = 1 the noise is the same; at the smallest size less is learned.
    assert gains[1][0] < 0.8 * gains[0][0]


def test_divergence_takes_the_cheapest_subset_where_information_takes_what_tells() -> None:
    # Curves of configurations have little in common, so small subsets tell next to nothing.
    unlike = {**SMOOTH, "ln of the second weight": 3.0, "noise variance": log(1e-4)}
    belief = belief_of(history_of(*parabola(drop=4.0)), parameters=unlike)
    gain, divergence = run(belief), run(belief, "divergence_per_cost")
    assert LEVELS[next(gain.best_first())[1]] == 1.0
    assert LEVELS[next(divergence.best_first())[1]] == LEVELS[0]
    constant = divergence.scores * seconds_of(belief, divergence.candidates) - divergence.gains
    # ln R - H, whatever the candidate and the size.
    assert np.ptp(constant) < 1e-9
    assert constant.min() > 0


def test_improvement_is_sought_on_all_rows_alone() -> None:
    belief = belief_of(history_of(*parabola()), parameters=SMOOTH)
    found = run(belief, "improvement")
    assert (found.scores[:, :-1] == -np.inf).all()
    assert np.isfinite(found.scores[:, -1]).all()
    assert (found.gains[:, -1] > 0).all()
    assert {level for _, level in found.best_first()} == {len(LEVELS) - 1}
    row, _ = next(found.best_first())
    assert abs(found.candidates.units[row, 0] - 0.5) < 0.2


def test_improvement_is_divided_by_seconds_where_they_are_learned_and_only_there() -> None:
    history = history_of(*parabola(of_x=4.0))
    belief = belief_of(history, parameters=SMOOTH)
    with_costs, without = run(belief, "improvement", 1.0), run(
        belief_of(
            history,
            recipe=SearchRecipe(
                log_basis=DEFAULT.log_basis,
                raw_basis=DEFAULT.raw_basis,
                acquisition="improvement",
            ),
            parameters=SMOOTH,
        ),
        "improvement",
        1.0,
    )  # fmt: skip
    np.testing.assert_allclose(without.scores[:, -1], np.log(without.gains[:, -1]))
    seconds = seconds_of(belief, with_costs.candidates)[:, -1] + 1.0
    divided = np.log(with_costs.gains[:, -1] / seconds)
    np.testing.assert_allclose(with_costs.scores[:, -1], divided)


def test_what_stands_for_the_space_lies_where_the_minimiser_may_be() -> None:
    search = search_in(belief_of(history_of(*parabola()), parameters=SMOOTH))
    search.run("gain_per_cost", 0.0)
    assert search.probabilities.sum() == pytest.approx(1.0)
    mean = search.probabilities @ search.representers.units[:, 0]
    assert mean == pytest.approx(0.5, abs=0.12)
    assert 0 < search.entropy < log(len(search.representers))


def test_more_results_leave_less_to_learn() -> None:
    results = parabola()
    entropies = []
    more: list[Result] = [(x, 1.0, (x - 0.5) ** 2, 60.0) for x in (0.4, 0.45, 0.5, 0.55, 0.6)]
    for history in (history_of(*results), history_of(*results, *more)):
        search = search_in(belief_of(history, parameters={**SMOOTH, "noise variance": log(1e-5)}))
        search.run("gain_per_cost", 0.0)
        entropies.append(search.entropy)
    assert entropies[1] < entropies[0] - 0.3


def test_what_is_known_of_a_place_makes_others_worth_more() -> None:
    belief = belief_of(history_of(*parabola()), parameters=SMOOTH)
    first = run(belief, "gain")
    row, level = next(first.best_first())
    there = LINE.at(first.candidates[[row]], float(LEVELS[level]))
    imagined = belief.with_outcomes_drawn(there, np.random.default_rng(0))
    search = search_in(imagined)
    again = search.run("gain", 0.0)
    near = np.abs(again.candidates.units[:, 0] - first.candidates.units[row, 0]) < 0.01
    assert again.gains[near, level].max() < 0.6 * first.gains[row, level]


def test_gains_and_scores_are_finite_and_no_information_is_negative() -> None:
    found = run(belief_of(history_of(*parabola()), parameters=SMOOTH))
    assert np.isfinite(found.scores).all()
    assert found.gains.min() > -1e-3
    assert len(found.candidates) == len(found.scores) == len(found.gains)
    assert 0 <= found.candidates.units.min() <= found.candidates.units.max() <= 1


def test_the_best_model_is_told_with_its_probability() -> None:
    space = counted_space((2,))
    history, rng = History(ROWS.constraints), np.random.default_rng(0)
    for number in range(16):
        x = float(rng.random())
        chosen = Configuration.of(space, (f"a{number % 2}",), [{"h0": x}])
        history.record(told(number, Query(chosen), (x - BEST) ** 2 + 2.0 * (number % 2)))
    inputs, sizes = pipeline_inputs(space), Sizes.of(ROWS)
    seen = SubsetObservations.of(history, sizes, inputs, 1)
    learner = SubsetLearner(inputs, DEFAULT, ROWS, inference="map", n_samples=1)
    belief, _ = learner.learn(seen, {}, rng)
    best = inputs.encode([history[0].query.configuration])
    search = Search(inputs, belief, sizes=LEVELS, evaluated=best, best=-1.0, rng=rng)
    assert search.models() == {}
    search.run("gain_per_cost", 0.0)
    models = search.models()
    assert models.keys() == {"a0", "a1"}
    assert sum(models.values()) == pytest.approx(1.0, abs=1e-3)
    assert models["a0"] > 0.9


def test_candidates_gather_around_the_best_one() -> None:
    belief = belief_of(history_of(*parabola()), parameters=SMOOTH)
    for seed in range(3):
        found = run(belief, "gain", seed=seed)
        x = found.candidates.units[:, 0]
        row, _ = next(found.best_first())
        assert np.mean(np.abs(x - x[row]) < 0.1) > 0.25  # about 0.1 without refinement
