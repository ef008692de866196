"""ADMM's iterations: first paths, efforts, limits and rewards."""

import json
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from ConfigSpace import ConfigurationSpace, Float, Integer
from contracts.optimizer import OptimizerContract
from flash_worlds import counted_space, planted_loss
from worlds import evaluation, finite_space, mixed_space, ordered_space, told

from prefect_tune.optimizers import (
    Admm,
    Algorithm,
    Asked,
    Budget,
    Configuration,
    Constraint,
    Evaluation,
    Event,
    Objective,
    Query,
    Space,
    SpaceExhausted,
    Step,
    Told,
    Trial,
    replay,
)
from prefect_tune.optimizers.methods.admm.admm import first_paths, plainest_path
from prefect_tune.optimizers.methods.admm.state import observations
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess
from prefect_tune.tasks.catalogue.spaces import SPACES

UNIT = Objective("share", "", 0.0, 1.0)


class TestAdmm(OptimizerContract):
    method = "admm"


class TestAdmmOfThePaper(OptimizerContract):
    method = "admm"
    options: ClassVar[dict[str, Any]] = {"variant": "paper", "effort": 4, "effort_step": 0}
    n_planted = 4
    margin = 0.0  # its bandit is close to drawing paths at random
    margin_share = 0.5


def run(optimizer: Admm, n: int, quantity: str = "", seed: int = 0) -> list[Query]:
    """Ask and tell one by one in a planted world; the quantity grows with the last algorithm."""
    loss_of = planted_loss(tuple(len(s.algorithms) for s in optimizer.space.searched), seed)
    queries = []
    for number in range(n):
        query = optimizer.ask(Budget(trials_spent=number, trials_left=n - number))
        loss = loss_of(query)
        last = query.configuration.path[-1]
        outcome = evaluation(100.0 if loss is None else loss)
        measured = {quantity: 10.0 * (4 - int(last[1:]))} if quantity else {}
        outcome = Evaluation(outcome.loss, outcome.fold_losses, constraints=measured)
        optimizer.tell(Trial(number, query).started().completed(outcome))
        queries.append(query)
    return queries


def test_the_first_configuration_is_naive_bayes_with_nothing_before_it() -> None:
    optimizer = Admm(SPACES["admm"], 0, UNIT)
    path = optimizer.ask(Budget()).configuration.path
    assert path[-3:] == ("none", "none", "gaussian_nb")
    assert Admm(mixed_space(), 0, UNIT).ask(Budget()).configuration.path == ("none", "bayes")


def test_each_model_is_seen_with_nothing_before_it_and_the_best_is_tuned_first() -> None:
    space = SPACES["admm"]
    optimizer = Admm(space, 0, UNIT)
    models = [a.id for a in space.searched[-1].algorithms]
    losses = {model: 0.1 + 0.01 * i for i, model in enumerate(models)} | {"random_forest": 0.05}
    seen = []
    for number in range(len(models) + 3):
        query = optimizer.ask(Budget(trials_left=60 - number))
        path = query.configuration.path
        seen.append(path)
        optimizer.tell(told(number, query, losses[path[-1]]))
    assert sorted(path[-1] for path in seen[: len(models)]) == sorted(models)
    assert {path[-3:-1] for path in seen[: len(models)]} == {("none", "none")}
    assert {path[-3:] for path in seen[len(models) :]} == {("none", "none", "random_forest")}


def test_a_path_is_tried_with_defaults_and_then_with_random_values() -> None:
    optimizer = Admm(counted_space((1, 2), 1), 0, UNIT, effort=1, effort_step=0)
    queries = run(optimizer, 8)
    untuned = [q.configuration for q in queries if q.configuration.path == ("a0", "a1")]
    first, *others = [dict(dict(c.choices)["step1"].values) for c in untuned]
    assert first == {"h0": 0.5}
    assert others
    assert all(values != first for values in others)


