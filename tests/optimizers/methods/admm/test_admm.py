"""ADMM: arithmetic, the two sub-problems, and iterations."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from ConfigSpace import Categorical, Float, Integer
from worlds import (
    algorithm,
    ask_and_tell,
    counted_space,
    finite_space,
    mixed_space,
    one_algorithm,
    one_hot_paths,
    ordered_space,
    recorded,
    told,
)

from prefect_tune.optimizers import (
    Admm,
    Algorithm,
    Asked,
    Budget,
    Configuration,
    Constraint,
    Evaluation,
    Objective,
    Query,
    Space,
    SpaceExhausted,
    Step,
    Told,
    Trial,
    replay,
)
from prefect_tune.optimizers.documents import from_document, to_document
from prefect_tune.optimizers.methods.admm import values
from prefect_tune.optimizers.methods.admm.admm import simplest_path
from prefect_tune.optimizers.methods.admm.paths import PathArms
from prefect_tune.optimizers.methods.admm.splitting import (
    AdmmState,
    PathObservations,
    Positions,
    distances,
    integer_update,
    observations,
    reward,
)
from prefect_tune.optimizers.methods.admm.values import ThetaMin
from prefect_tune.optimizers.methods.declarations import AdmmOptions
from prefect_tune.optimizers.search.maximize import GaussianSearch
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.vectors import Candidates, grid_of
from prefect_tune.tasks.catalogue.spaces import SPACES

UNIT = Objective("share", "", 0.0, 1.0)


def test_integer_updates_match_three_worked_iterations() -> None:
    grid = grid_of(Integer("k", (1, 10)))
    assert grid is not None
    assert distances(grid, 3 / 9, -0.5).argmin() == 7  # the multiplier moves what it is pulled to
    delta, dual = 2 / 9, 0.0
    expected = [
        # chosen value, b, relaxed, penalty at rho = 1, delta after, lambda after
        (4, 0.222222, 0.277778, 0.001543, 0.333333, -0.055556),
        (4, 0.388889, 0.388889, 0.0, 0.333333, 0.0),
        (6, 0.333333, 0.5, 0.013889, 0.555556, -0.055556),
    ]
    for value, b, relaxed, penalty, delta_after, dual_after in expected:
        assert delta - dual == pytest.approx(b, abs=1e-6)
        assert 0.5 * distances(grid, delta, dual)[value - 1] == pytest.approx(penalty, abs=1e-6)
        got, delta, dual = integer_update(grid, delta, dual, value - 1)
        assert (got, delta, dual) == pytest.approx((relaxed, delta_after, dual_after), abs=1e-6)


@pytest.mark.parametrize(
    ("g", "bound", "mu", "u", "residual", "penalty"),
    [
        (0.09, 0.07, 0.0, 0.0, 0.02, 0.0002),
        (0.05, 0.07, 0.0, 0.02, 0.0, 0.0),
        (0.05, 0.07, 0.01, 0.01, -0.01, 0.0),
        (0.0, 0.07, 0.02, 0.05, -0.02, 0.0),
        (0.02, 0.07, 0.10, 0.0, -0.05, 0.00125),
        (0.0, 0.07, -0.05, 0.07, 0.0, 0.00125),
    ],
)
def test_admm_slacks_match_worked_values(g, bound, mu, u, residual, penalty) -> None:  # noqa: PLR0917
    limits, state = np.array([bound]), AdmmState(mu=[mu])
    seen = PathObservations([], np.zeros(1), np.array([[g - bound]]), limits, 1.0, 0.7)
    assert seen.slack(state) == pytest.approx(u)
    assert g - bound + seen.slack(state) == pytest.approx(residual)
    assert seen.augmented(state) == pytest.approx(penalty)


def test_slack_of_theta_min_is_kept_through_z_min() -> None:
    seen = observed(0.5, 0.5, sizes=(10.0, 30.0), bound=20.0)
    state = AdmmState(mu=[0.1], slack=[0.2])
    assert seen.augmented(state) == pytest.approx([0.5, 0.5 + 0.6**2 / 2])
    state.block = "z"
    assert seen.augmented(state) == pytest.approx([0.5 + 0.2**2 / 2, 0.5 + 0.8**2 / 2])


def test_bandit_reward_matches_worked_values() -> None:
    losses = [0.05, 0.21, 0.35, 0.7, 0.9, -0.1]
    assert reward(losses, 0.7) == pytest.approx([0.928571, 0.7, 0.5, 0.0, 0.0, 1.0], abs=1e-6)


VALUES = (
    Integer("a_k", (1, 10), default=3),
    Categorical("b_kind", ["x", "y", "z"], default="x"),
    Float("c_x", (0.0, 1.0), default=0.5),
)
TWO = Space("two", (Step("s", (algorithm("a", *VALUES), algorithm("b", *VALUES))),))
K = "0"
"""Column of the integer of the first algorithm, as the state names it."""


def at(k: int, kind: str = "x", x: float = 0.5, name: str = "a") -> Configuration:
    return Configuration.of(TWO, (name,), [{"a_k": k, "b_kind": kind, "c_x": x}])


def test_move_stores_the_tuned_values_and_accumulates_the_dual_variable() -> None:
    here, state = Positions(TWO, AdmmOptions()), AdmmState()
    assert here.at(state, ("a",)) == at(3)
    here.move(state, at(6, "z", 0.25))
    assert here.at(state, ("a",)) == at(6, "z", 0.25)
    # The relaxed integer is the nearest point of the cell of 6 to the default 3: 5.5.
    assert state.delta == {K: pytest.approx(5 / 9)}
    assert state.dual == {K: pytest.approx(-0.5 / 9)}
    # What was tuned is not moved by what z-min finds, and integers of other paths follow.
    before = from_document(AdmmState, to_document(state))
    here.adopt(state, at(1, "y", 0.75))
    assert state == before
    assert here.at(state, ("b",)) == at(3, name="b")
    here.move(state, at(3, name="b"))
    assert state.dual[K] == pytest.approx(0.0)
    assert here.at(state, ("a",)) == at(6, "z", 0.25)


PAPER = AdmmOptions(variant="paper")


def test_integer_penalty_is_the_squared_distance_and_categories_have_no_penalty() -> None:
    state, search = AdmmState(), GaussianSearch(TWO)
    tables = Positions(TWO, AdmmOptions(rho=2.0)).penalties(state, search, ("a",))
    assert list(tables) == [0]
    # From 3 to 6 it is 2.5 of 9 steps to the nearest point of the cell.
    assert tables[0][[2, 5]] == pytest.approx([0.0, (2.5 / 9) ** 2])
    # Integers are pulled to where z-min found them, not to the defaults.
    here, found = Positions(TWO, AdmmOptions()), AdmmState()
    here.adopt(found, at(8))
    assert here.penalties(found, search, ("a",))[0].argmin() == 7


def test_paper_penalizes_raw_integers_and_counts_categories_as_integers() -> None:
    space = one_algorithm(
        Categorical("a_kind", ["x", "y", "z"], default="x"),
        Integer("b_k", (1, 1000), default=10, log=True),
    )
    theta_min = ThetaMin(space, PAPER, Positions(space, PAPER))
    search, state = theta_min.search(("a",)), AdmmState(path=("a",))
    tables = theta_min._positions.penalties(state, search, ("a",))
    assert tables[0] == pytest.approx([0.0, 0.5**2 / 2, 1.5**2 / 2])
    assert tables[1][[9, 10, 12]] == pytest.approx([0.0, 0.5**2 / 2, 2.5**2 / 2], abs=1e-4)
    kinds = [Configuration.of(space, ("a",), [{"a_kind": k, "b_k": 10}]) for k in "xyz"]
    assert search.inputs.of(search.inputs.encode(kinds))[:, 0] == pytest.approx([0.0, 0.5, 1.0])
    theta_min._positions.move(state, kinds[2])
    assert state.delta["0"] == pytest.approx(1.0)
    assert state.dual["0"] == pytest.approx(-0.25)


def observed(
    *losses: float | None,
    objective: Objective = UNIT,
    sizes: tuple[float, ...] = (),
    bound: float | None = None,
    options: AdmmOptions = PAPER,
) -> PathObservations:
    """Return ADMM's observations of trials with these losses and bounded sizes."""
    query, trials = Query(default_configuration(mixed_space(), ("none", "tree"))), []
    for number, loss in enumerate(losses):
        measured = {"size": sizes[number]} if number < len(sizes) else {}
        trial = Trial(number, query).started()
        outcome = Evaluation(loss or 0.0, (loss or 0.0,), constraints=measured)
        trials.append(told(number, query, None) if loss is None else trial.completed(outcome))
    if bound is not None:
        objective = replace(objective, constraints=(Constraint("size", bound),))
    history = recorded(*trials, constraints=objective.constraints)
    return observations(history, objective, options)


