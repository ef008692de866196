"""ADMM's iterations: first paths, efforts, limits and rewards."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ConfigSpace import ConfigurationSpace, Float, Integer
from flash_worlds import counted_space, planted_loss
from shared_worlds import FAMILIES, KINDS, events_space, has_found, kind_of, planted, run_planted
from worlds import evaluation, finite_space, mixed_space, ordered_space, told

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
from prefect_tune.optimizers.documents import to_document
from prefect_tune.optimizers.methods.admm.admm import simplest_path
from prefect_tune.optimizers.methods.admm.splitting import observations
from prefect_tune.optimizers.methods.declarations import AdmmOptions
from prefect_tune.tasks.catalogue.spaces import SPACES

UNIT = Objective("share", "", 0.0, 1.0)


class OfThree(Admm):
    """Three evaluations of each sub-problem."""

    def _effort(self, budget: Budget) -> int:  # noqa: ARG002
        return 3


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
    for number in range(len(models) + 5):
        query = optimizer.ask(Budget(trials_left=60 - number))
        path = query.configuration.path
        seen.append(path)
        optimizer.tell(told(number, query, losses[path[-1]]))
    assert sorted(path[-1] for path in seen[: len(models)]) == sorted(models)
    assert {path[-3:-1] for path in seen[: len(models)]} == {("none", "none")}
    # Two more ways to impute are tried with boosted trees.
    assert [path[-1] for path in seen[len(models) :][:2]] == ["gradient_boosting"] * 2
    assert {path[-3:] for path in seen[len(models) + 2 :]} == {("none", "none", "random_forest")}


def test_a_path_is_tried_with_defaults_and_then_with_random_values() -> None:
    optimizer = OfThree(counted_space((1, 2), 1), 0, UNIT)
    queries = run(optimizer, 8)
    untuned = [q.configuration for q in queries if q.configuration.path == ("a0", "a1")]
    first, *others = [dict(dict(c.choices)["step1"].values) for c in untuned]
    assert first == {"h0": 0.5}
    assert others
    assert all(values != first for values in others)


def test_the_effort_grows_up_to_its_bound_and_begins_small_in_small_budgets() -> None:
    optimizer = Admm(counted_space((3, 4)), 0, UNIT, variant="paper")
    efforts = []
    for t in range(9):
        optimizer._state.iteration = t
        efforts.append(optimizer._effort(Budget()))
    assert efforts == [16, 32, 48, 64, 80, 96, 112, 128, 128]
    optimizer = Admm(counted_space((3, 4)), 0, UNIT)
    efforts = [optimizer._effort(Budget(trials_left=n)) for n in (60, 200, 1000)]
    assert efforts == [6, 8, 16]


def tuned_after(iterations: int, **options: Any) -> list[tuple[str, ...]]:
    """The paths tuned in so many iterations of a world in which the first path is the best."""
    optimizer = OfThree(counted_space((3, 4)), 0, UNIT, **options)
    while optimizer._state.iteration < iterations:
        number = len(optimizer.history)
        query = optimizer.ask(Budget(trials_left=200))
        path = query.configuration.path
        optimizer.tell(told(number, query, 0.1 * sum(int(a[1:]) for a in path)))
    return optimizer._state.tuned


def test_every_second_iteration_tunes_a_path_that_never_was() -> None:
    assert tuned_after(6, variant="paper") == [("a0", "a0")]
    tuned = tuned_after(12)
    assert tuned[0] == ("a0", "a0")
    assert len(tuned) == len(set(tuned)) > 1


@pytest.mark.slow
def test_a_path_resumes_from_the_values_with_which_it_was_found() -> None:
    """Of integers too, whose default is far from where z-min found them good."""
    optimizer = OfThree(counted_space((2, 3)), 0, UNIT)
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
    optimizer._end_z(observations(optimizer.history, UNIT, AdmmOptions()))
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
        optimizer._end_theta(observations(optimizer.history, UNIT, AdmmOptions()))
        here = optimizer._positions.at(optimizer._state, ("a",))
        assert here == Configuration.of(space, ("a",), [{"k": k}])


def test_a_limit_that_is_exceeded_pulls_harder_each_iteration() -> None:
    objective = replace(UNIT, constraints=(Constraint("size", 5.0),))
    optimizer = OfThree(counted_space((2, 3)), 0, objective)
    pulls = []
    for number in range(40):
        query = optimizer.ask(Budget(trials_left=100))
        outcome = Evaluation(0.5, (0.5,), constraints={"size": 10.0})
        optimizer.tell(Trial(number, query).started().completed(outcome))
        pulls.append(sum(optimizer.decisions["multipliers"], 0.0))
    assert pulls == sorted(pulls)
    # The quantity is twice its bound, and a hundredth is kept as a margin: 10 (2 - 0.99) each time.
    steps = np.diff([0.0, *dict.fromkeys(pulls)])
    assert steps[steps > 0] == pytest.approx(10.1)


@pytest.mark.slow
def test_a_limit_that_nothing_exceeds_changes_nothing() -> None:
    limits = (Constraint("size", 1e9),)
    free = Admm(counted_space((3, 4)), 0, Objective())
    bound = Admm(counted_space((3, 4)), 0, Objective(constraints=limits))
    assert run(free, 40) == run(bound, 40, "size")


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"variant": "paper"}])
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


def test_a_failed_pull_earns_nothing() -> None:
    optimizer = Admm(finite_space(), 0, UNIT, variant="paper")
    for number in range(5):
        optimizer.tell(told(number, optimizer.ask(Budget()), None))
    before = to_document(optimizer._state)
    with pytest.raises(SpaceExhausted):
        optimizer.ask(Budget())
    assert to_document(optimizer._state) == before  # as in a resumed study
    assert all(r == 0 for _, r in optimizer._state.counts.values())


def test_the_simplest_path_does_nothing_before_naive_bayes_or_is_most_like_it() -> None:
    space = ordered_space(2)
    paths = list(space.paths())
    assert simplest_path(space, paths) == ("a_before_b", "none", "none", "tree")
    space = counted_space((2, 3))
    assert simplest_path(space, list(space.paths())) == ("a0", "a0")
    scales = (Algorithm(id="unit", estimator="x.Unit"), Algorithm(id="none"))
    models = (Algorithm(id="lda", estimator="x.Lda"), Algorithm(id="gaussian_nb", estimator="x.N"))
    space = Space("plain", (Step("scale", scales), Step("model", models)))
    assert simplest_path(space, list(space.paths())) == ("none", "gaussian_nb")
    space = mixed_space()
    left = [("unit", "svm"), ("unit", "bayes")]
    assert simplest_path(space, left) == ("unit", "bayes")
    space = mixed_space()
    paths = list(space.paths())
    simplest = simplest_path(space, paths)
    # A support vector machine cannot run on data that was not scaled.
    for variant, first in (("paper", [simplest]), ("default", [simplest, ("none", "tree")])):
        optimizer = Admm(space, 0, variant=variant)
        assert [optimizer.ask(Budget()).configuration.path for _ in first] == first


@pytest.mark.slow
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


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_aggregation_of_each_family_is_found_with_the_kind_of_model_that_it_suits(kind, family):
    assert has_found(Admm, family, kind, 0, 40)


def test_the_choice_of_a_path_chooses_the_values_that_paths_have_in_common() -> None:
    """Averages suit trees, sums all others; the values that theta-min found are for one path."""
    space = events_space()
    optimizer = OfThree(space, 0, Objective())
    losses = {("trees", "average"): 19.0, ("linear", "sum"): 20.0, ("other", "sum"): 20.0}
    chosen = []
    for number in range(60):
        query = optimizer.ask(Budget(trials_left=100 - number))
        found = kind_of(query.configuration), query.configuration["construct"].values[0][1]
        if optimizer.reason is not None and optimizer.reason.phase == "z-min":
            chosen.append(found)
        optimizer.tell(told(number, query, losses.get(found, 40.0)))
    for kind, right in (("linear", "sum"), ("trees", "average")):
        values = [value for own, value in chosen if own == kind]
        assert values.count(right) > 0.8 * len(values)


OF_PAPER = """
none none bayes count 3, none none bayes sum 2, none none bayes average 2, none none bayes count 4,
unit none boosting count 3, unit some forest count 3, none none boosting count 3,
unit none boosting binary 4, unit none boosting average 5, unit none boosting count 5,
power none svm count 3, none some neighbours count 3, none none forest count 3
"""


def test_the_papers_variant_asks_for_what_it_always_did() -> None:
    """As recorded before shared values were searched."""
    space = events_space()
    optimizer = OfThree(space, 0, Objective(), variant="paper")
    run_planted(optimizer, planted(space, "average", "trees", 0), 13, n_all=100)
    asked = [t.query.configuration for t in optimizer.history]
    written = [
        " ".join([*c.path[1:], *(str(value) for _, value in c["construct"].values)]) for c in asked
    ]
    assert written == " ".join(OF_PAPER.split()).split(", ")
