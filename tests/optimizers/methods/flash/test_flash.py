"""FLASH: phases and their lengths, scores, pruning, tuning, and shared values."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from worlds import (
    BENCHMARK,
    FIRST_THIRTY,
    TOY,
    ask_and_tell,
    counted_space,
    defaults_of,
    events_space,
    one_hot_paths,
    planted,
    run_steps,
    told,
)

from prefect_tune.optimizers import (
    Admm,
    Asked,
    Budget,
    Flash,
    History,
    Objective,
    Query,
    Space,
    Told,
    Trial,
    replay,
)
from prefect_tune.optimizers.methods.declarations import FlashOptions
from prefect_tune.optimizers.methods.flash.design import PathTable
from prefect_tune.optimizers.methods.flash.flash import phase_lengths, subspace_of
from prefect_tune.optimizers.methods.flash.scores import EffectSearch, ranked
from prefect_tune.optimizers.methods.smac import ForestSettings
from prefect_tune.optimizers.models.path_linear import PathLinear
from prefect_tune.optimizers.search.improvement import log_expected_improvement
from prefect_tune.optimizers.space.configuration import default_configuration


def by_path(optimizer: Flash) -> Callable[[Query], float]:
    """Return a function whose loss of a query is the number of its path, from 1."""
    paths = list(optimizer.space.paths())
    return lambda query: float(paths.index(query.configuration.path)) + 1


def test_benchmark_of_the_paper_is_reproduced() -> None:
    """Losses and log seconds are sums over algorithms; thirty D-optimal picks come first."""
    optimizer = Flash(counted_space(BENCHMARK), 0, Objective(), variant="paper")
    paths, one_hot = list(optimizer.space.paths()), one_hot_paths(BENCHMARK)
    losses = 20 + one_hot @ np.array([((7 * c) % 33) / 4 for c in range(33)])
    seconds = np.exp(1 + one_hot @ np.array([((5 * c) % 33) / 20 for c in range(33)]))
    picks: list[int] = []
    for number in range(60):
        if number < 30:
            query = Query(default_configuration(optimizer.space, paths[FIRST_THIRTY[number]]))
            replay(optimizer, [Asked(number, query, Budget())])
        else:
            query = optimizer.ask(Budget())
        picks.append(i := paths.index(query.configuration.path))
        optimizer.tell(told(number, query, float(losses[i]), float(seconds[i])))
    assert picks[30:35] == [329, 262, 686, 216, 548]
    assert len(set(picks[30:])) >= 25
    optimizer.ask(Budget())
    kept = optimizer.decisions["subspace"].values()
    assert all(a in ids for a, ids in zip(paths[238], kept, strict=True))
    assert optimizer.decisions["n_subspace_paths"] < 100


LENGTHS = {"n_init": 6, "n_prune": 6}


@pytest.mark.parametrize(("options", "phases"), [({}, 2), ({"variant": "paper"}, 1)])
def test_phases_follow_in_order_and_the_forest_stays_in_the_subspace(options, phases) -> None:
    optimizer = Flash(counted_space((3, 4)), 0, Objective(), r=2, **LENGTHS, **options)
    ask_and_tell(optimizer, by_path(optimizer), 12)
    of_phase: dict[str, list[bool]] = defaultdict(list)
    for _ in range(12):
        (query,) = ask_and_tell(optimizer, by_path(optimizer), 1)
        decisions = optimizer.decisions
        assert (decisions["n_init"], decisions["n_prune"], decisions["phase"]) == (6, 6, 3)
        assert optimizer.memo["subspace"] == decisions["subspace"]  # for a resumed search
        pairs = zip(query.configuration.path, decisions["subspace"].values(), strict=True)
        of_phase[optimizer._because.phase].append(all(a in ids for a, ids in pairs))
    assert len(of_phase) == phases
    assert all(of_phase["forest"])


@pytest.mark.parametrize(("options", "is_kept"), [({}, False), ({"variant": "paper"}, True)])
def test_subspace_follows_the_losses_of_phase_three_except_in_the_paper(options, is_kept) -> None:
    optimizer = Flash(counted_space((4, 4)), 0, Objective(), r=1, **LENGTHS, **options)
    ask_and_tell(optimizer, by_path(optimizer), 13)
    first = optimizer.decisions["subspace"]

    def best_outside(query: Query) -> float:
        pairs = zip(query.configuration.path, first.values(), strict=True)
        return 50.0 if all(a in ids for a, ids in pairs) else 0.0

    ask_and_tell(optimizer, best_outside, 20)
    assert (optimizer.decisions["subspace"] == first) == is_kept


def test_paper_variant_tunes_with_trials_of_the_subspace_only() -> None:
    optimizer = Flash(counted_space((3, 4)), 0, Objective(), r=1, **LENGTHS, variant="paper")
    ask_and_tell(optimizer, by_path(optimizer), 12)
    optimizer.ask(Budget())
    learned: list[History] = []
    search = optimizer._tuning
    assert search is not None
    propose = search.propose
    search.propose = lambda history, rng: learned.append(history) or propose(history, rng)
    optimizer.ask(Budget())
    kept = set(optimizer.space.restricted_to(optimizer.decisions["subspace"]).paths())
    inside = [t for t in optimizer.history if t.query.configuration.path in kept]
    assert list(learned[0]) == inside[:-1]
    values = dict(optimizer.history[0].query.configuration["step0"].values)
    assert values["h0"] != 0.5  # random, not the default
    assert len(inside) < 14


def test_pending_path_is_not_proposed_again_even_if_best() -> None:
    optimizer = Flash(counted_space((3, 4)), 0, Objective(), variant="paper", n_init=6, n_prune=9)
    ask_and_tell(optimizer, by_path(optimizer), 9)
    assert optimizer.decisions["phase"] == 2
    twin, other, third = (optimizer.ask(Budget()).configuration.path for _ in range(3))
    assert len({twin, other, third}) == 3


def test_subspace_always_contains_the_path_of_the_incumbent() -> None:
    """Two algorithms are good only together, so no sum of effects would select the best path."""
    losses = {("a1", "a1"): 1.0, ("a0", "a1"): 60.0, ("a1", "a0"): 60.0, ("a0", "a0"): 20.0}
    for options, is_kept in (({}, True), ({"variant": "paper"}, False)):
        optimizer = Flash(
            counted_space((3, 3)), 0, Objective(), r=1, n_init=9, n_prune=0, **options
        )
        paths = list(optimizer.space.paths())
        rng = np.random.default_rng(0)
        for number, path in enumerate(paths):
            query = Query(default_configuration(optimizer.space, path))
            loss = losses.get(path, 15.0 + float(rng.random()))
            replay(optimizer, [Asked(number, query, Budget()), Told(told(number, query, loss))])
        optimizer.ask(Budget())
        subspace = optimizer.decisions["subspace"]
        is_inside = "a1" in subspace["step0"] and "a1" in subspace["step1"]
        assert is_inside == is_kept


@pytest.mark.slow
def test_phases_shrink_to_two_fifths_of_a_small_budget_with_one_note() -> None:
    optimizer = Flash(counted_space((4, 5, 5)), 0, Objective())
    ask_and_tell(optimizer, by_path(optimizer), 16, 16, seconds_left=1e6)
    decisions = optimizer.decisions
    assert (decisions["n_init"], decisions["n_prune"], decisions["phase"]) == (3, 3, 3)
    (note,) = decisions["notes"]
    assert "3 + 3" in note


PAPER = FlashOptions(variant="paper")


@pytest.mark.parametrize(
    ("options", "n_trials", "n_known", "lengths"),
    [
        (FlashOptions(), None, 0, (5, 5)),  # a third of the rank of the paths
        (FlashOptions(), None, 8, (8, 2)),
        (FlashOptions(), None, 3, (5, 5)),
        (FlashOptions(), 15, 0, (3, 3)),
        (FlashOptions(), 1, 0, (1, 1)),
        (FlashOptions(n_init=5, n_prune=0), 2, 0, (5, 0)),
        (PAPER, None, 40, (30, 30)),
        (PAPER, 1, 0, (30, 30)),
    ],
)
def test_phase_lengths_are_a_third_of_the_rank_or_thirty(options, n_trials, n_known, lengths):
    table = PathTable(counted_space((4, 5, 6)), 0)
    assert phase_lengths(options, table, n_trials, n_known=n_known) == lengths


def test_subspace_has_the_algorithms_of_the_best_paths() -> None:
    found = subspace_of(counted_space((4, 4)), [("a3", "a1"), ("a0", "a1")])
    assert found == {"step0": ["a0", "a3"], "step1": ["a1"]}


@pytest.mark.parametrize(
    ("method", "family", "kind", "n"),
    [
        (Flash, "sum", "linear", 24),
        pytest.param(Admm, "average", "trees", 40, marks=pytest.mark.slow),
    ],
)
def test_best_aggregation_is_found_even_if_only_one_model_family_benefits(method, family, kind, n):
    optimizer = method(events_space(), 0, Objective())
    ask_and_tell(optimizer, planted(family, kind), n, n)
    assert optimizer.incumbent is not None
    assert optimizer.incumbent.loss < 17


def test_first_runs_use_the_best_shared_values_of_the_model_family() -> None:
    optimizer = Flash(events_space(), 0, Objective(), n_prune=12)
    loss_of = planted("average", "trees")
    ask_and_tell(optimizer, loss_of, 8, 100)
    n, late = 8, {}
    while "subspace" not in optimizer.decisions:
        query = optimizer.ask(Budget(trials_left=100 - n))
        value = dict(query.configuration["construct"].values)["aggregation"]
        late.setdefault(query.configuration.path[-1], value)
        # Averages turn out bad for trees after all.
        loss = 60.0 if n >= 12 and value == "average" else loss_of(query)
        optimizer.tell(told(n, query, loss))
        n += 1
    assert late["forest"] == "average" != late["svm"]
    shown = {c["step"]: c for c in optimizer.decisions["shared_values"]["trees"]}
    assert shown["construct"]["hyperparameters"]["aggregation"] != "average"


@pytest.mark.parametrize(
    ("n_all", "options", "most"), [(10, {}, 3), (20, {}, 6), (100, {}, 8), (100, {"n_init": 6}, 3)]
)
def test_varying_shared_values_takes_a_bounded_share_of_the_trials(n_all, options, most) -> None:
    optimizer = Flash(events_space(), 0, Objective(), **options)
    ask_and_tell(optimizer, planted("sum", "linear"), min(n_all, 16), n_all)
    assert (optimizer.memo or {})["n_varied"] == most


SEEN = [5, 0, 1, 2]
LOSSES = [30.0, 22.0, 18.0, 26.0]
SECONDS = [20.0, 5.0, 60.0, 8.0]


def toy_history(seconds: list[float] = SECONDS, pending: tuple[int, ...] = ()) -> History:
    """Return the worked example: two steps with two and three algorithms."""
    space = counted_space(TOY, 0)
    paths, history = list(space.paths()), History()
    for number, (i, loss, cost) in enumerate(zip(SEEN, LOSSES, seconds, strict=True)):
        query = Query(default_configuration(space, paths[i]))
        history.record(told(number, query, loss, cost))
    for number, i in enumerate(pending, len(SEEN)):
        history.record(Trial(number, Query(default_configuration(space, paths[i]))))
    return history


def flash(space: Space, history: History, **options: Any) -> Flash:
    """Return a search with this history."""
    optimizer = Flash(space, 0, Objective(), **options)
    optimizer.history = history
    for trial in history:
        if trial.is_told:
            optimizer.costs.tell(trial)
    return optimizer


def terms(
    history: History, counts: tuple[int, ...] = TOY, *, is_next_run: bool = True, **options: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return log expected improvement and log cost, for the next run or for many runs."""
    space = counted_space(counts, 0 if counts == TOY else 1)
    return flash(space, history, **options)._scores.terms(history, is_next_run=is_next_run)