@pytest.mark.parametrize(
    ("metric", "losses", "shares", "worst"),
    [
        ((20.0, 60.0), (20.0, 30.0, None), [0.0, 0.25, 1.0], 0.7),
        # Without a range they are distances from the best in quartile ranges.
        ((-inf, inf), (1.0, 3.0, 5.0, 7.0, 9.0), [0.0, 0.5, 1.0, 1.5, 2.0], 0.7 * 8 / 4),
        ((-inf, inf, 9.0), (1.0, 3.0, 5.0, 7.0, 9.0), [0.0, 0.5, 1.0, 1.5, 2.0], 8 / 4),
        ((-inf, inf, 0.5), (1.0, 3.0, 5.0, 7.0, 9.0), [0.0, 0.5, 1.0, 1.5, 2.0], 0.7 * 8 / 4),
        ((-inf, inf), (2e-14, 2e-14), [0.0, 0.0], 1.0),
    ],
)
def test_losses_are_scaled_to_the_range_of_the_metric(metric, losses, shares, worst):
    seen = observed(*losses, objective=Objective("x", "", *metric))
    assert seen.losses == pytest.approx(shares)
    assert seen.worst_reward_loss == pytest.approx(worst)


def test_excesses_are_relative_to_the_bounds() -> None:
    seen = observed(0.5, 0.5, 0.5, None, sizes=(10.0, 60.0), bound=20.0, options=AdmmOptions())
    # An undefined quantity has the largest excess, a failed trial the median excess.
    ratios = np.array([2 / 3, 3.0, 3.0, 1.75])
    assert seen.excess[:, 0] == pytest.approx(np.log(ratios))
    seen = observed(0.5, 0.5, 0.5, sizes=(0.0, 4.0, 8.0), bound=0.0)
    assert seen.excess[:, 0] == pytest.approx([0.0, 4 / 6, 8 / 6])
    assert seen.limits == pytest.approx([0.0])
    seen = observed(0.5, 0.6, None, sizes=(10.0, 20.0), bound=20.0)
    assert not seen.excess.any()  # no quantity exceeds the bound
    assert seen.augmented(AdmmState()) == pytest.approx(seen.losses)
    seen = observed(0.5, 0.6, sizes=(10.0, 60.0), bound=20.0)
    assert seen.augmented(AdmmState(mu=[2.0])) == pytest.approx([0.5 + 1.5**2 / 2, 0.6 + 4**2 / 2])