def test_the_effort_grows_up_to_its_bound() -> None:
    optimizer = Admm(counted_space((3, 4)), 0, UNIT, variant="paper")
    efforts = []
    for t in range(9):
        optimizer._state.iteration = t
        efforts.append(optimizer._effort(Budget()))
    assert efforts == [16, 32, 48, 64, 80, 96, 112, 128, 128]
    fixed = Admm(counted_space((3, 4)), 0, UNIT, effort=5, effort_step=0)
    fixed._state.iteration = 9
    assert fixed._effort(Budget()) == 5


def test_small_budgets_begin_with_small_efforts() -> None:
    optimizer = Admm(counted_space((3, 4)), 0, UNIT)
    efforts = [optimizer._effort(Budget(trials_left=n)) for n in (60, 200, 1000)]
    assert efforts == [6, 8, 16]


def test_a_space_without_hyperparameters_ends_after_its_last_path() -> None:
    optimizer = Admm(counted_space((2, 2), 0), 0, UNIT)
    assert len({q.configuration for q in run(optimizer, 4)}) == 4
    with pytest.raises(SpaceExhausted):
        optimizer.ask(Budget())


@pytest.mark.parametrize(
    "options",
    [
        {"theta_solver": "random"},
        {"theta_solver": "trust_region"},
        {"theta_solver": "smac"},
        {"z_solver": "bo"},
        {"z_solver": "random"},
        {"z_solver": "bandit", "z_pick": "best"},
        {"rho": 0.0},
    ],
    ids=str,
)
def test_each_solver_searches_without_repeats_and_replays(options: dict[str, Any]) -> None:
    make = lambda: Admm(mixed_space(), 0, UNIT, effort=5, effort_step=1, **options)  # noqa: E731
    unbroken, resumed = make(), make()
    events: list[Event] = []
    for number in range(24):
        query = unbroken.ask(Budget())
        memo = json.loads(json.dumps(unbroken.memo))
        events.append(Asked(number, query, Budget(), memo))
        loss = None if number % 7 == 3 else len(query.configuration.canonical) / 200
        events.append(Told(told(number, query, loss)))
        unbroken.tell(events[-1].trial)  # type: ignore[union-attr]
    configurations = [t.query.configuration for t in unbroken.history]
    assert len(set(configurations)) == 24
    replay(resumed, events)
    assert resumed.ask(Budget()) == unbroken.ask(Budget())


def test_replay_fits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    space = counted_space((2, 2), 2)
    optimizer = Admm(space, 0, Objective())
    events: list[Event] = []
    for number in range(20):
        query = optimizer.ask(Budget())
        events.append(Asked(number, query, Budget(), optimizer.memo))
        events.append(Told(told(number, query, float(number))))
        optimizer.tell(events[-1].trial)  # type: ignore[union-attr]
    fits: list[int] = []
    original = GaussianProcess.fit.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(
        GaussianProcess, "fit", classmethod(lambda *a, **k: fits.append(1) or original(*a, **k))
    )
    resumed = Admm(space, 0, Objective())
    replay(resumed, events)
    assert not fits
    assert resumed.ask(Budget()) == optimizer.ask(Budget())


def test_a_quantity_that_is_no_number_is_not_within_its_limit() -> None:
    optimizer = Admm(mixed_space(), 0, replace(UNIT, constraints=(Constraint("q", 1.0),)))
    query = optimizer.ask(Budget())
    outcome = Evaluation(0.5, (0.5,), constraints={"q": float("nan")})
    optimizer.tell(Trial(0, query).started().completed(outcome))
    assert optimizer.history.incumbent is None
    assert optimizer.history.nearest_infeasible is not None


