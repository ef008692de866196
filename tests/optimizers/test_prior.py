"""Observations of earlier runs: their weights, and their use by every method."""

import json
from dataclasses import replace

import numpy as np
import pytest
from contracts.methods import ALL
from contracts.optimizer import Case, each, loss_of, run, through_json
from worlds import ask_and_tell, counted_space, finite_space, mixed_space, told

from prefect_tune.optimizers import (
    Budget,
    Configuration,
    Optimizer,
    Prior,
    PriorGiven,
    PriorTrial,
    Query,
    Racing,
    RandomSearch,
    Space,
    SpaceExhausted,
    best_and_diverse,
    replay,
)
from prefect_tune.optimizers.models.forest import OlderMean
from prefect_tune.optimizers.trials.earlier import OlderTrials, Transfer

SPACE = mixed_space()


def earlier_run(space: Space, n_start: int = 4) -> Prior:
    """Return the prior from a random search of this space."""
    drawn = RandomSearch(space, 99)
    configurations = [drawn.ask(Budget()).configuration for _ in range(30)]
    losses = [loss_of(Query(configuration)) for configuration in configurations]
    trials = [PriorTrial(c, y) for c, y in zip(configurations, losses, strict=True) if y]
    return Prior(tuple(trials), best_and_diverse(trials, n_start), "last night")


PRIOR = earlier_run(SPACE)


def tree(depth: int) -> Configuration:
    return Configuration.of(SPACE, ("unit", "tree"), [{}, {"depth": depth}])


def bayes(scale: str) -> Configuration:
    return Configuration.of(SPACE, (scale, "bayes"), [{}, {}])


def reversed_losses(prior: Prior) -> Prior:
    trials = (replace(trial, loss=100 - trial.loss) for trial in prior.trials)
    return Prior(tuple(trials), prior.start, prior.name)


def asked_by(optimizer: Optimizer, n: int) -> list[Configuration]:
    queries = ask_and_tell(optimizer, lambda query: loss_of(query) or 50.0, n, n)
    return [query.configuration for query in queries]


@each(ALL)
def test_best_of_an_earlier_run_is_proposed_first_and_replay_is_identical(case: Case) -> None:
    unbroken, resumed = case.make(SPACE), case.make(SPACE)
    unbroken.begin_after(PRIOR)
    events = [PriorGiven(PRIOR), *run(unbroken, 7, leaves=1)]
    replay(resumed, [through_json(e, SPACE) for e in events], unbroken.memo)
    assert [t.query.configuration for t in unbroken.history][:4] == list(PRIOR.start)
    assert resumed.decisions == unbroken.decisions
    assert run(resumed, 4, first=7) == run(unbroken, 4, first=7)


LEARNING = ("smac", "tpe", "flash", "admm", "bohb", "jopt", "esmbo", "ei", "fabolas")


@each({name: ALL[name] for name in LEARNING})
def test_models_learn_from_older_trials(case: Case) -> None:
    """If older trials were ignored, the proposals would be the same with and without them."""
    space = counted_space((2, 3))
    learns, repeats = case.make(space), case.make(space)
    many = earlier_run(space, 14)
    learns.begin_after(many)
    repeats.begin_after(Prior((), many.start))
    assert asked_by(learns, 30)[14:] != asked_by(repeats, 30)[14:]


def test_weight_of_a_prior_follows_from_the_spread_of_loss_pairs_around_a_line() -> None:
    x = np.array([0.0, 10.0, 20.0, 30.0, 40.0])
    y = x + np.array([3.0, -3.0, 0.0, -3.0, 3.0])
    transfer = Transfer.of(list(zip(x, y, strict=True)), x)
    assert (transfer.slope, transfer.intercept) == (1.0, 0.0)
    # Median deviations are 10 of the losses and 3 of the residuals, of which three are free.
    assert transfer.weight == pytest.approx(100 / (100 + 9 * 5 / 3))
    assert transfer.correlation == pytest.approx(1.0)
    # Four pairs of slope 1 are added to five of slope 2, which leaves residuals of slope 4/9.
    steep = Transfer.of(list(zip(x, 2 * x, strict=True)), x)
    assert (steep.slope, steep.intercept) == pytest.approx((14 / 9, 80 / 9))
    assert steep.weight == pytest.approx(14**2 / (14**2 + 4**2 * 5 / 3))
    similar = Transfer.of([(k / 100, float(k)) for k in range(5)], x)  # a slope of 100 counts as 3
    assert similar.slope == pytest.approx((5 * 3 + 4) / 9)
    # An outlier does not move the line.
    outlier = Transfer.of([*((float(k), 5.0 + k) for k in range(6)), (6.0, 400.0)], np.arange(7.0))
    assert outlier.mapped(np.arange(6.0)) == pytest.approx(5 + np.arange(6.0))
    few = Transfer.of([(1.0, 4.0), (2.0, 6.0), (5.0, 8.0)], np.arange(6.0))  # no slope yet
    assert few.mapped(np.array([1.0])) == 4.0


@pytest.mark.parametrize(
    ("new", "is_dropped"), [((1, 2, 3, 4), False), ((4, 3, 2, 1), True), ((2, 4, 1, 3), True)]
)
def test_prior_with_a_different_ranking_is_dropped(new: tuple[int, ...], is_dropped: bool) -> None:
    older = np.array([1.0, 2.0, 3.0, 4.0])
    transfer = Transfer.of(list(zip(older, new, strict=True)), older)
    assert transfer.is_dropped == is_dropped
    prior = Prior(tuple(PriorTrial(tree(depth), 1.0) for depth in (1, 2, 3, 4)))
    assert bool(len(OlderTrials.of(prior, transfer))) != is_dropped


