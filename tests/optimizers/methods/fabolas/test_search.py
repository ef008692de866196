"""The search for the candidate and size that tell most per second."""

from dataclasses import replace
from math import log
from typing import Any

import numpy as np
from subset_worlds import (
    DEFAULT,
    Result,
    belief_of,
    configuration,
    cube,
    history_of,
)

from prefect_tune.optimizers.methods.fabolas.belief import (
    Belief,
    pipeline_inputs,
)
from prefect_tune.optimizers.methods.fabolas.rules import RULES
from prefect_tune.optimizers.methods.fabolas.search import ScoredCandidates, Search
from prefect_tune.optimizers.methods.fabolas.subsets import Acquisition
from prefect_tune.optimizers.space.vectors import Candidates

LINE = pipeline_inputs(cube())
LEVELS = np.array([0.25, 0.5, 0.75, 1.0])
SMOOTH = {"lengthscale 0": log(0.3)}


def parabola(*, of_x: float = 0.0, drop: float = 60.0) -> list[Result]:
    """Results about 0.5; seconds rise with x by e^of_x, and by the drop from s = 0 to 1."""
    return [
        (x, 256 ** (s - 1), (x - 0.5) ** 2, float(np.exp(of_x * x)) * drop**s)
        for x in (0.1, 0.3, 0.5, 0.7, 0.9)
        for s in (0.25, 0.5)
    ] + [(x, 1.0, (x - 0.5) ** 2, float(np.exp(of_x * x)) * drop) for x in (0.0, 1.0)]


def search_in(belief, acquisition: Acquisition = "gain_per_cost", overhead=0.0, seed=0) -> Search:
    return Search(
        LINE,
        belief,
        acquisition,
        sizes=LEVELS if acquisition != "improvement" else LEVELS[-1:],
        leaders=LINE.encode([configuration(0.1), configuration(0.9)]),
        best=0.0,
        overhead=overhead,
        rng=np.random.default_rng(seed),
    )


def run(belief: Belief, *arguments: Any, **others: Any) -> ScoredCandidates:
    return search_in(belief, *arguments, **others).run()


def test_the_best_comes_first() -> None:
    candidates = Candidates(np.zeros((2, 1), dtype=np.intp), np.zeros((2, 1)))
    found = ScoredCandidates(candidates, np.array([[0.1, 0.0], [0.3, 0.2]]))
    assert list(found.best_first()) == [(1, 0), (1, 1), (0, 0), (0, 1)]


def test_information_is_divided_by_seconds_with_the_overhead() -> None:
    belief = belief_of(history_of(*parabola()), parameters=SMOOTH)
    gain, found = run(belief, "gain"), run(belief, overhead=3.0)
    pool = slice(0, RULES.near * RULES.n_representers)  # later rounds differ
    at_sizes = [LINE.at(found.candidates[pool], float(s)) for s in LEVELS]
    seconds = np.column_stack([belief.seconds(rows) for rows in at_sizes])
    assert seconds.max() > 10 * seconds.min()
    np.testing.assert_allclose(found.scores[pool], gain.scores[pool] / (seconds + 3.0))


def test_divergence_takes_the_cheapest_subset_where_information_takes_what_tells() -> None:
    # Curves of configurations have little in common, so small subsets tell next to nothing.
    unlike = {**SMOOTH, "ln of the second weight": 3.0, "noise variance": log(1e-4)}
    belief = belief_of(history_of(*parabola(drop=4.0)), parameters=unlike)
    gain, divergence = run(belief), run(belief, "divergence_per_cost")
    assert LEVELS[next(gain.best_first())[1]] == 1.0
    assert LEVELS[next(divergence.best_first())[1]] == LEVELS[0]


def test_improvement_is_divided_by_seconds_where_they_are_learned() -> None:
    history, x = history_of(*parabola(of_x=6.0)), list[float]()
    for acquisition in ("gain_per_cost", "improvement"):
        strategy = replace(DEFAULT, acquisition=acquisition)
        found = run(belief_of(history, strategy=strategy, parameters=SMOOTH), "improvement", 1e-3)
        row, level = next(found.best_first())
        assert level == 0
        x.append(float(found.candidates.units[row, 0]))
    assert x[0] < x[1] - 0.05
