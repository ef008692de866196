"""Predicted seconds of queries: a Bayesian regression against plain algebra, and learned costs."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from ConfigSpace import Float, Integer
from worlds import algorithm

from prefect_tune.optimizers import (
    Budget,
    Choice,
    Configuration,
    Evaluation,
    Failure,
    FailureKind,
    Objective,
    Query,
    Space,
    Step,
    StepCost,
    Trial,
)
from prefect_tune.optimizers.models.path_linear import LinearRegression
from prefect_tune.optimizers.models.seconds import Costs, cheap_configuration
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.trials.outcome import Pilot

TREES = Integer("trees", (10, 1000), log=True, default=100)
FOREST = algorithm("forest", TREES, growth={"trees": 1.0, "fixed": 0.0})
KERNEL = algorithm("kernel", growth={"rows": 2.0, "held_out": 1.0, "fixed": 0.0})
PLAIN = algorithm("plain", Float("C", (1e-3, 1e3), log=True, default=1.0), growth={"fixed": 0.0})
MODELS = Step("model", (FOREST, KERNEL, PLAIN))
SPACE = Space("timed", (Step("scale", (algorithm("unit"),)), MODELS))
OBJECTIVE = Objective(n_rows=64_000, n_held_out=32_000, n_folds=3)


def query(model: str, subset: float = 1.0, folds: int | None = 1, **values: float) -> Query:
    configuration = default_configuration(SPACE, ("unit", model))
    if values:
        (scale, _) = configuration.choices
        configuration = Configuration((scale, ("model", Choice.of(model, values))))
    return Query(configuration, subset, folds=folds)


def told(asked: Query, *seconds: tuple[str, float, float]) -> Trial:
    """Return a one-fold trial whose steps took these seconds to fit and to process held-out rows.

    Rescaling takes a millisecond.
    """
    steps = [
        StepCost(step, 0, fit + held_out, 0.0, hit=False, key="", held_out_seconds=held_out)
        for step, fit, held_out in (("scale", 1e-3, 0.0), *seconds)
    ]
    cost = sum(step.seconds for step in steps)
    return Trial(0, asked).started().completed(Evaluation(1.0, (1.0,), cost, cost, tuple(steps)))


def costs(*trials: Trial) -> Costs:
    learned = Costs(SPACE, OBJECTIVE)
    for trial in trials:
        learned.tell(trial)
    return learned


def test_regression_solves_the_weighted_normal_equations() -> None:
    """For each weight, the prior adds a row to the least-squares problem."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(8), rng.normal(size=(8, 2))])
    y = X @ [1.0, 2.0, -1.0] + 0.1 * rng.normal(size=8)
    mean, deviation = np.array([0.5, 1.0, 0.0]), np.array([2.0, 0.3, 1.0])
    regression = LinearRegression(3)
    for features, target in zip(X, y, strict=True):
        regression.add(features, target)
    posterior = regression.posterior(mean, deviation, 0.3, 2.0)

    rows = np.vstack([X, np.diag(0.3 / deviation)])
    targets = np.concatenate([y, 0.3 / deviation * mean])
    weights, residual, *_ = np.linalg.lstsq(rows, targets, rcond=None)
    assert posterior.mean == pytest.approx(weights)
    variance = (2.0 * 0.3**2 + residual[0]) / (2.0 + 8)  # the prior counts as two observations
    new = np.array([[1.0, 0.5, -0.5]])
    spread = new @ np.linalg.inv(rows.T @ rows) @ new.T
    mean, deviation = posterior.predict(new)
    assert mean == pytest.approx(new @ weights)
    assert deviation == pytest.approx(np.sqrt(variance * (1 + spread[0])))


def test_seconds_grow_with_rows_as_declared_until_measured() -> None:
    """On twice the rows, 2 s become 4 s for a plain fit and 8 s for a kernel."""
    models = "plain", "kernel"
    learned = costs(*(told(query(m, 1 / 8), ("model", 2.0, 1.0)) for m in models))
    for model, fit, held_out in (("plain", 2.0, 2**0.1), ("kernel", 4.0, 2.0)):
        expected = 2.0 * fit + held_out
        assert learned.seconds(query(model, 1 / 4)) == pytest.approx(expected, rel=0.1)
    flat = [told(query("plain", 1 / 2**k), ("model", 3.0, 0.0)) for k in range(7)] * 3
    assert costs(*flat).seconds(query("plain")) == pytest.approx(3.0, rel=0.2)


