"""ADMM's iterations: first paths, efforts, limits and rewards."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ConfigSpace import Float, Integer
from worlds import (
    counted_space,
    finite_space,
    has_found,
    mixed_space,
    one_algorithm,
    ordered_space,
    planted_loss,
    run_planted,
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


def test_the_first_path_does_nothing_before_naive_bayes_or_is_most_like_it() -> None:
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


def test_a_path_is_tried_with_defaults_and_then_with_random_values() -> None:
    optimizer = OfThree(counted_space((1, 2), 1), 0, UNIT)
    loss_of = planted_loss((1, 2), 0)
    run_planted(optimizer, lambda query: (loss_of(query) or 100.0) / 100, 8)
    asked = [t.query.configuration for t in optimizer.history]
    values = [dict(c["step1"].values) for c in asked if c.path == ("a0", "a1")]
    assert values[0] == {"h0": 0.5}
    assert values[1:]
    assert values[0] not in values[1:]


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
    space = one_algorithm(Integer("k", (1, 100), default=20))
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


def test_a_failed_pull_earns_nothing() -> None:
    optimizer = Admm(finite_space(), 0, UNIT, variant="paper")
    for number in range(5):
        optimizer.tell(told(number, optimizer.ask(Budget()), None))
    before = to_document(optimizer._state)
    with pytest.raises(SpaceExhausted):
        optimizer.ask(Budget())
    assert to_document(optimizer._state) == before  # as in a resumed study
    assert all(r == 0 for _, r in optimizer._state.counts.values())


@pytest.mark.slow
def test_tuning_within_a_limit_comes_near_its_inside() -> None:
    space = one_algorithm(Float("x", (0.0, 1.0)), Float("y", (0.0, 1.0)))
    objective = replace(UNIT, constraints=(Constraint("x", 0.4),))
    optimizer = Admm(space, 0, objective)
    for number in range(40):
        query = optimizer.ask(Budget(trials_left=40 - number))
        values = dict(query.configuration["s"].values)
        loss = ((values["x"] - 0.9) ** 2 + (values["y"] - 0.5) ** 2) / 2
        outcome = Evaluation(loss, (loss,), constraints={"x": values["x"]})
        optimizer.tell(Trial(number, query).started().completed(outcome))
    losses = [t.loss for t in optimizer.history if optimizer.history.violation(t) <= 0]
    # Uniform points are within the limit in 40 % of the trials, and 0.125 is the optimum.
    assert len(losses) > 0.6 * 40
    assert min(losses) < 0.13


@pytest.mark.slow
@pytest.mark.parametrize(("family", "kind"), [("sum", "linear"), ("average", "trees")])
def test_the_aggregation_of_a_family_is_found_with_the_kind_of_model_that_it_suits(family, kind):
    assert has_found(Admm, family, kind, 0, 40)
