"""Models of loss and seconds over all sizes, and the search for the most informative point."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import log
from operator import mul

import numpy as np
import pytest
from subset_worlds import ROWS, configuration, cube
from worlds import recorded, told

from prefect_tune.optimizers import Evaluation, Failure, FailureKind, Objective, Query, Trial
from prefect_tune.optimizers.methods.fabolas import belief as belief_module
from prefect_tune.optimizers.methods.fabolas.belief import (
    Belief,
    Learner,
    LossScale,
    Observations,
    _log_horseshoe,
    log_floor,
    pipeline_inputs,
)
from prefect_tune.optimizers.methods.fabolas.rules import RULES
from prefect_tune.optimizers.methods.fabolas.search import ScoredCandidates, Search
from prefect_tune.optimizers.methods.fabolas.subsets import (
    COST,
    LOG_LOSS,
    PAPER_LOSS,
    RAW_LOSS,
    Acquisition,
    Sizes,
    Strategy,
)
from prefect_tune.optimizers.models.fidelity_kernel import FidelityKernel
from prefect_tune.optimizers.models.kernels import FallingNoise, Noise
from prefect_tune.optimizers.space.vectors import Candidates

LINE = pipeline_inputs(cube())
SIZES = Sizes(100, 50_000, (1 / 512, 1 / 64, 1 / 8, 1.0))
ERROR = Objective(n_held_out=1000)
DEFAULT = Strategy(
    basis=RAW_LOSS,
    acquisition="gain_per_cost",
    is_log=False,
    is_published=False,
    one_fold_to=1 / 8,
    n_confirmed=3,
)
OF_ERRORS = replace(DEFAULT, basis=LOG_LOSS, is_log=True)
OF_PAPER = Strategy(
    basis=PAPER_LOSS, acquisition="divergence_per_cost", is_log=False, is_drawn=True
)


def ended(
    number: int, query: Query, loss: float, seconds: float = 1.0, uncached: float | None = None
) -> Trial:
    uncached = seconds if uncached is None else uncached
    return Trial(number, query).completed(Evaluation(loss, (loss,), seconds, uncached))


def test_finished_trials_are_observed_with_size_and_uncached_seconds_per_fold() -> None:
    failure = Failure(FailureKind.ERROR, "no loss", cost_seconds=9.0)
    history = recorded(
        ended(0, Query(configuration(0.1)), 20.0, seconds=3.0, uncached=12.0),
        ended(1, Query(configuration(0.1), 1 / 64, folds=2), 45.0, seconds=1.0, uncached=8.0),
        ended(2, Query(configuration(0.2)), 10.0, seconds=6.0, uncached=0.0),
        Trial(3, Query(configuration(0.3), 1 / 500)).failed(failure),
        Trial(4, Query(configuration(0.4))),
    )
    seen = Observations.of(history, SIZES, LINE, 3)
    assert [t.number for t in seen.trials] == [0, 1, 2, 3]
    assert seen.inputs[:, -1] == pytest.approx([1.0, 0.33078916, 1.0, 0.0])
    assert seen.losses.tolist() == [20.0, 45.0, 10.0, 45.0]  # a failure counts as the worst
    assert np.exp(seen.log_seconds) == pytest.approx([4.0, 4.0, 2.0, 3.0])
    full = Observations.of(history, SIZES, LINE, 3, is_full=True)
    assert [t.number for t in full.trials] == [0, 2]


def test_losses_are_learned_as_logarithms_or_capped_unless_variant_is_paper() -> None:
    """Errors become log(max(2 n error, 1)); other losses are capped at Q2 + 3 (Q3 - Q1)."""
    losses = np.array([0.0, 0.01, 5.0, 20.0])
    learned = LossScale.of(losses, ERROR, OF_ERRORS).learned(losses)
    assert learned == pytest.approx(np.log([1, 1, 100, 400]))
    assert log_floor(Objective(n_held_out=50, n_folds=20)) == log_floor(ERROR) == 0.05
    losses = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 1e8])
    low, middle, high = np.quantile(losses, (0.25, 0.5, 0.75))
    capped = [1.0, 2.0, 3.0, 4.0, 5.0, middle + 3 * (high - low)]
    assert LossScale.of(losses, ERROR, DEFAULT).learned(losses) == pytest.approx(capped)
    assert LossScale.of(losses, ERROR, OF_PAPER).learned(losses) == pytest.approx(losses)
    losses = np.array([0.1] * 9 + [0.5])
    assert LossScale.of(losses, ERROR, DEFAULT).learned(losses) == pytest.approx(losses)


def plane_trials(n: int, seed: int = 0) -> list[Trial]:
    """Return random trials in the plane on four small sizes; loss and seconds follow power laws.

    Seconds are c = 2e-7 n^1.8 e^(x1 / 2).
    """
    rng = np.random.default_rng(seed)
    trials = []
    for number in range(n):
        x, rows = rng.random(2), (781, 1562, 3125, 6250)[number % 4]
        loss = 100 * rows**-0.3 * (0.5 + (x[0] - 0.4) ** 2 + (x[1] - 0.6) ** 2)
        seconds = 2e-7 * rows**1.8 * np.exp(0.5 * x[0])
        query = Query(configuration(tuple(x)), rows / 50_000)
        trials.append(ended(number, query, float(loss), float(seconds)))
    return trials


INPUTS = pipeline_inputs(cube(2))
CENTRE = INPUTS.at(INPUTS.encode([configuration((0.5, 0.5))]), 1)


def learned(n: int, strategy: Strategy = OF_ERRORS, last=None) -> tuple[Belief, dict]:
    inputs = pipeline_inputs(cube(2), is_of_paper=strategy.is_drawn)
    seen = Observations.of(recorded(*plane_trials(n)), SIZES, inputs, 1)
    learner = Learner(inputs, SIZES, ERROR, strategy)
    return learner.learn(seen, last or {}, np.random.default_rng(0))


def test_small_subsets_predict_loss_and_seconds_of_all_rows() -> None:
    belief, _ = learned(16)
    assert belief.seconds(CENTRE) == pytest.approx([73.75], rel=0.1)
    (mean,), (deviation,) = belief.predict(CENTRE)
    truth = np.log(100 * 50_000**-0.3 * 0.52 / log_floor(ERROR))
    assert abs(mean - truth) < 3 * deviation < 1.5


def test_sampled_parameters_differ_stay_in_bounds_and_form_a_mixture() -> None:
    belief, kept = learned(12, OF_PAPER)
    for name, processes in (("losses", belief.processes), ("costs", belief.costs)):
        kernel, noise = processes[0].kernel, processes[0].noise
        parameters = (*kernel.parameters, *noise.parameters)
        thetas = np.array(kept[name]["thetas"])
        assert len({tuple(theta) for theta in thetas}) > 4
        assert (thetas >= [p.lower - 1e-6 for p in parameters]).all()
        assert (thetas <= [p.upper + 1e-6 for p in parameters]).all()
    moments = np.array([p.predict(CENTRE) for p in belief.processes])[:, :, 0]
    (mean,), (deviation,) = belief.predict(CENTRE)
    assert mean == pytest.approx(moments[:, 0].mean())
    second = (moments[:, 1] ** 2 + moments[:, 0] ** 2).mean()
    assert deviation**2 == pytest.approx(second - mean**2)
    each = [np.exp(process.predict(CENTRE)[0][0]) for process in belief.costs]
    assert belief.seconds(CENTRE) == pytest.approx([np.mean(each)])


def test_priors_of_the_paper_are_uniform_lengthscales_and_a_horseshoe(monkeypatch) -> None:
    """ln l^2 is uniform in [-10, 2], and the draws of ln sigma^2 follow the horseshoe."""
    belief, _ = learned(12, OF_PAPER)
    assert belief.costs[0].kernel.basis.trend == (0, 0)
    lengthscales = belief.processes[0].kernel.parameters[:2]
    assert [(p.lower, p.upper, p.prior[1]) for p in lengthscales] == [(-5.0, 1.0, np.inf)] * 2
    draws = [lengthscales[0].draw(np.random.default_rng(seed)) for seed in range(400)]
    assert np.quantile(draws, (0.25, 0.75)) == pytest.approx([-3.5, -0.5], abs=0.4)
    at = np.array([1e-4, 1e-2, 1.0])
    density = np.log(1 + 3 * (0.1 / at) ** 2) * at  # of ln sigma^2, by its derivative
    assert np.exp([_log_horseshoe(x) for x in np.log(at)]) == pytest.approx(density)
    means = list[float]()
    for slope in (-1e3, 1e3):
        monkeypatch.setattr(belief_module, "_log_horseshoe", partial(mul, slope))
        drawn = learned(4, OF_PAPER)[1].values()
        means += [np.mean([theta[-1] for theta in kept["thetas"]]) for kept in drawn]
    assert max(means[:2]) < -9 < -4 < min(means[2:])


def test_variant_paper_learns_from_all_results(monkeypatch) -> None:
    monkeypatch.setattr(belief_module, "RULES", replace(RULES, most_learned=5))
    assert len(learned(12, OF_PAPER)[0].processes[0].inputs) == 12


@pytest.mark.parametrize(("n", "is_fitted"), [(64, False), (70, False), (71, True)])
def test_fit_is_reused_until_a_tenth_more_observations_arrive(n, is_fitted) -> None:
    _, first = learned(8)
    last = {name: {"thetas": made["thetas"], "n": 64} for name, made in first.items()}
    _, kept = learned(n, last=last)
    assert (kept["losses"] != last["losses"]) == is_fitted


def test_model_learns_from_the_largest_subsets_and_then_the_newest_results(monkeypatch) -> None:
    monkeypatch.setattr(belief_module, "RULES", replace(RULES, most_learned=5))
    belief, _ = learned(12)
    shares = sorted(trial.query.subset for trial in plane_trials(12))
    assert sorted(belief.processes[0].inputs[:, -1]) == pytest.approx(SIZES.s(shares[-5:]))
    newest = dict(plane_trials(12)[11].query.configuration["model"].values)
    assert belief.processes[0].inputs[-1, 0] == pytest.approx(newest["x0"])


Result = tuple[float, float, float, float]
"""Position, share of the rows, loss and seconds."""


def belief_of(
    *results: Result, strategy: Strategy = DEFAULT, parameters: Mapping[str, float] | None = None
) -> Belief:
    """Return the model given results on a line and fixed parameters, without fitting."""
    history = recorded(
        *(
            told(i, Query(configuration(x), share), *more)
            for i, (x, share, *more) in enumerate(results)
        )
    )
    seen, s = Observations.of(history, Sizes.of(ROWS), LINE, 1), LINE.width
    assert LINE.within is not None
    of_losses = FidelityKernel(LINE.within, s, strategy.basis), FallingNoise(s)
    of_costs = FidelityKernel(LINE.within, s, COST), Noise()
    kept = {}
    for name, parts in (("losses", of_losses), ("costs", of_costs)):
        known = [parameter for part in parts for parameter in part.parameters]
        given = (parameters or {}) if name == "losses" else {}
        kept[name] = {"thetas": [[given.get(p.name, p.start) for p in known]], "n": 1}
    return Learner(LINE, Sizes.of(ROWS), ROWS, strategy).recall(seen, kept)


def test_seconds_are_multiplied_by_the_number_of_folds() -> None:
    belief = belief_of((0.1, 1 / 64, 1.0, 2.0), (0.9, 1 / 8, 2.0, 9.0))
    rows = LINE.at(LINE.encode([configuration(0.5)] * 3), Sizes.of(ROWS).s([1 / 64, 1 / 8, 1.0]))
    factor = replace(belief, n_folds=3).seconds(rows) / belief.seconds(rows)
    assert factor == pytest.approx([1, 1, 3])


LEVELS = np.array([0.25, 0.5, 0.75, 1.0])
SMOOTH = {"lengthscale 0": log(0.3)}


def parabola(*, of_x: float = 0.0, drop: float = 60.0) -> list[Result]:
    """Return results with the least loss at 0.5; seconds are e^(of_x x) times drop^s."""
    at = [(x, s) for x in (0.1, 0.3, 0.5, 0.7, 0.9) for s in (0.25, 0.5)] + [(0.0, 1), (1.0, 1)]
    seconds = [float(np.exp(of_x * x)) * drop**s for x, s in at]
    return [(x, 256 ** (s - 1), (x - 0.5) ** 2, c) for (x, s), c in zip(at, seconds, strict=True)]


def run(
    belief: Belief,
    acquisition: Acquisition = "gain_per_cost",
    overhead: float = 0.0,
    best: float = 0.0,
    *,
    is_continuous: bool = False,
) -> ScoredCandidates:
    return Search(
        LINE,
        belief,
        acquisition,
        sizes=LEVELS if acquisition != "improvement" else LEVELS[-1:],
        is_continuous=is_continuous,
        leaders=LINE.encode([configuration(0.1), configuration(0.9)]),
        best=best,
        overhead=overhead,
        rng=np.random.default_rng(0),
    ).run()


def test_candidates_are_sorted_best_first() -> None:
    candidates = Candidates(np.zeros((2, 1), dtype=np.intp), np.zeros((2, 1)))
    scores = np.array([[0.1, 0.0], [0.3, 0.2]])
    found = ScoredCandidates(candidates, np.zeros((2, 2)), scores)
    assert list(found.best_first()) == [(1, 0), (1, 1), (0, 0), (0, 1)]


def test_information_is_divided_by_seconds_plus_overhead() -> None:
    belief = belief_of(*parabola(), parameters=SMOOTH)
    gain, found = run(belief, "gain"), run(belief, overhead=3.0)
    pool = slice(0, RULES.near * RULES.n_representers)  # later rounds differ
    at_sizes = [LINE.at(found.candidates[pool], float(s)) for s in LEVELS]
    seconds = np.column_stack([belief.seconds(rows) for rows in at_sizes])
    assert seconds.max() > 10 * seconds.min()
    np.testing.assert_allclose(found.scores[pool], gain.scores[pool] / (seconds + 3.0))


def test_continuous_sizes_are_refined_near_the_best_size() -> None:
    belief = belief_of(*parabola(), parameters=SMOOTH)
    steps, found = run(belief), run(belief, is_continuous=True)
    pool = RULES.near * RULES.n_representers
    assert set(steps.sizes.flat) == set(found.sizes[:pool].flat) == set(LEVELS)
    refined = found.sizes[pool:]
    assert len(set(refined.flat)) > len(LEVELS)
    assert abs(np.median(refined) - found.sizes.flat[int(found.scores.argmax())]) < 0.1


def test_unit_of_losses_does_not_change_the_search() -> None:
    units = {1.0: parabola(), 10.0: [(x, s, 10 * y, c) for x, s, y, c in parabola()]}
    beliefs = {unit: belief_of(*results, parameters=SMOOTH) for unit, results in units.items()}
    ones, tens = (run(belief, best=0.02 * unit) for unit, belief in beliefs.items())
    np.testing.assert_allclose(ones.scores, tens.scores, rtol=1e-6)


def test_divergence_prefers_cheap_and_information_gain_prefers_informative_subsets() -> None:
    # Curves of configurations have little in common, so small subsets tell next to nothing.
    unlike = {**SMOOTH, "ln of the second weight": 3.0, "noise variance": log(1e-4)}
    belief = belief_of(*parabola(drop=4.0), parameters=unlike)
    gain, divergence = run(belief), run(belief, "divergence_per_cost")
    assert LEVELS[next(gain.best_first())[1]] == 1.0
    assert LEVELS[next(divergence.best_first())[1]] == LEVELS[0]


def test_improvement_is_divided_by_seconds_if_seconds_are_learned() -> None:
    x = list[float]()
    for acquisition in ("gain_per_cost", "improvement"):
        strategy = replace(DEFAULT, acquisition=acquisition)
        belief = belief_of(*parabola(of_x=6.0), strategy=strategy, parameters=SMOOTH)
        found = run(belief, "improvement", 1e-3)
        row, level = next(found.best_first())
        assert level == 0
        x.append(float(found.candidates.units[row, 0]))
    assert x[0] < x[1] - 0.05
