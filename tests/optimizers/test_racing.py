"""A race of configurations, with partial evaluations on many rows."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from worlds import DEPTH, C, algorithm, finite_space, mixed_space, one_algorithm

from prefect_tune.optimizers import (
    Asked,
    Budget,
    Constraint,
    Evaluation,
    Failure,
    FailureKind,
    History,
    Objective,
    Query,
    Racing,
    Space,
    SpaceExhausted,
    Step,
    StepCost,
    Told,
    Trial,
    make_optimizer,
    replay,
)
from prefect_tune.optimizers.racing import (
    Rung,
    estimated,
    is_behind,
    is_behind_on_part,
    margin,
    rungs_of,
)
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.vectors import Encoding
from prefect_tune.optimizers.trials.objective import MANY_ROWS
from prefect_tune.optimizers.trials.outcome import Pilot

FOLDS = Objective(chance=50.0, n_folds=3)
LIMITED = replace(FOLDS, constraints=(Constraint("model_size_bytes", 5.0),))


def raced(objective: Objective = FOLDS, space: Space | None = None) -> Racing:
    return Racing(make_optimizer("random", space or mixed_space(), 0, objective))


def ask(optimizer: Racing) -> Query:
    return optimizer.ask(Budget())


def begin(optimizer: Racing, *losses: float, **about: float) -> Trial:
    """Ask for a first fold, and tell its loss."""
    query = ask(optimizer)
    assert query.folds == 1
    return tell(optimizer, losses[0], **about)


def whole(optimizer: Racing, *losses: float, **about: float) -> Trial:
    """Ask for the first configuration or for the other folds of a survivor, and tell the losses."""
    assert ask(optimizer).is_full
    return tell(optimizer, *losses, **about)


def tell(
    optimizer: Racing, *losses: float, seconds: float = 1.0, model_size_bytes: float = 1.0
) -> Trial:
    """Tell the outcome of the last query."""
    last = optimizer.history[len(optimizer.history) - 1]
    step = StepCost(optimizer.space.steps[-1].name, 0, seconds, 0.0, hit=False, key="")
    mean, measured = sum(losses) / len(losses), {"model_size_bytes": model_size_bytes}
    outcome = Evaluation(mean, losses, seconds, seconds, (step,), constraints=measured)
    ended = last.started().completed(outcome)
    optimizer.tell(ended)
    return ended


def with_incumbent(objective: Objective = FOLDS, **about: float) -> Racing:
    """Return a race whose first configuration has losses 16, 20 and 24."""
    optimizer = raced(objective)
    whole(optimizer, 16.0, 20.0, 24.0, **about)
    return optimizer


def test_only_the_first_configuration_starts_with_all_folds() -> None:
    """Before the first result, no configuration can be behind."""
    optimizer = raced()
    assert ask(optimizer).is_full
    assert ask(optimizer).folds == 1
    assert ask(optimizer).folds == 1
    optimizer = with_incumbent()
    first = ask(optimizer)
    tell(optimizer, 16.0)
    assert ask(optimizer) == replace(first, folds=None)
    assert ask(optimizer).configuration != first.configuration


def test_clearly_worse_configurations_stop_and_survivors_are_told_once() -> None:
    optimizer = with_incumbent()
    begin(optimizer, 40.0, seconds=1.5)
    told = optimizer.inner.history[1]
    assert told.loss == pytest.approx(20.0 + (40.0 - 16.0))
    assert told.cost_seconds == 1.5
    assert [t.number for t in optimizer.history.stopped] == [1]
    begin(optimizer, 17.0, seconds=2.0)
    assert [t.number for t in optimizer.inner.history.pending] == [2]
    whole(optimizer, 17.0, 18.0, 19.0, seconds=3.0)
    told = optimizer.inner.history[2]
    assert (told.loss, told.cost_seconds) == (18.0, 5.0)  # of both stretches
    assert len(optimizer.inner.history) == 3
    assert optimizer.incumbent.number == 3


@pytest.mark.parametrize(("loss", "leads"), [(16.5, False), (15.5, True)])
def test_trial_leads_if_the_first_fold_beats_every_fold_of_the_best_trial(loss, leads) -> None:
    """The best trial has losses 16, 20 and 24; no other trial has run all folds."""
    optimizer = with_incumbent()
    full = optimizer.incumbent
    first = begin(optimizer, loss)
    assert optimizer.incumbent == (first if leads else full)


def test_only_feasible_trials_stop_other_trials() -> None:
    optimizer = with_incumbent(LIMITED, model_size_bytes=9.0)
    begin(optimizer, 90.0, model_size_bytes=1.0)
    assert ask(optimizer).is_full
    optimizer = with_incumbent(LIMITED, model_size_bytes=1.0)
    begin(optimizer, 90.0, model_size_bytes=7.0)
    told = optimizer.inner.history[1]
    assert told.evaluation.constraints == {"model_size_bytes": 7.0}


@pytest.mark.parametrize(("method", "n_folds"), [("hyperband", 3), ("random", 1)])
def test_race_is_refused_for_one_fold_and_for_multi_fidelity_methods(method, n_folds) -> None:
    objective = replace(FOLDS, n_folds=n_folds, n_rows=9_000)
    with pytest.raises(ValueError, match="rac"):
        Racing(make_optimizer(method, mixed_space(), 0, objective))


INCUMBENT = Evaluation(20.0, (16.0, 20.0, 24.0), 3.0, 3.0)
ANY = Query(default_configuration(finite_space(), ("one",)))


def history_of(*losses: tuple[float, ...]) -> History:
    """Return a history of the incumbent and of other trials that ran all folds."""
    history = History()
    evaluations = [INCUMBENT, *(Evaluation(sum(x) / len(x), x) for x in losses)]
    for number, evaluation in enumerate(evaluations):
        history.record(Trial(number, ANY).completed(evaluation))
    return history


THREE = history_of((16.0, 21.0, 26.0), (19.0, 23.0, 27.0), (20.0, 22.0, 24.0))
"""Differences 0 1 2, 3 3 3 and 4 2 0: variances 1, 0 and 4."""


def first(loss: float) -> Evaluation:
    return Evaluation(loss, (loss,))


def test_margin_is_the_deviation_of_a_loss_difference_on_a_single_fold() -> None:
    spread = ((1 + 0 + 4) / 3) ** 0.5
    assert margin(INCUMBENT, THREE) == pytest.approx(spread * (2 / 3) ** 0.5)
    assert margin(INCUMBENT, THREE) == pytest.approx(1.054, abs=1e-3)
    assert not is_behind(first(17.0), INCUMBENT, THREE)
    assert is_behind(first(17.1), INCUMBENT, THREE)  # though the incumbent's mean is 20
    history = history_of((17.0, 21.0, 25.0), (18.0, 22.0, 26.0), (19.0, 23.0, 27.0))
    assert not is_behind(first(16.0), INCUMBENT, history)
    assert is_behind(first(16.1), INCUMBENT, history)
    history = history_of((16.0, 21.0, 26.0), (19.0, 23.0, 27.0))
    assert margin(INCUMBENT, history) is None
    assert not is_behind(first(24.0), INCUMBENT, history)
    assert is_behind(first(24.1), INCUMBENT, history)


def test_margin_on_a_subset_is_the_error_of_earlier_subsets() -> None:
    """Three configurations have losses of 1 on the subset and 3 on all rows, so the error is 2."""
    known = [(1.0, 3.0)] * 3
    assert not is_behind_on_part(2.0, INCUMBENT, known)
    assert is_behind_on_part(2.1, INCUMBENT, known)
    known = [(1.0, 3.0)] * 2
    assert not is_behind_on_part(8.0, INCUMBENT, known)
    assert is_behind_on_part(8.1, INCUMBENT, known)
    alone = Evaluation(20.0, (20.0,))
    assert not is_behind_on_part(80.0, alone, [(1.0, 1.0)] * 2)
    assert is_behind_on_part(80.0, alone, [(1.0, 1.0)] * 3)


def test_estimated_loss_is_paired_on_the_first_fold_and_stays_in_bounds() -> None:
    first = Evaluation(27.0, (27.0,), 1.5, 1.5, constraints={"latency_us": 7.0})
    told = estimated(first, INCUMBENT, Objective(), 11.0)
    assert told.loss == pytest.approx(20.0 + (27.0 - 16.0))  # and not the 27 that were seen
    assert told.fold_losses == (27.0, 31.0, 35.0)
    assert told.cost_seconds == 1.5
    assert told.constraints == {"latency_us": 7.0}
    told = estimated(Evaluation(95.0, (95.0,)), INCUMBENT, Objective(upper=100.0), 79.0)
    assert told.fold_losses == (95.0, 99.0, 100.0)
    assert told.loss == pytest.approx(98.0)


FOLD, WHOLE = Rung(folds=1), Rung()


@pytest.mark.parametrize(
    ("n_rows", "shares"),
    [
        (None, []),
        (MANY_ROWS, []),
        (20_001, [1 / 2]),
        (39_999, [1 / 2]),
        (40_000, [1 / 4]),
        (200_000, [1 / 16, 1 / 4]),
        (1_300_000, [1 / 128, 1 / 32, 1 / 8]),
    ],
)
def test_large_data_gets_first_rungs_of_at_least_10_000_rows(n_rows, shares) -> None:
    parts = rungs_of(Objective(n_rows=n_rows, n_folds=3))
    assert parts == (*(Rung(share, 1) for share in shares), FOLD, WHOLE)


def test_rungs_keep_rows_of_the_rarest_class_and_use_growing_held_out_parts() -> None:
    parts = rungs_of(Objective(n_rows=200_000, n_held_out=80_000, n_folds=1))
    assert parts == (Rung(1 / 16, inf, 1 / 8), Rung(1 / 4, inf, 1 / 2), WHOLE)
    objective = Objective(n_rows=80_000, n_folds=3, n_classes=2, n_rarest=400)
    assert rungs_of(objective)[0].subset == 1 / 4
    assert rungs_of(replace(objective, n_rarest=150)) == (FOLD, WHOLE)
    assert rungs_of(replace(objective, n_classes=0))[0].subset == 1 / 8
    assert rungs_of(Objective(n_rows=80_000, n_folds=1)) == (Rung(1 / 8), WHOLE)
    with pytest.raises(ValueError, match="1 fold"):
        rungs_of(Objective(n_rows=MANY_ROWS, n_folds=1))


MANY = replace(FOLDS, n_rows=80_000)
SHARE, GATHERED = 1 / 8, 8


def gathered(optimizer: Racing, *looks: float) -> Racing:
    """Return eight configurations with these losses on a subset of the rows."""
    for loss in looks:
        query = ask(optimizer)
        assert (query.subset, query.folds) == (SHARE, 1)
        tell(optimizer, loss, seconds=0.5)
    return optimizer


def with_promoted_incumbent(*others: float, seconds: float = 1.0) -> Racing:
    """Return a race whose leader has loss 20 on a subset, then 10, 12 and 14 on the folds."""
    optimizer = gathered(raced(MANY), 20.0, *[*others, *[90.0] * (GATHERED - 1)][: GATHERED - 1])
    best = optimizer.history[0].query.configuration
    for losses in ((10.0,), (10.0, 12.0, 14.0)):
        assert ask(optimizer).configuration == best
        tell(optimizer, *losses, seconds=seconds)
    return optimizer


def test_best_configuration_on_the_subset_is_promoted_to_one_fold_and_then_to_all() -> None:
    looks = 30.0, 20.0, 25.0, 40.0, 50.0, 60.0, 70.0, 80.0
    optimizer = gathered(raced(MANY), *looks)
    best = optimizer.history[1]
    assert ask(optimizer) == Query(best.query.configuration, folds=1)
    assert optimizer.incumbent == best  # it leads while its next stretch is under way
    tell(optimizer, 15.0)
    assert ask(optimizer) == Query(best.query.configuration)
    assert optimizer.reason.text == "not behind on the first fold; next: a full evaluation"
    # With workers to spare the next best are promoted meanwhile.
    busy = gathered(raced(MANY), *looks)
    asked = [ask(busy).configuration for _ in range(3)]
    assert asked == [busy.history[n].query.configuration for n in (1, 2, 0)]


TIMED = Budget(seconds_spent=40.0, seconds_left=60.0)


def test_best_configuration_waits_if_all_rows_would_exceed_the_time_left() -> None:
    """Half a second on an eighth of the rows becomes about four seconds per worker."""
    optimizer = gathered(raced(MANY), 30.0, 40.0, *[90.0] * (GATHERED - 2))
    best, second = (optimizer.history[n].query.configuration for n in range(2))
    short = replace(TIMED, seconds_left=2.0, n_workers=2)
    assert optimizer.ask(short).configuration not in {best, second}  # nor the second best
    assert optimizer.ask(TIMED) == Query(best, folds=1)
    last = gathered(raced(MANY), 30.0, *[90.0] * (GATHERED - 1))
    assert last.ask(replace(short, trials_left=0)).folds == 1


def test_evaluation_predicted_to_exceed_the_time_uses_fewer_rows() -> None:
    optimizer = raced(MANY, one_algorithm(DEPTH))
    for _ in range(GATHERED - 1):
        assert ask(optimizer).subset == SHARE
        tell(optimizer, 50.0, seconds=40.0)
    query = optimizer.ask(replace(TIMED, seconds_left=999.0))
    assert query.subset < SHARE
    assert optimizer.costs.seconds(query) < 40.0
    assert "fewer rows" in optimizer.reason.text
    again = optimizer.ask(Budget(trial_seconds=1e-3))
    assert again.subset == SHARE  # its asks repeat, whatever trials take


def unstarted(optimizer: Racing, limit_seconds: float) -> Trial:
    """Report the last query as not started, after a 3-second pilot on 1,000 rows."""
    pilot = Pilot(
        1_000, 1_000, (StepCost("model", 0, 3.0, 0.0, hit=False, key=""),), 99.0, limit_seconds
    )
    failure = Failure(FailureKind.TIMEOUT, "not started", cost_seconds=3.0, pilot=pilot)
    trial = optimizer.history[len(optimizer.history) - 1].started().failed(failure)
    optimizer.tell(trial)
    return trial


def test_unstarted_trial_is_repeated_on_fewer_rows() -> None:
    optimizer = raced(MANY)
    first = ask(optimizer)
    failed = unstarted(optimizer, limit_seconds=20.0)
    assert len(optimizer.inner.history.pending) == 1
    again = ask(optimizer)
    assert again == replace(first, subset=again.subset)
    assert again.subset < first.subset
    assert optimizer.costs.seconds(again) <= 20.0
    replayed = raced(MANY)
    replay(replayed, [Asked(0, first, Budget()), Told(failed), Asked(1, again, Budget())], None)
    tell(replayed, 30.0)
    tell(optimizer, 30.0)
    assert ask(replayed) == ask(optimizer)
    assert ask(optimizer).configuration != first.configuration
    unstarted(optimizer, limit_seconds=0.5)  # not even the fewest rows would end
    (failed,) = optimizer.inner.history.failed
    optimizer.retry(len(optimizer.history) - 1)
    assert not optimizer.inner.history.failed
    assert failed.number in {t.number for t in optimizer.inner.history.pending}


def test_evaluation_on_the_usual_subset_may_take_longer_after_a_smaller_subset() -> None:
    """A first evaluation may take 20 of 1,200 worker-seconds; fewer rows took 15 seconds."""
    optimizer, budget = raced(MANY), replace(TIMED, seconds_left=1160.0)
    look = optimizer.ask(budget)
    unstarted(optimizer, limit_seconds=20.0)
    smaller = optimizer.ask(budget)
    assert (smaller.configuration, smaller.subset < SHARE) == (look.configuration, True)
    tell(optimizer, 30.0, seconds=15.0)
    assert optimizer.costs.seconds(look) > optimizer.costs.allowed_seconds(look, budget)
    assert optimizer._would_end(0, budget)


@pytest.mark.parametrize(("smaller", "leads"), [(30.0, True), (37.0, False)])
def test_smaller_subset_leads_only_if_far_better_while_no_trial_is_full(smaller, leads) -> None:
    optimizer = raced(MANY)
    ask(optimizer)
    first = tell(optimizer, 40.0)
    ask(optimizer)
    unstarted(optimizer, limit_seconds=20.0)
    assert ask(optimizer).subset < SHARE
    assert optimizer.incumbent == first
    look = tell(optimizer, smaller)
    assert optimizer.incumbent == (look if leads else first)


@pytest.mark.parametrize(("loss", "leads"), [(9.0, True), (12.0, False)])
def test_small_subset_leads_a_full_trial_only_with_a_lower_loss(loss, leads) -> None:
    optimizer = ran_further()
    full = optimizer.incumbent
    assert full.loss == 10.0
    assert optimizer.ask(Budget(seconds_spent=1e3, seconds_left=3.0)).subset == FIRST
    look = tell(optimizer, loss)
    assert optimizer.incumbent == (look if leads else full)


def test_small_subset_never_leads_under_constraints() -> None:
    optimizer = ran_further(Constraint("model_size_bytes", 1e6))
    full = optimizer.incumbent
    assert optimizer.ask(Budget(seconds_spent=1e3, seconds_left=3.0)).subset == FIRST
    tell(optimizer, 4.0)
    assert optimizer.incumbent == full


@pytest.mark.parametrize(("loss", "leads"), [(7.0, True), (9.0, False)])
def test_small_subset_with_half_of_the_full_loss_leads_before_chance_is_known(loss, leads) -> None:
    optimizer = raced(replace(MANY, n_folds=1))
    for first in (20.0, *[90.0] * (GATHERED - 1)):
        assert ask(optimizer).subset == SHARE
        tell(optimizer, first, seconds=0.5)
    while not ask(optimizer).is_full:
        tell(optimizer, 18.0)
    full = tell(optimizer, 16.0)
    assert optimizer.ask(Budget(seconds_spent=1e3, seconds_left=0.6)).subset == SHARE
    look = tell(optimizer, loss)
    assert optimizer.incumbent == (look if leads else full)


def test_subset_evaluations_fill_the_first_fifth_of_the_budget() -> None:
    optimizer = gathered(raced(MANY), 30.0, 20.0)
    best = optimizer.history[1].query.configuration
    assert optimizer.ask(Budget(seconds_spent=19.0, seconds_left=81.0)).subset == SHARE
    assert optimizer.ask(Budget(trials_spent=2, trials_left=2)).subset == SHARE
    assert optimizer.ask(Budget(seconds_spent=21.0, seconds_left=79.0)) == Query(best, folds=1)
    none_may_begin = gathered(raced(MANY), 30.0, 20.0).ask(Budget(trials_left=0))
    assert none_may_begin == Query(best, folds=1)


def test_method_is_told_subset_losses_until_a_trial_uses_all_rows() -> None:
    optimizer = gathered(raced(MANY), 30.0, 20.0, 22.0, *[90.0] * (GATHERED - 3))
    inner = optimizer.inner.history
    assert [t.loss for t in inner] == [30.0, 20.0, 22.0, *[90.0] * (GATHERED - 3)]
    assert optimizer.decisions["race"] == {"begun": GATHERED, "stopped": 0}
    for losses in ((10.0,), (10.0, 12.0, 14.0)):
        assert ask(optimizer).configuration == inner[1].query.configuration
        assert inner[1].loss == 20.0
        tell(optimizer, *losses)
    assert inner[1].loss == 12.0
    assert inner[3].loss == 12.0 + 70.0  # behind, and told as on all rows
    assert inner[2].loss == 12.0 + 2.0  # it may go on, and until then an estimate is told


def goes_on(optimizer: Racing, loss: float) -> bool:
    """Return whether a configuration with that loss on a subset is promoted to all rows next."""
    ask(optimizer)
    tell(optimizer, loss)
    return ask(optimizer).subset == 1


def test_margin_is_the_spread_of_folds_and_later_the_error_of_subsets() -> None:
    optimizer = with_promoted_incumbent()
    assert not goes_on(optimizer, 24.1)
    tell(optimizer, 90.0)
    assert goes_on(optimizer, 23.9)
    # Three that looked 1 worse were 1, 1 and 4 worse: 3^2 / 3 under the root.
    optimizer = with_promoted_incumbent(21.0, 21.0, 21.0)
    for whole in ((11.0, 13.0, 15.0), (11.0, 13.0, 15.0), (14.0, 16.0, 18.0)):
        for losses in ((10.0,), whole):
            assert ask(optimizer).subset == 1
            tell(optimizer, *losses)
    assert not goes_on(optimizer, 21.74)
    tell(optimizer, 90.0)
    assert goes_on(optimizer, 21.72)


RUNGS = Objective(chance=50.0, n_rows=200_000, n_folds=1)
FIRST, SECOND = 1 / 16, 1 / 4


def on_rung(*losses: float, objective: Objective = RUNGS) -> Racing:
    """Return configurations with these losses on the first of two rungs."""
    optimizer = raced(objective)
    for loss in losses:
        assert ask(optimizer).subset == FIRST
        tell(optimizer, loss)
    return optimizer


def test_only_configurations_near_the_best_get_more_rows_before_a_full_trial() -> None:
    """Three configurations are promoted with the best, and a gap of 70 persists on more rows."""
    optimizer = on_rung(20.0, *[90.0] * (GATHERED - 1))
    short = Budget(seconds_spent=1000.0, seconds_left=12.0)
    asked = []
    for _ in range(24):
        query = optimizer.ask(short)
        asked.append(query.subset)
        loss = {SECOND: 15.0 if len(asked) == 1 else 85.0}.get(query.subset, 90.0)
        tell(optimizer, loss, seconds=16 * query.subset)
    assert asked[:3] == [SECOND] * 3
    assert asked.count(SECOND) == 4


def test_a_third_of_the_seconds_go_to_first_rungs() -> None:
    optimizer, spent = on_rung(*[20.0] * GATHERED), {True: 0.0, False: 0.0}
    for _ in range(60):
        query = optimizer.ask(Budget(seconds_spent=1e3, seconds_left=1e4))
        seconds = 16 * query.subset
        spent[query.subset == FIRST] += seconds
        tell(optimizer, 20.0, seconds=seconds)
    assert spent[True] == pytest.approx(spent[False] / 2, abs=16 + GATHERED)
    without_time = on_rung(*[20.0] * GATHERED)
    assert [ask(without_time).subset for _ in range(3)] == [SECOND] * 3


def ran_further(*constraints: Constraint) -> Racing:
    """Promote four of eight configurations to four times the rows, and one of these to all rows."""
    losses = [20.0, *[30.0] * 3, *[90.0] * (GATHERED - 4)]
    optimizer = on_rung(*losses, objective=replace(RUNGS, constraints=constraints))
    short = Budget(seconds_spent=1000.0, seconds_left=12.0)
    losses = [15.0, 25.0, 25.0, 25.0]
    while losses:
        is_first = optimizer.ask(short).subset == FIRST
        tell(optimizer, 90.0 if is_first else losses.pop(0), seconds=1.0 if is_first else 4.0)
    assert ask(optimizer).subset == 1.0
    tell(optimizer, 10.0, seconds=16.0)
    return optimizer


def test_larger_subsets_decide_elimination_if_few_full_trials_exist() -> None:
    """Gaps of 10 stay the same on four times the rows, so a gap of 70 ends a configuration."""
    optimizer = ran_further()
    assert optimizer.decisions["race"]["stopped"] == len(optimizer.inner.history) - 4
    assert [t.loss for t in optimizer.inner.history][:5] == [10.0, 20.0, 20.0, 20.0, 80.0]


AMPLE = Budget(seconds_spent=500.0, seconds_left=500.0)


def with_two_parameters(space: Space | None = None) -> Racing:
    """Return a race of one model on many rows, in which the best configuration is full."""
    race = raced(MANY, space or one_algorithm(DEPTH, C))
    optimizer = gathered(race, 20.0, *[90.0] * (GATHERED - 1))
    for losses in ((10.0,), (10.0, 12.0, 14.0)):
        ask(optimizer)
        tell(optimizer, *losses, seconds=1.0)
    return optimizer


def units(query: Query) -> np.ndarray:
    positions, _ = Encoding(one_algorithm(DEPTH, C)).to_cube(query.configuration)
    return positions


def test_best_model_first_changes_toward_more_capacity() -> None:
    deeper = algorithm("a", DEPTH, C, growth={DEPTH.name: 1.0})
    optimizer = with_two_parameters(Space("one", (Step("s", (deeper,)),)))
    center = units(optimizer.incumbent.query)
    for _ in range(2):
        of_c, of_depth = units(optimizer.ask(AMPLE)) - center
        assert of_depth > 0.05
        assert of_c == pytest.approx(0.0, abs=1e-6)
        tell(optimizer, *[5.0] * 3)
        center = units(optimizer.incumbent.query)


def test_best_model_changes_in_small_steps_and_a_failed_step_is_reversed() -> None:
    optimizer = with_two_parameters()
    center = units(optimizer.incumbent.query)
    first = optimizer.ask(AMPLE)
    assert (first.subset, first.folds) == (1.0, None)
    step = units(first) - center
    assert 0.05 < np.linalg.norm(step) < 0.25
    tell(optimizer, 30.0, 32.0, 34.0)
    opposite = optimizer.ask(AMPLE)
    np.testing.assert_allclose(units(opposite) - center, -step, atol=0.05)
    tell(optimizer, 5.0, 6.0, 7.0)
    moved = optimizer.ask(AMPLE)
    assert np.linalg.norm(units(moved) - units(opposite)) < 0.25


def test_small_changes_use_the_most_rows_that_allow_six_runs() -> None:
    optimizer = with_two_parameters()
    scarce = Budget(seconds_spent=5.0, seconds_left=6.0)
    changed = optimizer.ask(scarce)
    assert (changed.subset, changed.folds) == (1.0, 1)


def test_race_without_hyperparameters_ends_with_a_full_trial() -> None:
    """No hyperparameter of the best model can change."""
    optimizer = raced(MANY, one_algorithm())
    while not (query := optimizer.ask(AMPLE)).is_full:
        tell(optimizer, *[20.0] * (query.folds or 3))
    tell(optimizer, *[20.0] * 3)
    with pytest.raises(SpaceExhausted):
        optimizer.ask(AMPLE)


def test_replay_of_a_race_repeats_small_changes() -> None:
    events, optimizer = [], with_two_parameters()
    for _ in range(4):
        query = optimizer.ask(AMPLE)
        tell(optimizer, *[20.0] * (query.folds or 3))
    for trial in optimizer.history:
        events += [Asked(trial.number, trial.query, None), Told(trial)]
    again = raced(MANY, one_algorithm(DEPTH, C))
    replay(again, events)
    assert again.ask(AMPLE) == optimizer.ask(AMPLE)


@pytest.mark.parametrize(("left", "is_promoted"), [(10.0, False), (100.0, True)])
def test_slow_configuration_waits_after_a_full_trial_unless_time_is_ample(
    left, is_promoted
) -> None:
    optimizer = with_promoted_incumbent()
    budget = Budget(seconds_spent=1.0, seconds_left=left)
    slow = optimizer.ask(budget)
    assert slow.subset < 1
    tell(optimizer, 19.0, seconds=15.0)
    asked = [optimizer.ask(budget) for _ in range(3)]
    promoted = {q.configuration for q in asked if q.subset == 1.0}
    assert (slow.configuration in promoted) == is_promoted


def test_first_promotion_prefers_a_quick_configuration_that_keeps_up() -> None:
    optimizer = raced(MANY)
    first = ask(optimizer).configuration["model"].algorithm
    tell(optimizer, 20.0, seconds=10.0)
    for _ in range(GATHERED - 1):
        is_slow = ask(optimizer).configuration["model"].algorithm == first
        tell(optimizer, 20.0 if is_slow else 20.5, seconds=10.0 if is_slow else 0.5)
    promoted = optimizer.ask(Budget(seconds_spent=100.0, seconds_left=400.0))
    assert promoted.subset == 1.0
    assert promoted.configuration["model"].algorithm != first


def test_known_configurations_are_all_started_despite_small_changes() -> None:
    space = one_algorithm(DEPTH, C)
    known = [
        Encoding(space).from_cube(("a",), np.array([u, 0.5])) for u in np.linspace(0.02, 0.9, 12)
    ]
    optimizer = raced(MANY, space)
    optimizer.begin_with(known)
    for _ in range(60):
        query = optimizer.ask(AMPLE)
        tell(optimizer, *[20.0 + len(optimizer.history)] * (query.folds or 3), seconds=0.5)
    assert set(known) <= optimizer.history.asked
    assert optimizer.inner.inserted


def test_configurations_are_promoted_although_the_best_trial_has_no_partial_run() -> None:
    optimizer = with_two_parameters()
    best = tell_change(optimizer)
    assert optimizer.incumbent.query.configuration == best
    promoted = set()
    for _ in range(40):
        query = optimizer.ask(AMPLE)
        if query.subset == 1.0:
            promoted.add(query.configuration)
        tell(optimizer, *[1.0 if query.subset < 1 else 6.0] * (query.folds or 3), seconds=0.5)
    assert promoted - optimizer.inner.inserted - {best}


def tell_change(optimizer: Racing) -> object:
    """Tell the outcome of a small change that becomes the best configuration."""
    query = optimizer.ask(AMPLE)
    assert query.configuration in optimizer.inner.inserted
    tell(optimizer, *[5.0] * (query.folds or 3))
    return query.configuration


def test_small_changes_start_from_the_best_feasible_configuration() -> None:
    limit = (Constraint("model_size_bytes", 5.0),)
    optimizer = raced(replace(MANY, constraints=limit), one_algorithm(DEPTH, C))
    gathered(optimizer, 20.0, *[90.0] * (GATHERED - 1))
    for losses in ((10.0,), (10.0, 12.0, 14.0)):
        ask(optimizer)
        tell(optimizer, *losses)
    center = units(optimizer.incumbent.query)
    changed = optimizer.ask(AMPLE)
    tell(optimizer, *[1.0] * (changed.folds or 3), model_size_bytes=9.0)
    opposite = optimizer.ask(AMPLE)
    np.testing.assert_allclose(units(opposite) + units(changed), 2 * center, atol=0.1)


@pytest.mark.parametrize("spent", [0.1, 5.0, 100.0])
def test_measured_seconds_do_not_matter_without_a_time_budget(spent) -> None:
    optimizer = with_two_parameters()
    asked = [optimizer.ask(Budget(seconds_spent=spent, trials_left=9)) for _ in range(3)]
    expected = with_two_parameters()
    assert asked == [expected.ask(Budget(seconds_spent=1.0, trials_left=9)) for _ in range(3)]


def test_pending_promotion_does_not_prevent_the_choice_of_the_best_trial() -> None:
    optimizer = with_promoted_incumbent(20.5)
    promoted = optimizer.ask(Budget(seconds_spent=100.0, seconds_left=900.0))
    while promoted.subset < 1:
        tell(optimizer, 19.0, seconds=0.5)
        promoted = optimizer.ask(Budget(seconds_spent=100.0, seconds_left=900.0))
    assert optimizer.incumbent.query.is_full
    optimizer.ask(Budget(seconds_spent=100.0, seconds_left=900.0))
    assert optimizer.incumbent.query.is_full