def test_decisions_say_where_the_iteration_stands() -> None:
    optimizer = Admm(counted_space((2, 3)), 0, UNIT, effort=2, effort_step=0)
    queries = run(optimizer, 14)
    decisions = json.loads(json.dumps(optimizer.decisions))
    assert decisions["iteration"] >= 1
    assert tuple(decisions["path"]) in {q.configuration.path for q in queries}
    assert decisions["tuned"]
    assert decisions["multipliers"] == {}
    while optimizer._state.block != "theta" or optimizer._state.asked < 2:
        number = len(optimizer.history)
        query = optimizer.ask(Budget(trials_left=5))
        optimizer.tell(told(number, query, 0.5))
    # The last query is one of theta-min: it is the path that is tuned, the newest or one before.
    assert optimizer.decisions["path"] == list(query.configuration.path)
    assert optimizer.decisions["path"] in optimizer.decisions["tuned"]


def tuned_after(iterations: int, **options: Any) -> list[tuple[str, ...]]:
    """The paths tuned in so many iterations of a world in which the first path is the best."""
    optimizer = Admm(counted_space((3, 4)), 0, UNIT, effort=3, effort_step=0, **options)
    while optimizer._state.iteration < iterations:
        number = len(optimizer.history)
        query = optimizer.ask(Budget(trials_left=200))
        path = query.configuration.path
        optimizer.tell(told(number, query, 0.1 if path == ("a0", "a0") else 0.6))
    return optimizer._state.tuned


def test_every_second_iteration_tunes_a_path_that_never_was() -> None:
    assert tuned_after(6, z_solver="bandit", z_pick="best") == [("a0", "a0")]
    tuned = tuned_after(6, z_solver="bandit", z_pick="alternate")
    assert tuned[0] == ("a0", "a0")
    assert len(tuned) == len(set(tuned)) == 4


def test_a_path_goes_on_from_the_values_with_which_it_was_found() -> None:
    """Of integers too, whose default is far from where z-min found them good."""
    optimizer = Admm(counted_space((2, 3)), 0, UNIT, effort=3, effort_step=0)
    chosen = set()
    iteration = 0
    for number in range(60):
        query = optimizer.ask(Budget(trials_left=200))
        state = optimizer._state
        if state.iteration > iteration and state.block == "theta":
            iteration, path = state.iteration, state.path
            here = optimizer._positions.at(state, path)
            known = {t.query.configuration for t in list(optimizer.history)[:number]}
            assert here in known
            chosen.add(path)
        loss = sum(float(v) for _, c in query.configuration.choices for _, v in c.values) / 4
        loss *= 0.9 ** query.configuration.path.count("a1")  # other paths than the first are better
        optimizer.tell(told(number, query, loss))
    assert len(chosen) > 1


def test_algorithms_that_were_never_tuned_start_from_the_values_that_z_min_drew() -> None:
    space = counted_space((2, 3))
    optimizer = Admm(space, 0, UNIT)
    first = optimizer.ask(Budget(trials_left=200))
    optimizer.tell(told(0, first, 0.5))
    path = ("a1", "a1")
    drawn = Configuration.of(space, path, [{"h0": 0.25}, {"h0": 0.75}])
    assert drawn != optimizer._positions.at(optimizer._state, path)
    query = Query(drawn)
    replay(optimizer, [Asked(1, query, Budget()), Told(told(1, query, 0.1))])
    optimizer._state.block, optimizer._state.seen = "z", [1]
    optimizer._end_z(observations(optimizer.history, UNIT, "worst", 0.7, 0.0))
    assert optimizer._state.path == path
    assert optimizer._positions.at(optimizer._state, path) == drawn


def test_of_the_values_seen_theta_min_takes_the_best_with_its_way() -> None:
    """A little better and far away is worse than what is near."""
    values = ConfigurationSpace(space=[Integer("k", (1, 100), default=20)])
    algorithm = Algorithm(id="a", estimator="x.Y", hyperparameters=values)
    space = Space("one", (Step("s", (algorithm,)),))
    for rho, k in ((10.0, 20), (0.0, 80)):
        optimizer = Admm(space, 0, UNIT, rho=rho)
        for number, (seen, loss) in enumerate([(20, 0.30), (80, 0.29)]):
            query = Query(Configuration.of(space, ("a",), [{"k": seen}]))
            replay(optimizer, [Asked(number, query, Budget()), Told(told(number, query, loss))])
        optimizer._state.path = ("a",)
        optimizer._end_theta(observations(optimizer.history, UNIT, "worst", 0.7, 0.0))
        here = optimizer._positions.at(optimizer._state, ("a",))
        assert here == Configuration.of(space, ("a",), [{"k": k}])