def test_hyperparameter_multiplies_seconds_as_declared_or_measured() -> None:
    learned = costs(told(query("forest", trees=10), ("model", 2.0, 0.0)))
    assert learned.seconds(query("forest", trees=1000)) == pytest.approx(200.0, rel=0.2)
    for c in (1e-3, 1e-1, 1e1, 1e3) * 5:
        learned.tell(told(query("plain", C=c), ("model", c**0.5, 0.0)))
    for c in (1e-3, 1e3):
        assert learned.seconds(query("plain", C=c)) == pytest.approx(c**0.5, rel=0.3)


@pytest.mark.parametrize(("n_rows", "factor"), [(20_000, 16.0), (80_000, 4.0)])
def test_seconds_of_early_stopped_trees_grow_less_with_the_largest_number_of_rounds(
    n_rows, factor
) -> None:
    trees = algorithm(
        "trees", Integer("rounds", (32, 512), log=True), growth={"rounds": 1.0}, rounds="rounds"
    )
    space = Space("trees", (Step("model", (trees,)),))
    costs = Costs(space, Objective(n_rows=n_rows))

    def seconds(rounds: int) -> float:
        choice = Choice.of("trees", {"rounds": rounds})
        return costs.seconds(Query(Configuration((("model", choice),)), folds=1))

    of_rest = costs.overhead_seconds
    assert (seconds(512) - of_rest) / (seconds(32) - of_rest) == pytest.approx(factor, rel=0.05)


def test_unseen_algorithm_costs_as_much_as_other_algorithms_of_the_step() -> None:
    seen, new = query("plain", 1 / 64), query("forest", 1 / 64)
    learned = costs(told(seen, ("model", 50.0, 0.0)))
    assert not learned.is_known(new.configuration)
    assert learned.seconds(new) == pytest.approx(50.0, rel=0.2)
    assert learned.seconds(new, 1.0) > 1.5 * learned.seconds(seen, 1.0)


def test_seconds_of_an_unseen_algorithm_grow_with_the_classes_as_declared() -> None:
    """With eight classes, a model of one fit per class takes eight times as long as the others."""
    each = algorithm("each", growth={"fixed": 0.0, "classes": 1.0})
    space = Space("timed", (Step("scale", (algorithm("unit"),)), Step("model", (PLAIN, each))))
    learned = Costs(space, replace(OBJECTIVE, n_classes=8))
    learned.tell(told(query("plain"), ("model", 50.0, 0.0)))
    asked = Query(default_configuration(space, ("unit", "each")), folds=1)
    assert learned.seconds(asked) == pytest.approx(8 * 50.0, rel=0.2)


def test_cost_excludes_finished_folds_and_unused_held_out_rows() -> None:
    learned = costs(told(query("kernel"), ("model", 2.0, 6.0)))
    one = learned.seconds(query("kernel"))
    assert learned.seconds(query("kernel", folds=None)) == pytest.approx(3 * one)
    assert learned.seconds(query("kernel", folds=None), folds_done=1) == pytest.approx(2 * one)
    half = replace(query("kernel"), held_out=0.5)
    assert one - learned.seconds(half) == pytest.approx(3.0, rel=0.05)


def test_cost_model_ignores_cached_steps_and_partial_training() -> None:
    served = told(query("plain"), ("model", 500.0, 0.0))
    hits = tuple(replace(cost, hit=True) for cost in served.evaluation.steps)
    hit = replace(served, evaluation=replace(served.evaluation, steps=hits))
    part = told(replace(query("plain"), epochs=3), ("model", 500.0, 0.0))
    learned = costs(hit, part)
    assert not learned.is_known(query("plain").configuration)
    assert learned.seen == {"plain"}


def test_timed_out_fit_is_assumed_to_take_at_least_twice_as_long() -> None:
    steps = (StepCost("scale", 0, 1.0, 0.0, hit=False, key=""),)
    failure = Failure(FailureKind.TIMEOUT, "", step="model", cost_seconds=21.0, steps=steps)
    learned = costs(Trial(0, query("plain")).started().failed(failure))
    assert learned.seconds(query("plain")) == pytest.approx(41.0, rel=0.05)
    error = replace(failure, kind=FailureKind.ERROR)
    learned = costs(Trial(0, query("plain")).started().failed(error))
    assert not learned.is_known(query("plain").configuration)


PILOT = Pilot(
    1_000, 4_500, (StepCost("model", 0, 0.6, 0.0, hit=False, key="", held_out_seconds=0.5),), 99.0,
    limit_seconds=9.0,
)  # fmt: skip


def test_pilot_with_the_fewest_trees_predicts_the_seconds_of_many_trees() -> None:
    """Ten trees take 0.1 s to fit on 1,000 rows, and 0.5 s to predict 5,000 rows."""
    many = query("forest", trees=1000)
    cheap = cheap_configuration(SPACE, many.configuration)
    assert cheap == query("forest", trees=10).configuration
    failure = Failure(FailureKind.TIMEOUT, "", pilot=PILOT)
    assert failure.is_unstarted
    learned = costs(Trial(0, many).started().failed(failure))
    expected = 100 * (0.1 * 64 + 64**0.1 * 0.5 * 32.5 / 5)
    assert learned.seconds(many) == pytest.approx(expected, rel=0.25)