def test_losses_do_not_count_until_a_trial_meets_the_constraints() -> None:
    given = {"sizes": (30.0, 40.0), "bound": 20.0}
    assert observed(0.5, 0.4, None, **given, options=AdmmOptions()).losses.tolist() == [0, 0, 1]
    assert observed(0.5, 0.4, None, **given).losses.tolist() == [0.5, 0.4, 1.0]


class OfMany(Admm):
    """ADMM with many evaluations in each sub-problem."""

    effort = 40

    @property
    def _effort(self) -> int:
        return self.effort


def number_of(query: Query) -> float:
    return float(query.configuration["s"].values[0][1])


def numbers_asked_for(space: Space, best: float, n: int, **options: object) -> list[float]:
    """Return the value of each of n proposals; the loss is the squared distance from `best`."""
    optimizer = OfMany(space, 0, UNIT, **options)
    asked = ask_and_tell(optimizer, lambda q: ((number_of(q) - best) / 100) ** 2, n, n)
    return [number_of(query) for query in asked]


def test_random_points_come_first_and_integers_are_pulled_to_the_current_value() -> None:
    space = one_algorithm(Integer("k", (1, 100), default=20))
    free = numbers_asked_for(space, 80.0, 16, rho=1e-9)
    held = numbers_asked_for(space, 80.0, 16, rho=500.0)
    other = numbers_asked_for(space, 1.0, 5, rho=1e-9)
    assert (free[:4], free[4] == other[4]) == (other[:4], False)
    assert min(abs(k - 80) for k in free[4:]) <= 2
    assert all(abs(k - 20) <= 4 for k in held[4:10])
    raw = numbers_asked_for(space, 80.0, 10, variant="paper")
    assert all(abs(k - 20) <= 4 for k in raw[5:])