def log_eips(*given: Any, **options: Any) -> np.ndarray:
    log_ei, log_cost = terms(*given, **options)
    return log_ei - log_cost


def test_paper_variant_models_follow_equation_one_without_an_intercept() -> None:
    paths, losses = one_hot_paths(TOY), np.array(LOSSES)
    seen, inverse = paths[SEEN], np.linalg.inv(paths[SEEN].T @ paths[SEEN] + np.eye(5))
    beta = inverse @ seen.T @ losses
    deviation = np.sqrt(
        np.var(seen @ beta - losses) * (1 + np.einsum("ij,jk,ik->i", paths, inverse, paths))
    )
    log_seconds = paths @ (inverse @ seen.T @ np.log(SECONDS))
    expected = log_expected_improvement(paths @ beta, deviation, 18.0) - np.log(log_seconds)
    scores = log_eips(toy_history(), is_next_run=False, variant="paper")
    assert scores == pytest.approx(expected)
    assert ranked(scores, None) == [3, 4, 0, 1, 5, 2]
    phase_two = log_eips(toy_history(), variant="paper")
    assert phase_two == pytest.approx(
        log_expected_improvement(paths @ beta, deviation, 18.0, 100.0) - np.log(log_seconds)
    )


def test_pending_path_counts_as_a_result_with_the_predicted_mean() -> None:
    paths = one_hot_paths(TOY)
    model = PathLinear.fit(paths[SEEN], np.array(LOSSES), 0.1)
    for history, known in (
        (toy_history(), model),
        (toy_history(pending=(4,)), model.imagining(paths[4])),
    ):
        log_ei, _ = terms(history)
        expected = log_expected_improvement(known.mean(paths), known.deviation(paths), 18.0)
        assert log_ei == pytest.approx(expected)