def test_a_limit_that_is_exceeded_pulls_harder_each_iteration() -> None:
    objective = replace(UNIT, constraints=(Constraint("size", 5.0),))
    optimizer = Admm(counted_space((2, 3)), 0, objective, effort=2, effort_step=0)
    pulls = []
    for number in range(40):
        query = optimizer.ask(Budget(trials_left=100))
        outcome = Evaluation(0.5, (0.5,), constraints={"size": 10.0})
        optimizer.tell(Trial(number, query).started().completed(outcome))
        pulls.append(optimizer.decisions["multipliers"].get("size<=5.0", 0.0))
    assert pulls == sorted(pulls)
    # The quantity is twice its bound, and a hundredth is kept as a margin: 10 (2 - 0.99) each time.
    steps = np.diff([0.0, *dict.fromkeys(pulls)])
    assert steps[steps > 0] == pytest.approx(10.1)


def test_the_memo_stays_small() -> None:
    optimizer = Admm(counted_space((3, 4), 3), 0, Objective())
    run(optimizer, 50)
    assert len(json.dumps(optimizer.memo)) < 4000


def test_integers_move_to_where_they_are_best_in_the_toy_of_two_modules() -> None:
    def algorithm(name: str, n_numbers: int, n_integers: int) -> Algorithm:
        numbers = [Float(f"c{i}", (0.0, 1.0), default=0.5) for i in range(n_numbers)]
        integers = [Integer(f"d{i}", (1, 10), default=5) for i in range(n_integers)]
        values = ConfigurationSpace(space=[*numbers, *integers])
        return Algorithm(id=name, estimator="x.Y", hyperparameters=values)

    none = Algorithm(id="none")
    one = Step("one", (none, algorithm("b", 1, 0), algorithm("c", 1, 1)))
    two = Step("two", (none, algorithm("b", 2, 1), algorithm("c", 1, 2)))

    def loss(query: Query) -> float:
        path = query.configuration.path
        total = 0.05 * (path[0] != "c") + 0.05 * (path[1] != "b") + 0.15 * path.count("none")
        for _, choice in query.configuration.choices:
            for name, value in choice.values:
                x = float(value)
                total += 0.3 * ((x - 7) / 9 if name.startswith("d") else x - 0.3) ** 2
        return total

    optimizer = Admm(Space("toy", (one, two)), 0, UNIT, variant="paper", effort=8)
    for number in range(60):
        query = optimizer.ask(Budget(trials_left=60 - number))
        optimizer.tell(told(number, query, loss(query)))
    best = optimizer.history.incumbent
    # One integer two steps off costs 0.3 (2 / 9)^2 = 0.0148; the least of all is 0.
    assert best is not None
    assert best.loss is not None
    assert best.loss < 0.005


def test_inactive_algorithms_keep_their_values() -> None:
    optimizer = Admm(counted_space((3,), 2), 0, Objective(), effort=6, effort_step=0)
    for number in range(30):
        query = optimizer.ask(Budget())
        optimizer.tell(told(number, query, float(len(query.configuration.canonical))))
    tuned = [p for p in optimizer._state.tuned if p != optimizer._state.path]
    for path in tuned:
        at_theta = optimizer._positions.at(optimizer._state, path)
        assert at_theta in {t.query.configuration for t in optimizer.history}


def test_a_limit_that_nothing_exceeds_changes_nothing() -> None:
    limits = (Constraint("size", 1e9),)
    free = Admm(counted_space((3, 4)), 0, Objective())
    bound = Admm(counted_space((3, 4)), 0, Objective(constraints=limits))
    assert run(free, 40) == run(bound, 40, "size")