LINE = one_algorithm(Float("x", (0.0, 100.0), default=50.0))


def test_pending_queries_are_not_proposed_twice() -> None:
    optimizer = OfMany(LINE, 0, UNIT)
    ask_and_tell(optimizer, lambda query: abs(number_of(query) - 30) / 100, 8, 40)
    asked = [optimizer.ask(Budget(trials_left=40)) for _ in range(3)]
    assert min(np.diff(sorted(map(number_of, asked)))) > 0.05


def test_theta_min_stays_below_the_bound_and_searches_near_feasible_points(monkeypatch) -> None:
    """1 - x / 100 + 5 max(x / 50 - 1 + 5 / 10, 0)^2 is least at 27.5."""
    trials = []
    for number, x in enumerate((0.0, 10.0, 20.0, 30.0, 40.0, 60.0, 80.0)):
        query = Query(Configuration.of(LINE, ("a",), [{"x": x}]))
        outcome = Evaluation(1 - x / 100, (1 - x / 100,), constraints={"size": x})
        trials.append(Trial(number, query).started().completed(outcome))
    objective = replace(UNIT, constraints=(Constraint("size", 50.0),))
    history = recorded(*trials, constraints=objective.constraints)
    paper = AdmmOptions(variant="paper", rho=10.0)
    state, seen = AdmmState(path=("a",), mu=[5.0]), observations(history, objective, paper)
    theta_min = ThetaMin(LINE, paper, Positions(LINE, paper))
    proposed = theta_min.propose(state, seen, history, np.random.default_rng(0))
    assert number_of(Query(proposed)) == pytest.approx(27.5, abs=2.0)
    near: list[Candidates] = []
    monkeypatch.setattr(values, "maximize", lambda *given, **_: near.append(given[2]) or given[2])
    default = AdmmOptions()
    theta_min, state = ThetaMin(LINE, default, Positions(LINE, default)), AdmmState(path=("a",))
    seen = observations(history, objective, default)
    theta_min.propose(state, seen, history, np.random.default_rng(0))
    assert near[0].units[:5, 0] == pytest.approx([0.4, 0.3, 0.2, 0.1, 0.0])


def test_arm_with_the_most_rewards_is_drawn_most() -> None:
    table = PathArms(counted_space((3,)), 0)
    # Three successes in five: Beta(13, 12), mean .52 and deviation .09798; Beta(10, 10) .109109.
    counts = {"step0/a0": [5, 3], "step0/a1": [0, 0], "step0/a2": [4, 0]}

    class Recorded:
        def beta(self, a, b):
            assert list(a) == [13, 10, 10]
            assert list(b) == [12, 10, 14]
            return np.random.RandomState(0).beta(a, b)

    assert table.thompson(counts, Recorded()) == ("a1",)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    drawn = [table.thompson({"step0/a0": [500, 490]}, rng)[0] for _ in range(50)]
    assert drawn.count("a0") == 50


def test_best_order_solves_the_assignment_of_steps_to_places() -> None:
    space = ordered_space()
    table = PathArms(space, 0)
    weights = dict.fromkeys(table.arms, 0.0) | {f"{name}/scale": 1.0 for name in "abc"}
    # The best place of each row alone, (1, 1, 2), is not an order.
    for name, row in zip("abc", ([0.5, 0.9, 0.2], [0.8, 0.85, 0.1], [0.3, 0.4, 0.6]), strict=True):
        weights |= {f"order/{name}@{place}": value for place, value in enumerate(row)}
    path = table.least(-np.array([weights[arm] for arm in table.arms]))
    assert path == ("b_before_a_before_c", "scale", "scale", "scale", "tree")
    assert table.arms_of(path)[:3] == ["order/b@0", "order/a@1", "order/c@2"]


