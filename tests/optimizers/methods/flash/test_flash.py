"""FLASH: phases and their lengths, scores, pruning, tuning, and shared values."""

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
    told_history,
)

from prefect_tune.optimizers import (
    Admm,
    Asked,
    Budget,
    Flash,
    History,
    Objective,
    Query,
    Racing,
    Space,
    Told,
    Trial,
    replay,
)
from prefect_tune.optimizers.methods.declarations import FlashOptions
from prefect_tune.optimizers.methods.flash.design import PathTable
from prefect_tune.optimizers.methods.flash.flash import phase_lengths, subspace_of
from prefect_tune.optimizers.methods.flash.scores import LEAST_SHARE, ranked
from prefect_tune.optimizers.models.path_linear import PathLinear
from prefect_tune.optimizers.search.improvement import log_expected_improvement
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.space.vectors import CandidateSpace


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


@pytest.mark.parametrize("options", [{}, {"variant": "paper"}])
def test_phases_follow_in_order_and_late_proposals_stay_in_the_subspace(options) -> None:
    optimizer = Flash(counted_space((3, 4)), 0, Objective(), r=2, **options)
    late = ask_and_tell(optimizer, by_path(optimizer), 20)[12:]
    decisions = optimizer.decisions
    assert (decisions["n_init"], decisions["n_prune"], decisions["phase"]) == (6, 6, 3)
    part = optimizer.space.restricted_to(decisions["subspace"])
    assert {query.configuration.path for query in late} <= set(part.paths())


@pytest.mark.parametrize(("n_rows", "counts"), [(20_000, True), (20_001, False)])
def test_cost_is_ignored_if_partial_runs_take_equally_long(n_rows: int, counts: bool) -> None:
    optimizer = Flash(counted_space((3, 4)), 0, Objective(n_rows=n_rows, n_folds=3))
    Racing(optimizer)
    steps = optimizer.space.steps
    optimizer._decided.subspace = {step.name: [a.id for a in step.algorithms] for step in steps}
    assert (optimizer._log_cost() is not None) == counts


def test_pending_path_is_not_proposed_again_even_if_best() -> None:
    optimizer = Flash(counted_space((3, 4)), 0, Objective(), variant="paper", n_prune=9)
    ask_and_tell(optimizer, by_path(optimizer), 9)
    assert optimizer.decisions["phase"] == 2
    twin, other, third = (optimizer.ask(Budget()).configuration.path for _ in range(3))
    assert len({twin, other, third}) == 3