@pytest.mark.parametrize("options", [{}, {"variant": "paper", "effort": 6, "effort_step": 2}])
def test_with_a_limit_more_trials_are_feasible(options: dict[str, Any]) -> None:
    shares = []
    for limits in ((), (Constraint("size", 15.0),)):
        inside = 0
        for seed in range(3):
            space = counted_space((3, 4))
            optimizer = Admm(space, seed, Objective(constraints=limits), **options)
            paths = [q.configuration.path for q in run(optimizer, 50, "size", seed)]
            inside += sum(path[-1] == "a3" for path in paths)
        shares.append(inside / 150)
    assert shares[1] > max(1.3 * shares[0], 0.3)


def test_tuning_within_a_limit_comes_near_its_inside() -> None:
    numbers = ConfigurationSpace(space=[Float("x", (0.0, 1.0)), Float("y", (0.0, 1.0))])
    space = Space(
        "one", (Step("s", (Algorithm(id="a", estimator="x.Y", hyperparameters=numbers),)),)
    )
    objective = replace(UNIT, constraints=(Constraint("x", 0.4),))
    shares, best = [], []
    for seed in range(3):
        optimizer = Admm(space, seed, objective)
        for number in range(40):
            query = optimizer.ask(Budget(trials_left=40 - number))
            values = dict(dict(query.configuration.choices)["s"].values)
            loss = ((values["x"] - 0.9) ** 2 + (values["y"] - 0.5) ** 2) / 2
            outcome = Evaluation(loss, (loss,), constraints={"x": values["x"]})
            optimizer.tell(Trial(number, query).started().completed(outcome))
        losses = [t.loss for t in optimizer.history if optimizer.history.violation(t) <= 0]
        shares.append(len(losses) / 40)
        best.append(min(losses))
    # Uniform points are within the limit in 40 % of the trials, and 0.125 is the optimum.
    assert np.mean(shares) > 0.6
    assert max(best) < 0.13


@pytest.mark.parametrize(("before", "after"), [((), ("q",)), (("q",), ("p", "q")), (("q",), ())])
def test_limits_may_change_between_asks(before: tuple[str, ...], after: tuple[str, ...]) -> None:
    def limited(names: tuple[str, ...]) -> Objective:
        return replace(UNIT, constraints=tuple(Constraint(name, 0.2) for name in names))

    space = counted_space((2, 2))
    first = Admm(space, 0, limited(before))
    events: list[Event] = []
    for number in range(12):
        query = first.ask(Budget())
        values = {"p": number / 12, "q": 1 - number / 12}
        outcome = Evaluation(0.5, (0.5,), constraints={name: values[name] for name in before})
        trial = Trial(number, query).started().completed(outcome)
        first.tell(trial)
        events += [Asked(number, query, Budget(), first.memo), Told(trial)]
    second = Admm(space, 0, limited(after))
    replay(second, events)
    for number in range(12):
        second.measure(number, {name: number / 12 for name in after if name not in before})
    assert second.ask(Budget()).configuration not in {e.query.configuration for e in events[::2]}


def test_a_limit_that_everything_exceeds_raises_nothing_and_seeks_the_least_excess() -> None:
    limits = (Constraint("size", 1.0),)
    optimizer = Admm(counted_space((3, 4)), 0, Objective(constraints=limits))
    queries = run(optimizer, 40, "size")
    late = [q.configuration.path[-1] for q in queries[20:]]
    assert late.count("a3") > 10


def test_a_limit_of_zero_and_a_missing_quantity_are_taken() -> None:
    limits = (Constraint("size", 0.0), Constraint("never measured", 3.0))
    optimizer = Admm(counted_space((3, 4)), 0, Objective(constraints=limits))
    run(optimizer, 25, "size")
    assert len(optimizer.history.complete) == 25


def test_a_negative_limit_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="bound of latency_us"):
        Constraint("latency_us", -1.0)