def test_linear_solver_learns_additive_paths() -> None:
    space = counted_space((4, 5))
    table = PathArms(space, 0)
    values = {p: int(p[0][1:]) + 0.5 * int(p[1][1:]) for p in list(space.paths())[::2]}
    model = table.linear(values)
    rng = np.random.default_rng(0)
    drawn = [table.least(model(rng)) for _ in range(100)]
    assert drawn.count(("a0", "a0")) > 30
    assert len(set(drawn)) > 3


def test_coefficients_of_paths_are_drawn_from_their_posterior() -> None:
    losses, rows = np.array([3.0, 1.0, 4.0, 1.5]), one_hot_paths((2, 3))[:4]
    space, rng = counted_space((2, 3)), np.random.default_rng(0)
    draw = PathArms(space, 0).linear(dict(zip(space.paths(), losses, strict=False)))
    drawn = np.array([draw(rng) for _ in range(4_000)])
    covariance = np.linalg.inv(rows.T @ rows / 0.1 + 2 * np.eye(5))
    standardized = (losses - losses.mean()) / losses.std()
    mean = covariance @ rows.T @ standardized / 0.1
    assert drawn.mean(axis=0) == pytest.approx(mean, abs=0.05)
    assert np.cov(drawn.T) == pytest.approx(covariance, abs=0.05)


class OfThree(OfMany):
    effort = 3


def test_each_model_is_first_run_without_preprocessing_and_the_best_model_is_tuned() -> None:
    space = SPACES["admm"]
    optimizer = Admm(space, 0, UNIT)
    models = [a.id for a in space.searched[-1].algorithms]
    losses = {model: 0.1 + 0.01 * i for i, model in enumerate(models)} | {"random_forest": 0.05}
    n = len(models)
    asked = ask_and_tell(optimizer, lambda q: losses[q.configuration.path[-1]], n + 5, 60)
    seen = [query.configuration.path[-3:] for query in asked]
    assert sorted(seen[:n]) == sorted(("none", "none", model) for model in models)
    # Two more ways to impute are tried with boosted trees.
    assert [path[-1] for path in seen[n : n + 2]] == ["gradient_boosting"] * 2
    assert set(seen[n + 2 :]) == {("none", "none", "random_forest")}


def test_first_path_is_the_simplest_path_or_the_closest_to_plain_naive_bayes() -> None:
    scales = (Algorithm(id="unit", estimator="x.Unit"), Algorithm(id="none"))
    models = (Algorithm(id="lda", estimator="x.Lda"), Algorithm(id="gaussian_nb", estimator="x.N"))
    for space, simplest in (
        (ordered_space(2), ("a_before_b", "none", "none", "tree")),
        (counted_space((2, 3)), ("a0", "a0")),
        (Space("plain", (Step("scale", scales), Step("model", models))), ("none", "gaussian_nb")),
        (mixed_space(), ("none", "bayes")),
    ):
        assert simplest_path(space, list(space.paths())) == simplest
        assert Admm(space, 0, UNIT).ask(Budget()).configuration.path == simplest
    # A support vector machine cannot run on data that was not scaled.
    space = mixed_space()
    assert simplest_path(space, [("unit", "svm"), ("unit", "bayes")]) == ("unit", "bayes")


def test_new_path_is_tried_with_defaults_and_then_with_random_values() -> None:
    optimizer = OfThree(counted_space((1, 2), 1), 0, UNIT)
    asked = ask_and_tell(optimizer, lambda _: 0.5, 8, 8)
    values = [
        dict(q.configuration["step1"].values) for q in asked if q.configuration.path == ("a0", "a1")
    ]
    assert values[0] == {"h0": 0.5}
    assert values[1:]
    assert values[0] not in values[1:]