def test_resumed_phase_three_equals_an_uninterrupted_search() -> None:
    """New paths of Phase 3 get the best shared values, which the memo does not store."""
    flashes = [Flash(events_space(), 0, Objective(), n_init=6, n_prune=2) for _ in range(2)]
    ask_and_tell(flashes[0], planted("binary", "trees"), 14)
    for trial in flashes[0].history:
        flashes[1].restore(trial.number, trial.query, flashes[0].memo)
        flashes[1].tell(trial)
    asked = [ask_and_tell(each, planted("binary", "trees"), 10) for each in flashes]
    assert asked[0] == asked[1]


def test_only_the_first_run_of_a_path_counts_except_in_the_paper() -> None:
    history = toy_history()
    history.record(told(9, history[1].query, 2.0))
    (first, _), (again, _) = terms(toy_history()), terms(history)
    assert again == pytest.approx(first)
    of_paper = [terms(given, variant="paper")[0] for given in (toy_history(), history)]
    assert of_paper[0] != pytest.approx(of_paper[1])


def test_failures_count_as_the_bound_or_the_worst_loss() -> None:
    history = toy_history()
    paths, space = one_hot_paths(TOY), counted_space(TOY, 0)
    history.record(told(9, *defaults_of(space, 4), None))
    for variant, loss, ridge in (("paper", 100.0, 1.0), ("default", 30.0, 0.1)):
        has_intercept = variant == "default"
        targets = np.array([*LOSSES, loss])
        model = PathLinear.fit(paths[[*SEEN, 4]], targets, ridge, has_intercept=has_intercept)
        expected = log_expected_improvement(model.mean(paths), model.deviation(paths), 18.0)
        log_ei, _ = terms(history, is_next_run=False, variant=variant)
        assert log_ei == pytest.approx(expected)