@pytest.mark.parametrize(
    "objective",
    [
        Objective("r2", "", 0.0, np.inf, 1.0),
        Objective("neg", "", -np.inf, np.inf),
        Objective("r2", "", -np.inf, 5.0, 60.0),
    ],
)
def test_metrics_without_bounds_are_rescaled(objective: Objective) -> None:
    optimizer = Admm(counted_space((3, 4)), 0, objective, z_solver="bandit")
    run(optimizer, 30)
    pulls, successes = np.sum(list(optimizer._state.counts.values()), axis=0)
    assert 0 < successes < pulls


def test_the_bandit_counts_each_pull_once() -> None:
    bandit = {"variant": "paper", "effort": 3, "effort_step": 0}
    optimizer = Admm(counted_space((3, 4), 0), 0, UNIT, **bandit)
    query = optimizer.ask(Budget())
    optimizer.tell(told(0, query, 0.0))
    queries = [optimizer.ask(Budget()) for _ in range(3)]
    assert optimizer._state.counts.get("step0/a0", [0, 0])[0] <= 3  # repeats of the first only
    before = sum(n for n, _ in optimizer._state.counts.values())
    for number, query in enumerate(queries, 1):
        optimizer.tell(told(number, query, 0.0))
    optimizer._theta_min = lambda *_: query  # type: ignore[method-assign]
    optimizer._state.block = "theta"
    optimizer.ask(Budget())
    after = optimizer._state.counts
    assert sum(n for n, _ in after.values()) == before + 6
    assert all(n == r for n, r in after.values())


def test_a_failed_pull_earns_nothing() -> None:
    optimizer = Admm(finite_space(), 0, UNIT, z_solver="bandit")
    for number in range(5):
        optimizer.tell(told(number, optimizer.ask(Budget()), None))
    with pytest.raises(SpaceExhausted):
        optimizer.ask(Budget())
    assert all(r == 0 for _, r in optimizer._state.counts.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"theta_solver": "grid"}, "theta_solver must be bo or random"),
        ({"z_solver": "grid"}, "z_solver must be bandit or linear"),
        ({"variant": None}, "variant must be default or paper"),
        ({"effort": 0}, "effort must be >= 1"),
        ({"effort_step": 1.5}, "effort_step must be a whole number"),
        ({"rho": -1.0}, "rho must be >= 0"),
        ({"rho_g": 0.0}, "rho_g must be > 0"),
        ({"f_hat": 0.0}, "f_hat must be > 0"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Admm(mixed_space(), 0, UNIT, **options)


def test_the_plainest_path_does_nothing_before_naive_bayes() -> None:
    space = ordered_space(2)
    paths = list(space.paths())
    assert plainest_path(space, paths) == ("a_before_b", "none", "none", "tree")
    space = counted_space((2, 3))
    assert plainest_path(space, list(space.paths())) == ("a0", "a0")


def test_doing_nothing_and_naive_bayes_are_plainer_than_having_nothing_to_choose() -> None:
    scales = (Algorithm(id="unit", estimator="x.Unit"), Algorithm(id="none"))
    models = (Algorithm(id="lda", estimator="x.Lda"), Algorithm(id="gaussian_nb", estimator="x.N"))
    space = Space("plain", (Step("scale", scales), Step("model", models)))
    assert plainest_path(space, list(space.paths())) == ("none", "gaussian_nb")


def test_where_it_cannot_run_it_is_the_one_most_like_it() -> None:
    space = mixed_space()
    left = [("unit", "svm"), ("unit", "bayes")]
    assert plainest_path(space, left) == ("unit", "bayes")


def test_one_plain_path_per_model_comes_first_if_wanted() -> None:
    space = mixed_space()
    paths = list(space.paths())
    plainest = plainest_path(space, paths)
    assert first_paths(space, paths, of_each_model=False) == [plainest]
    # A support vector machine cannot run on data that was not scaled.
    assert first_paths(space, paths, of_each_model=True) == [plainest, ("none", "tree")]