def test_evaluations_per_iteration_grow_and_in_the_paper_up_to_a_bound() -> None:
    expected = {
        "paper": [16, 32, 48, 64, 80, 96, 112, 128, 128],
        "default": [6, 9, 12, 15, 18, 21, 24, 27, 30],
    }
    for variant, efforts in expected.items():
        optimizer = Admm(counted_space((3, 4)), 0, UNIT, variant=variant)
        for t, effort in enumerate(efforts):
            optimizer._state.iteration = t
            assert optimizer._effort == effort


@pytest.mark.parametrize(("variant", "iterations"), [("paper", 6), ("default", 12)])
def test_every_second_iteration_tunes_a_new_path(variant: str, iterations: int) -> None:
    """In this test, the first path is the best path."""
    optimizer = OfThree(counted_space((3, 4)), 0, UNIT, variant=variant)
    while optimizer._state.iteration < iterations:
        path = (query := optimizer.ask(Budget(trials_left=200))).configuration.path
        loss = 0.1 * sum(int(name[1:]) for name in path)
        optimizer.tell(told(len(optimizer.history) - 1, query, loss))
    tuned = optimizer._state.tuned
    assert tuned[0] == ("a0", "a0")
    assert len(tuned) == len(set(tuned))
    assert (len(tuned) > 1) == (variant == "default")


def test_untuned_algorithms_start_from_the_values_drawn_by_z_min() -> None:
    space = counted_space((2, 3))
    optimizer = Admm(space, 0, UNIT)
    ask_and_tell(optimizer, lambda _: 0.5, 1, 200)
    path = ("a1", "a1")
    drawn = Configuration.of(space, path, [{"h0": 0.25}, {"h0": 0.75}])
    assert drawn != optimizer._positions.at(optimizer._state, path)
    query = Query(drawn)
    replay(optimizer, [Asked(1, query, Budget()), Told(told(1, query, 0.1))])
    optimizer._state.block, optimizer._state.seen = "z", [1]
    optimizer._end_z(observations(optimizer.history, UNIT, AdmmOptions()))
    assert optimizer._state.path == path
    assert optimizer._positions.at(optimizer._state, path) == drawn


def test_theta_min_weighs_the_loss_against_the_distance() -> None:
    """A slightly better but distant value loses to a near value."""
    space = one_algorithm(Integer("k", (1, 100), default=20))
    for rho, k in ((10.0, 20), (1e-9, 80)):
        optimizer = Admm(space, 0, UNIT, rho=rho)
        for number, (seen, loss) in enumerate([(20, 0.30), (80, 0.29)]):
            query = Query(Configuration.of(space, ("a",), [{"k": seen}]))
            replay(optimizer, [Asked(number, query, Budget()), Told(told(number, query, loss))])
        optimizer._state.path = ("a",)
        optimizer._end_theta(observations(optimizer.history, UNIT, AdmmOptions()))
        here = optimizer._positions.at(optimizer._state, ("a",))
        assert here == Configuration.of(space, ("a",), [{"k": k}])


def test_multiplier_grows_each_iteration_while_a_bound_is_exceeded() -> None:
    objective = replace(UNIT, constraints=(Constraint("size", 5.0),))
    optimizer = OfThree(counted_space((2, 3)), 0, objective)
    pulls = []
    for number in range(40):
        query = optimizer.ask(Budget(trials_left=100))
        outcome = Evaluation(0.5, (0.5,), constraints={"size": 10.0})
        optimizer.tell(Trial(number, query).started().completed(outcome))
        pulls.append(sum(optimizer.decisions["multipliers"], 0.0))
    assert pulls == sorted(pulls)
    # The quantity is twice its bound.
    steps = np.diff([0.0, *dict.fromkeys(pulls)])
    assert len(steps) > 3
    assert steps[steps > 0] == pytest.approx(np.log(2))


def test_failed_trial_earns_no_bandit_reward() -> None:
    optimizer = Admm(finite_space(), 0, UNIT, variant="paper")
    ask_and_tell(optimizer, lambda _: None, 5)
    before = to_document(optimizer._state)
    with pytest.raises(SpaceExhausted):
        optimizer.ask(Budget())
    assert to_document(optimizer._state) == before  # as in a resumed study
    assert all(r == 0 for _, r in optimizer._state.counts.values())