def test_older_runs_count_less_and_the_newest_loss_of_a_configuration_counts() -> None:
    trials = (PriorTrial(tree(1), 9.0, 3), PriorTrial(tree(1), 4.0, 2), PriorTrial(tree(2), 5.0))
    older = OlderTrials.of(Prior(trials), Transfer(weight=0.5))
    assert older.raw.tolist() == [4.0, 5.0]
    assert older.weights.tolist() == [0.25, 0.5]
    trials = tuple(PriorTrial(tree(depth), float(depth)) for depth in range(1, 21))
    share = OlderTrials.of(Prior(trials), Transfer(slope=2.0, intercept=1.0, weight=0.25))
    assert [trial.loss for trial in share.subsample()] == [5.0, 13.0, 21.0, 29.0, 37.0]


def test_mean_of_equal_older_losses_is_the_loss_in_this_study() -> None:
    trials = tuple(PriorTrial(tree(depth), 3.0) for depth in range(1, 5))
    older = OlderTrials.of(Prior(trials), Transfer(slope=2.0, intercept=1.0, weight=0.5))
    mean = OlderMean(lambda known: np.zeros((len(known), 1))).given(older)
    assert mean(np.zeros((2, 1))) == pytest.approx([7.0, 7.0])


def test_repeated_configurations_are_alternately_the_best_and_the_most_different() -> None:
    trials = [PriorTrial(tree(depth), float(depth)) for depth in range(1, 9)]
    trials += [PriorTrial(bayes("unit"), 4.5), PriorTrial(bayes("none"), 50.0)]
    trials += [PriorTrial(tree(1), 60.0, runs_ago=2)]
    assert best_and_diverse(trials, 4) == (tree(1), bayes("unit"), tree(2), tree(4))
    assert best_and_diverse(trials[::-1], 4) == best_and_diverse(trials, 4)
    assert len(best_and_diverse(trials, 40)) == 10
    assert best_and_diverse([]) == ()


def test_prior_survives_json_and_skips_trials_outside_the_space() -> None:
    document = json.loads(json.dumps(PRIOR.to_json()))
    assert Prior.from_json(document, SPACE) == PRIOR
    document["trials"][0]["configuration"]["model"] = {"algorithm": "gone"}
    document["trials"][1]["configuration"] = {"other": {"algorithm": "unit"}}
    document["start"][0]["scale"]["algorithm"] = "gone"
    inside = Prior.from_json(document, SPACE)
    assert (inside.trials, inside.start) == (PRIOR.trials[2:], PRIOR.start[1:])
    assert Prior.from_json(inside.to_json(), SPACE).n_skipped == inside.n_skipped == 2


def test_every_method_reports_the_prior_and_drops_a_misleading_prior() -> None:
    for prior, is_dropped in ((PRIOR, False), (reversed_losses(PRIOR), True)):
        optimizer = ALL["random"].make(SPACE)
        optimizer.begin_after(prior)
        assert optimizer.decisions["prior"]["pairs"] == 0
        asked_by(optimizer, 5)
        found = optimizer.decisions["prior"]
        assert (found["pairs"], found["trials"]) == (4, len(PRIOR.trials))
        (line,) = optimizer.method.decision_lines(optimizer.decisions, str)
        assert "last night" in line
        assert ("dropped" in line) == is_dropped


def test_race_compares_a_prior_only_with_full_losses() -> None:
    optimizer = Racing(ALL["random"].make(finite_space()))
    drawn = ALL["random"].make(finite_space())
    everything = [drawn.ask(Budget()).configuration for _ in range(5)]
    trials = tuple(PriorTrial(c, 1.0) for c in everything)
    optimizer.begin_after(Prior(trials, tuple(everything[:2])))
    for number in range(20):
        try:
            query = optimizer.ask(Budget())
        except SpaceExhausted:
            break
        assert query.is_full or number > 1
        optimizer.tell(told(number, query, 5.0 if number == 0 else 80.0 + number))
    stopped = optimizer.decisions["race"]["stopped"]
    assert stopped > 0
    assert optimizer.decisions["prior"]["pairs"] == 5 - stopped


def test_misleading_prior_yields_to_the_portfolio() -> None:
    misled, known = ALL["flash"].make(SPACE), [bayes("unit"), tree(7), tree(9)]
    prior = reversed_losses(earlier_run(SPACE, 8))
    misled.begin_with(known)
    misled.begin_after(prior)
    assert asked_by(misled, 7) == [*prior.start[:4], *known]
    assert misled.decisions["prior"]["weight"] == 0


def test_portfolio_is_replaced_only_by_an_ample_prior() -> None:
    for trials, replaces in ((PRIOR.trials, True), (PRIOR.trials[:5], False)):
        optimizer, known = ALL["flash"].make(SPACE), [bayes("unit"), tree(7)]
        optimizer.begin_with(known)
        optimizer.begin_after(Prior(trials, PRIOR.start[:2]))
        asked = asked_by(optimizer, 4)
        assert asked[:2] == list(PRIOR.start[:2])
        assert (asked[2:] != known) == replaces
