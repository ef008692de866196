"""The results, and what is believed of losses and seconds on all sizes."""

from dataclasses import replace

import numpy as np
import pytest
from subset_worlds import DEFAULT, ROWS, belief_of, configuration, cube, history_of
from worlds import mixed_space, recorded

from prefect_tune.optimizers import (
    Configuration,
    Evaluation,
    Failure,
    FailureKind,
    Objective,
    Query,
    Trial,
)
from prefect_tune.optimizers.methods.fabolas import belief as belief_module
from prefect_tune.optimizers.methods.fabolas.belief import (
    Belief,
    Learner,
    LossScale,
    Observations,
    pipeline_inputs,
)
from prefect_tune.optimizers.methods.fabolas.rules import RULES
from prefect_tune.optimizers.methods.fabolas.subsets import LOG_LOSS, PAPER_LOSS, Sizes, Strategy

SIZES = Sizes(100, 50_000, (1 / 512, 1 / 64, 1 / 8, 1.0))
ERROR = Objective(n_held_out=1000)
OF_ERRORS = replace(DEFAULT, basis=LOG_LOSS, is_log=True)
OF_PAPER = Strategy(
    basis=PAPER_LOSS, acquisition="divergence_per_cost", is_log=False, is_drawn=True
)
SPACE = mixed_space()


def tree(depth: int = 5) -> Configuration:
    return Configuration.of(SPACE, ("none", "tree"), [{}, {"depth": depth}])


def ended(number, query, loss=10.0, seconds=1.0, uncached=None) -> Trial:
    uncached = seconds if uncached is None else uncached
    return Trial(number, query).completed(Evaluation(loss, (loss,), seconds, uncached))


def observed(*trials: Trial, pending: int = 0, n_folds: int = 1, is_full=False) -> Observations:
    history = recorded(*trials)
    for i in range(pending):
        history.record(Trial(len(trials) + i, Query(tree(30 + i))))
    return Observations.of(history, SIZES, pipeline_inputs(SPACE), n_folds, is_full=is_full)


def test_trials_that_have_ended_are_observed_with_their_sizes() -> None:
    trials = (
        ended(0, Query(tree(), 1 / 500), 40.0),
        ended(1, Query(tree(6), 1 / 64), 30.0),
        ended(2, Query(tree(7)), 20.0),
    )
    seen = observed(*trials, pending=2)
    assert [t.number for t in seen.trials] == [0, 1, 2]
    assert seen.inputs[:, -1] == pytest.approx([0.0, 0.33078916, 1.0])
    assert seen.losses.tolist() == [40.0, 30.0, 20.0]
    full = observed(*trials, pending=2, is_full=True)
    assert [t.number for t in full.trials] == [2]
    assert full.losses.tolist() == [20.0]


def test_failures_get_the_worst_loss_and_seconds_count_one_uncached_fold() -> None:
    failure = Failure(FailureKind.ERROR, "no loss", cost_seconds=9.0)
    seen = observed(
        ended(0, Query(tree()), 20.0, seconds=3.0, uncached=12.0),
        ended(1, Query(tree(), 1 / 4, folds=2), 45.0, seconds=1.0, uncached=8.0),
        ended(2, Query(tree(6)), seconds=6.0, uncached=0.0),
        Trial(3, Query(tree(7), 1 / 64)).failed(failure),
        n_folds=3,
    )
    assert seen.losses.tolist() == [20.0, 45.0, 10.0, 45.0]
    assert np.exp(seen.log_seconds) == pytest.approx([4.0, 4.0, 2.0, 3.0])