@pytest.mark.parametrize(("is_next_run", "seconds"), [(True, 9.1), (False, 18.0)])
def test_improvement_is_divided_by_the_log_of_seconds_and_cached_steps_load(is_next_run, seconds):
    """Both first steps are cached, and the first model takes 0.1 s instead of 9 s."""
    took = {"step0.a0": 9.0, "step0.a1": 9.0, "step1.a1": 9.0}
    history = run_steps(defaults_of(counted_space((2, 2))), took)
    _, log_cost = terms(history, (2, 2), is_next_run=is_next_run)
    in_means = np.exp(np.exp(log_cost)) - np.e  # the divisor is ln(e + seconds / mean seconds)
    assert in_means.mean() == pytest.approx(1.0)
    assert in_means[0] / in_means[1] == pytest.approx(1 - 8.9 / seconds, abs=0.06)


SPACE = counted_space((3, 3))


def rest(design: list[int], history: History, **options: Any) -> list[int]:
    optimizer = flash(SPACE, history, **options)
    optimizer._decided.design = design
    return optimizer._rest_of_design(np.random.default_rng(0))


def test_path_listed_twice_in_the_design_runs_twice() -> None:
    history = run_steps(defaults_of(SPACE, 0, 4, 8), {})
    assert rest([0, 0, 4, 8], history) == [0]


def test_phase_three_predicts_unseen_paths_from_effects_of_algorithms_and_values() -> None:
    """Losses are sums over steps, with a parabola in each hyperparameter."""
    space, rng = counted_space((4, 5)), np.random.default_rng(0)
    search = EffectSearch(space, Objective(), ForestSettings(n_startup=1, is_log=False))
    drawn = search.candidates.sample(90, rng)
    features = search.candidates.features(drawn)
    positions = drawn.units[np.arange(90)[:, None], np.array([0, 4]) + drawn.algorithms]
    losses = 20 + 5.0 * drawn.algorithms.sum(axis=1) + 30 * ((positions - 0.3) ** 2).sum(axis=1)
    is_new = (drawn.algorithms == [1, 2]).all(axis=1)
    predict = search._fitted(features[~is_new], losses[~is_new], 0, None)
    mean, deviation = predict(features[is_new])
    assert mean == pytest.approx(losses[is_new], abs=1.5)
    assert (deviation < losses.std()).all()
    small = search._fitted(features[~is_new], losses[~is_new] / 1024, 0, None)
    assert small(features[is_new])[1] == pytest.approx(deviation / 1024)
    assert not search._effects(features)[:, 9:][np.tile(features[:, 9:] < 0, 2)].any()


def test_paper_variant_forest_depends_only_on_differences_of_losses() -> None:
    """With logarithms of losses, a constant added to all losses would change the proposals."""

    def proposals(added: float) -> list[Query]:
        lengths = {"n_init": 1, "n_prune": 1}
        optimizer = Flash(counted_space((1,), 3), 0, Objective(), variant="paper", **lengths)
        return ask_and_tell(optimizer, lambda query: added + thirds_away(query), 24)

    def thirds_away(query: Query) -> float:
        values = dict(query.configuration["step0"].values).values()
        return round(64 * sum(abs(value - 1 / 3) for value in values)) / 64

    assert proposals(1.0) == proposals(257.0)