def test_first_trial_of_an_algorithm_gets_a_share_of_the_seconds_left() -> None:
    learned = costs(told(query("plain"), ("model", 1.0, 0.0)))
    budget = Budget(seconds_left=60.0, n_workers=4)
    forest, plain = query("forest").configuration, query("plain").configuration
    assert learned.share_seconds(forest, budget) == 30.0  # of two that were not seen
    assert learned.share_seconds(plain, budget) == 60.0
    for seconds_left, n_workers, share in ((8.0, 1, 3.0), (4.0, 1, 2.0), (9.0, 2, 3.0)):
        soon_over = Budget(seconds_left=seconds_left, n_workers=n_workers)
        assert costs().share_seconds(forest, soon_over) == share
    assert learned.allowed_seconds(query("forest"), budget) == 15.0
    assert learned.allowed_seconds(query("forest", 1 / 2), budget) == 3.0
    longer = replace(budget, seconds_left=400.0, seconds_spent=20.0, n_workers=2)
    assert learned.allowed_seconds(query("forest", 1 / 2), longer) == 7.0  # a sixtieth
    assert learned.allowed_seconds(query("forest"), replace(budget, trial_seconds=1.0)) == 1.0
    assert learned.allowed_seconds(query("forest", 1 / 2), Budget()) == inf


def test_pilot_seconds_do_not_count_as_trial_overhead() -> None:
    plain, steps = query("plain"), (StepCost("model", 0, 1e-3, 0.0, hit=False, key=""),)
    trial = told(plain, ("model", 1.0, 0.0))
    evaluation = replace(trial.evaluation, cost_seconds=trial.evaluation.cost_seconds + 50.0)
    pilot = Pilot(1_000, 4_000, steps, 1.0, 9.0, own_seconds=50.0)
    for shown, is_overhead in ((None, True), (pilot, False)):
        learned = costs(replace(trial, evaluation=replace(evaluation, pilot=shown)))
        assert (learned.overhead_seconds > 10) is is_overhead


def test_seconds_of_earlier_studies_are_scaled_to_new_columns_and_classes() -> None:
    """Twice the columns take twice as long, and three classes three times as long."""
    grows = algorithm("grows", growth={"fixed": 0.0, "classes": 1.0})
    space = Space("timed", (Step("scale", (algorithm("unit"),)), Step("model", (grows,))))
    asked = Query(default_configuration(space, ("unit", "grows")), folds=1)
    earlier = Costs(space, replace(OBJECTIVE, n_columns=20, n_classes=2))
    for _ in range(20):
        earlier.tell(told(asked, ("model", 6.0, 6.0)))
    known = tuple(earlier.portable())
    later = Costs(space, replace(OBJECTIVE, n_columns=40, n_classes=3, earlier_seconds=known))
    assert later.is_expected(asked.configuration)
    assert not later.is_known(asked.configuration)  # so that a pilot still checks it
    assert later.seconds(asked) == pytest.approx((6 + 6) * 2 * 3, rel=0.1)
    assert Costs(space, OBJECTIVE).seconds(asked) != pytest.approx(72, rel=0.5)
    for _ in range(20):
        later.tell(told(asked, ("model", 1.0, 0.0)))
    assert later.seconds(asked) == pytest.approx(1, rel=0.2)


def test_seconds_for_more_held_out_rows_are_predicted() -> None:
    """32,000 rows take ten seconds; the constant part takes as long as 500 rows."""
    known = costs(*[told(query("plain"), ("model", 1.0, 10.0))] * 20)
    configuration = query("plain").configuration
    twice = known.held_out_seconds(configuration, 64_000)
    assert twice == pytest.approx(10 * 64.5 / 32.5, rel=0.05)
    assert costs(told(query("plain"), ("model", 1.0, 0.0))).held_out_seconds(configuration, 9) == 0


def test_seconds_of_slow_preprocessing_are_unknown_until_measured() -> None:
    kernel = algorithm("kernel", growth={"rows": 2.0})
    space = Space("timed", (Step("scale", (algorithm("unit"), kernel)), MODELS))
    learned = Costs(space, OBJECTIVE)
    asked = [Query(default_configuration(space, (s, "plain")), folds=1) for s in ("unit", "kernel")]
    assert [learned.has_unknown(query.configuration) for query in asked] == [True, True]
    learned.tell(replace(told(query("plain"), ("model", 1.0, 0.0)), query=asked[0]))
    assert [learned.has_unknown(query.configuration) for query in asked] == [False, True]