def test_losses_are_learned_as_logarithms_or_capped_except_with_variant_paper() -> None:
    """log(max(error, 0.5 / n)); or at most the median and three interquartile ranges."""
    losses = np.array([0.0, 0.01, 5.0, 20.0])
    learned = LossScale.of(losses, ERROR, OF_ERRORS).learned(losses)
    assert learned == pytest.approx(np.log([0.05, 0.05, 5.0, 20.0]))
    losses = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 1e8])
    low, middle, high = np.quantile(losses, (0.25, 0.5, 0.75))
    capped = [1.0, 2.0, 3.0, 4.0, 5.0, middle + 3 * (high - low)]
    assert LossScale.of(losses, ERROR, DEFAULT).learned(losses) == pytest.approx(capped)
    assert LossScale.of(losses, ERROR, OF_PAPER).learned(losses) == pytest.approx(losses)
    losses = np.array([0.1] * 9 + [0.5])
    assert LossScale.of(losses, ERROR, DEFAULT).learned(losses) == pytest.approx(losses)


def plane_trials(n: int, seed: int = 0) -> list[Trial]:
    """At random in the plane on four small sizes, losses and seconds as powers of the rows.

    Seconds are c = 2e-7 n^1.8 e^(x1 / 2) (Fabolas sheet, T11).
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
    seen = Observations.of(recorded(*plane_trials(n)), SIZES, INPUTS, 1)
    learner = Learner(INPUTS, SIZES, ERROR, strategy)
    return learner.learn(seen, last or {}, np.random.default_rng(0))


def test_seconds_and_losses_of_all_rows_follow_from_small_subsets() -> None:
    belief, _ = learned(16)
    assert belief.seconds(CENTRE) == pytest.approx([73.75], rel=0.1)
    (mean,), (deviation,) = belief.predict(CENTRE)
    truth = np.log(100 * 50_000**-0.3 * 0.52)
    assert abs(mean - truth) < 3 * deviation < 1.5


def test_drawn_parameters_differ_within_their_bounds_and_form_a_mixture() -> None:
    belief, kept = learned(12, OF_PAPER)
    process = belief.processes[0]
    parameters = (*process.kernel.parameters, *process.noise.parameters)
    thetas = np.array(kept["losses"]["thetas"])
    assert len({tuple(theta) for theta in thetas}) > 4
    assert (thetas >= [p.lower - 1e-6 for p in parameters]).all()
    assert (thetas <= [p.upper + 1e-6 for p in parameters]).all()
    moments = np.array([p.predict(CENTRE) for p in belief.processes])[:, :, 0]
    (mean,), (deviation,) = belief.predict(CENTRE)
    assert mean == pytest.approx(moments[:, 0].mean())
    second = (moments[:, 1] ** 2 + moments[:, 0] ** 2).mean()
    assert deviation**2 == pytest.approx(second - mean**2)


@pytest.mark.parametrize(("n", "is_fitted"), [(64, True), (65, False), (66, False), (67, True)])
def test_of_many_observations_a_fit_serves_until_three_more_have_come(n, is_fitted) -> None:
    _, first = learned(8)
    last = {name: {"thetas": made["thetas"], "n": 64} for name, made in first.items()}
    _, kept = learned(n, last=last)
    assert (kept["losses"] != last["losses"]) == is_fitted


def test_a_belief_learns_the_results_on_most_rows_then_the_newest(monkeypatch) -> None:
    monkeypatch.setattr(belief_module, "RULES", replace(RULES, most_learned=5))
    belief, _ = learned(12)
    shares = sorted(trial.query.subset for trial in plane_trials(12))
    assert sorted(belief.processes[0].inputs[:, -1]) == pytest.approx(SIZES.s(shares[-5:]))
    assert belief.processes[0].inputs[-1, 0] == pytest.approx(
        plane_trials(12)[11].query.configuration.choices[0][1].values[0][1]
    )


def test_seconds_are_of_as_many_folds_as_are_evaluated() -> None:
    belief = belief_of(history_of((0.1, 1 / 64, 1.0, 2.0), (0.9, 1 / 8, 2.0, 9.0)))
    line = pipeline_inputs(cube())
    rows = line.at(line.encode([configuration(0.5)] * 3), Sizes.of(ROWS).s([1 / 64, 1 / 8, 1.0]))
    factor = replace(belief, n_folds=3).seconds(rows) / belief.seconds(rows)
    assert factor == pytest.approx([1, 1, 3])