def test_subspace_always_contains_the_path_of_the_incumbent() -> None:
    """Two algorithms are good only together, so no sum of effects would select the best path."""
    losses = {("a1", "a1"): 1.0, ("a0", "a1"): 60.0, ("a1", "a0"): 60.0, ("a0", "a0"): 20.0}
    for options, is_kept in (({}, True), ({"variant": "paper"}, False)):
        optimizer = Flash(
            counted_space((3, 3)), 0, Objective(), r=1, n_init=9, n_prune=0, keep=0.0, **options
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
    assert (decisions["n_init"], decisions["n_prune"], decisions["phase"]) == (5, 3, 3)
    (note,) = decisions["notes"]
    assert "5 + 3" in note


PAPER = FlashOptions(variant="paper")


@pytest.mark.parametrize(
    ("options", "n_trials", "n_known", "lengths"),
    [
        (FlashOptions(), None, 0, (12, 12)),  # the rank of the paths
        (FlashOptions(), None, 16, (16, 4)),
        (FlashOptions(), 30, 0, (6, 6)),
        (FlashOptions(), 10, 0, (5, 2)),  # each model is seen in half of it
        (FlashOptions(n_init=5, n_prune=0), 5, 0, (5, 0)),
        (FlashOptions(n_init=5, n_prune=0), 2, 0, (2, 0)),
        (PAPER, 20, 0, (10, 10)),
        (PAPER, 30, 16, (12, 12)),
        (PAPER, 1, 0, (1, 1)),
    ],
)
def test_phase_lengths_default_to_the_rank_of_the_paths(options, n_trials, n_known, lengths):
    table = PathTable(counted_space((4, 5, 5)), 0)
    assert phase_lengths(options, table, n_trials, n_known=n_known) == lengths


@pytest.mark.parametrize(
    ("paths", "keep", "kept"),
    [
        ([("a3", "a1"), ("a0", "a1")], 0.0, (["a0", "a3"], ["a1"])),
        ([("a0", "a1")], 0.5, (["a0", "a1", "a2"], ["a0", "a1", "a2"])),
        ([("a0", "a1")], 0.75, (["a0", "a1", "a2", "a3"], ["a0", "a1", "a2", "a3"])),
        ([("a0", "a1")], 0.01, (["a0", "a1", "a2"], ["a0", "a1", "a2"])),  # two all the same
    ],
)
def test_subspace_has_the_best_paths_and_the_best_share_of_each_step(paths, keep, kept) -> None:
    space = counted_space((4, 4))
    losses = {("a3", "a3"): 30.0, ("a2", "a0"): 20.0, ("a1", "a2"): 10.0, ("a0", "a2"): None}
    history = told_history(
        (Query(default_configuration(space, path)), loss) for path, loss in losses.items()
    )
    found = subspace_of(space, paths, history, keep)
    assert (found["step0"], found["step1"]) == kept


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
    optimizer = Flash(events_space(), 0, Objective())
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
    ("n_all", "options", "most"), [(10, {}, 3), (20, {}, 6), (100, {}, 6), (100, {"n_init": 6}, 3)]
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
    model = PathLinear.fit(paths[SEEN], np.array(LOSSES))
    for history, known in (
        (toy_history(), model),
        (toy_history(pending=(4,)), model.imagining(paths[4])),
    ):
        mean, deviation = known.mean(paths), known.deviation(paths)
        # The mean deviation counts as long as paths are looked for.
        for xi, is_next_run in ((deviation.mean(), True), (0.0, False)):
            log_ei, _ = terms(history, is_next_run=is_next_run)
            assert log_ei == pytest.approx(log_expected_improvement(mean, deviation, 18.0, xi))


def equal_history(seconds: float) -> History:
    """Return four paths of equal loss, where one algorithm of the last step takes `seconds`."""
    return run_steps(defaults_of(counted_space((2, 2))), {"step1.a1": seconds})


def test_improvement_per_second_assumes_at_least_one_percent_of_the_mean_seconds() -> None:
    found = log_eips(equal_history(9.0), (2, 2))
    # The first step was cached by both paths: 0.1 s and 9 s after loading it in 0.01 s.
    assert found[0] - found[1] == pytest.approx(np.log(9.01 / 0.11), rel=0.1)
    found = log_eips(equal_history(1e6), (2, 2))
    assert found[0] - found[1] == pytest.approx(np.log(2 / LEAST_SHARE), abs=1e-3)


def test_failures_count_as_the_bound_or_the_worst_loss() -> None:
    history = toy_history()
    history.record(told(9, history[0].query, None))
    paths = one_hot_paths(TOY)
    for variant, loss in (("paper", 100.0), ("default", 30.0)):
        has_intercept = variant == "default"
        targets = np.array([*LOSSES, loss])
        model = PathLinear.fit(paths[[*SEEN, 5]], targets, has_intercept=has_intercept)
        expected = log_expected_improvement(model.mean(paths), model.deviation(paths), 18.0)
        log_ei, _ = terms(history, is_next_run=False, variant=variant)
        assert log_ei == pytest.approx(expected)


def test_improvement_over_many_runs_is_divided_by_the_log_of_uncached_seconds() -> None:
    seconds = {"step0.a0": 9.0, "step0.a1": 9.0, "step1.a1": 9.0}
    history = run_steps(defaults_of(counted_space((2, 2))), seconds)
    many = log_eips(history, (2, 2), is_next_run=False)
    # The mean is 13.55 s. The difference would be 0.43 if the first steps were cached.
    expected = np.log(np.log(np.e + 18.0 / 13.55) / np.log(np.e + 9.1 / 13.55))
    assert many[0] - many[1] == pytest.approx(expected, abs=0.02)


SPACE = counted_space((3, 3))
DESIGN = [0, 4, 8, 1, 2, 3, 5, 6, 7]


def after_three(dear: float) -> History:
    """Return a history of the first three picks; the second model takes `seconds`."""
    return run_steps(defaults_of(SPACE, *DESIGN[:3]), {"step1.a1": dear})


def rest(design: list[int], history: History, **options: Any) -> list[int]:
    optimizer = flash(SPACE, history, **options)
    optimizer._decided.design = design
    return optimizer._rest_of_design(np.random.default_rng(0))


def test_cheap_paths_run_before_expensive_paths() -> None:
    assert rest(DESIGN, after_three(0.1)) == [1, 2, 3, 5, 6, 7]
    assert rest(DESIGN, after_three(500.0)) == [2, 3, 5, 6, 1, 7]
    seconds = {"step1.a1": 500.0, "step1.a2": 90.0}
    history = run_steps(defaults_of(SPACE, 0, 3, 4, 6, 8), seconds)
    assert rest([0, 3, 4, 6, 8, 1, 7, 2, 5], history) == [2, 5, 1, 7]


def test_path_listed_twice_in_the_design_runs_twice() -> None:
    assert rest([0, 0, 4, 8], after_three(1.0), variant="paper") == [0]


def test_cost_of_a_candidate_is_at_least_a_share_of_a_whole_run() -> None:
    space, rng = counted_space((2, 2)), np.random.default_rng(0)
    asked = (Query(sample_configuration(space, rng)) for _ in range(8))
    seconds = {"step0.a0": 1e4, "step0.a1": 8.0, "step1.a0": 0.01, "step1.a1": 2.0}
    candidates, search = CandidateSpace(space), flash(space, run_steps(asked, seconds))
    search._decided.subspace = {s.name: [a.id for a in s.algorithms] for s in space.steps}
    drawn = sample_configuration(space, np.random.default_rng(2), ("a1", "a0"))
    cheap, log_cost = candidates.encode([drawn]), search._log_cost()
    assert log_cost is not None
    cost = log_cost(cheap, candidates.features(cheap))
    typical = search._scores.seconds(None).mean()
    assert cost == pytest.approx([0.5 * np.log(LEAST_SHARE * typical)])


def test_paper_variant_forest_depends_only_on_differences_of_losses() -> None:
    """With logarithms of losses, a constant added to all losses would change the proposals."""

    def proposals(added: float) -> list[Query]:
        optimizer = Flash(counted_space((1,), 3), 0, Objective(), variant="paper")
        return ask_and_tell(optimizer, lambda query: added + thirds_away(query), 24)

    def thirds_away(query: Query) -> float:
        values = dict(query.configuration["step0"].values).values()
        return round(64 * sum(abs(value - 1 / 3) for value in values)) / 64

    assert proposals(1.0) == proposals(257.0)
