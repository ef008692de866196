"""Values that paths have in common: which they are, how they are told apart, and what is best."""

from itertools import count

import numpy as np
import pytest
from ConfigSpace import (
    Categorical,
    ConfigurationSpace,
    EqualsCondition,
    Float,
    ForbiddenAndConjunction,
    ForbiddenEqualsClause,
)
from worlds import FAMILIES, algorithm, events_space, mixed_space, told_history

from prefect_tune.optimizers import (
    Algorithm,
    Configuration,
    History,
    Objective,
    Query,
    Space,
    Step,
    Trial,
)
from prefect_tune.optimizers.methods.flash.design import PathTable
from prefect_tune.optimizers.methods.flash.shared_values import SharedValues
from prefect_tune.optimizers.models.path_linear import PathLinear
from prefect_tune.optimizers.models.seconds import Costs
from prefect_tune.optimizers.space.configuration import Choice, default_configuration
from prefect_tune.tasks.catalogue.spaces import SPACES


def windows() -> Algorithm:
    """Another construction: its share matters with some windows only, and one pair is forbidden."""
    space = ConfigurationSpace(
        space=[
            Categorical("window", ["all", "year", "week"], default="all"),
            Categorical("year.of", ["count", "last"], default="count"),
            Float("share", (1e-4, 1e-1), log=True, default=1e-3),
            Categorical("scale", ["none", "log"], default="none"),
        ]
    )
    space.add(EqualsCondition(space["year.of"], space["window"], "year"))
    space.add(
        ForbiddenAndConjunction(
            ForbiddenEqualsClause(space["window"], "week"),
            ForbiddenEqualsClause(space["scale"], "log"),
        )
    )
    return algorithm("windows", hyperparameters=space)


def costs_of(space: Space) -> Costs:
    return Costs(space, Objective())


def with_values(space: Space, path: tuple[str, ...], **values: str | float) -> Configuration:
    """The default of a path, with other values in the first step."""
    document = default_configuration(space, path).to_json()
    document["construct"]["hyperparameters"] |= values
    return Configuration.from_json(document, space)


@pytest.mark.parametrize(
    ("space", "names"),
    [
        (SPACES["modern_healthcare"], {"aggregation", "min_frequency"}),
        (SPACES["admm"], {"strategy"}),
        (SPACES["flash"], set()),
        (mixed_space(), set()),
        (events_space(), {"aggregation", "min_frequency"}),
        (events_space(windows(), algorithm("third")), set()),
    ],
)
def test_shared_are_the_values_of_steps_that_every_path_passes(space: Space, names: set[str]):
    assert {h for *_, h in SharedValues(space).names} == names


def test_categories_can_be_told_apart_without_numbers() -> None:
    space = events_space()
    shared = SharedValues(space, numbers=False)
    assert shared.names == {("construct", "aggregate", "aggregation")}
    configuration = with_values(space, ("aggregate", "unit", "none", "svm"), min_frequency=5)
    sums = with_values(space, configuration.path, aggregation="sum")
    best = shared.best(-shared.columns([sums])[0])
    applied = dict(shared.applied(best, configuration)["construct"].values)
    assert applied == {"aggregation": "sum", "min_frequency": 5}


def test_a_value_has_a_column_for_all_models_and_one_for_its_kind() -> None:
    space = events_space()
    shared = SharedValues(space)
    linear, trees = (
        with_values(space, ("aggregate", "none", "none", model), aggregation="sum", min_frequency=4)
        for model in ("svm", "boosting")
    )
    rows = shared.columns([linear, trees])
    assert rows.shape == (2, 7 * (1 + 3))
    assert rows.sum(axis=1).tolist() == [4, 4]  # two values, twice each
    assert int((rows[0] * rows[1]).sum()) == 2
    near = shared.columns([with_values(space, linear.path, aggregation="sum", min_frequency=3)])
    assert np.array_equal(near[0], rows[0])  # 4 counts as the nearer level, or the default


def test_the_best_values_differ_by_kind_of_model() -> None:
    """Averages lower the loss with trees; sums lower it a little with both other kinds."""
    space = events_space()
    shared, table = SharedValues(space), PathTable(space, 0, SharedValues(space))
    configurations, losses = [], []
    for model in ("svm", "boosting", "bayes"):
        for aggregation in FAMILIES:
            path = ("aggregate", "none", "none", model)
            configurations.append(with_values(space, path, aggregation=aggregation))
            of_average = 20.0 if model == "boosting" else 31.0
            losses.append({"sum": 29.0, "average": of_average}.get(aggregation, 30.0))
    fitted = PathLinear.fit(shared.columns(configurations), np.array(losses))
    table.best = shared.best(fitted.coefficients)
    firsts = {
        path[-1]: dict(table.first_run(i)["construct"].values)["aggregation"]
        for i, path in enumerate(table.paths)
    }
    trees = {"boosting": "average", "forest": "average"}
    assert firsts == {**dict.fromkeys(("svm", "ridge", "bayes", "neighbours"), "sum"), **trees}


def test_of_equal_values_the_default_is_best_and_forbidden_ones_never() -> None:
    space = events_space(windows())
    shared = SharedValues(space)
    path = ("windows", "none", "none", "svm")
    assert shared.best() == shared.best(np.zeros(shared.width))
    assert shared.best()["linear", "construct", "aggregate"] == Choice(
        "aggregate", (("aggregation", "count"), ("min_frequency", 3))
    )
    low = -shared.columns([with_values(space, path, window="week")])[0]
    assert dict(shared.best(low)["linear", "construct", "windows"].values)["window"] == "week"
    both = low - shared.columns([with_values(space, path, scale="log")])[0]
    chosen = shared.best(both)["linear", "construct", "windows"]
    assert dict(chosen.values)["window"] == "all"
    last = with_values(space, path, **{"window": "year", "year.of": "last"})
    best = shared.best(-shared.columns([last])[0])
    assert best["linear", "construct", "windows"] == last["construct"]


def test_values_are_varied_on_the_cheapest_models_of_two_kinds() -> None:
    of_events = SPACES["modern_healthcare"]
    bases = SharedValues(of_events).bases(of_events.paths(), costs_of(of_events))
    assert [base.path[-1] for base in bases] == ["logistic_regression", "lightgbm"]
    assert {base.path[1] for base in bases} == {"keep_sparse"}
    trees = ("hist_gradient_boosting", "lightgbm", "xgboost", "catboost")
    seconds = dict(zip(trees, (0.0, 2.0, 1.0, 3.0), strict=True))
    earlier = [("fit model", model, level, None) for model, level in seconds.items()]
    known = Costs(of_events, Objective(earlier_seconds=tuple(earlier)))
    bases = SharedValues(of_events).bases(of_events.paths(), known)
    assert [base.path[-1] for base in bases] == ["logistic_regression", "xgboost"]
    both = events_space(windows())
    bases = SharedValues(both).bases(both.paths(), costs_of(both))
    assert [(base.path[0], base.path[-1]) for base in bases] == [
        (made, model) for made in ("aggregate", "windows") for model in ("ridge", "boosting")
    ]


def test_without_boosted_trees_others_are_taken_and_without_kinds_the_first_model() -> None:
    whole = events_space()
    steps = [{s.name: [a.id for a in s.algorithms] for s in whole.searched} for _ in range(2)]
    steps[0]["model"].remove("boosting")
    steps[1]["model"] = ["neighbours", "bayes"]
    found = []
    for kept in steps:
        space = whole.restricted_to(kept)
        bases = SharedValues(space).bases(space.paths(), costs_of(space))
        found.append([base.path[-1] for base in bases])
    assert found == [["ridge", "forest"], ["bayes"]]


def varied(space: Space, asked: list[Configuration]) -> list[Configuration]:
    """What is asked for until each value was tried, after these."""
    shared, history = SharedValues(space), History()
    bases = shared.bases(space.paths(), costs_of(space))
    for number in count():
        new: Configuration | None = asked[number] if number < len(asked) else None
        new = new or shared.untried(bases, history, np.random.default_rng([0, number - len(asked)]))
        if new is None:
            return list(history.asked)[len(asked) :]
        history.record(Trial(number, Query(new)))
    raise AssertionError


def test_each_value_is_tried_with_each_kind_in_few_trials() -> None:
    asked = varied(events_space(), [])
    assert [c.path[-1] for c in asked] == ["ridge", "boosting"] * 4
    assert asked[0] == default_configuration(events_space(), asked[0].path)
    for model in ("ridge", "boosting"):
        values = [dict(c["construct"].values) for c in asked if c.path[-1] == model]
        assert {v["aggregation"] for v in values} == set(FAMILIES)
        assert {v["min_frequency"] for v in values} == {2, 3, 5}


def test_a_kind_of_model_that_only_fails_is_varied_no_more() -> None:
    space = events_space()
    shared = SharedValues(space)
    ridge, _ = shared.bases(space.paths(), costs_of(space))
    other = with_values(space, ridge.path, aggregation="average")
    fails = [(Query(ridge), None), (Query(other), None)]
    rng, tried = np.random.default_rng(0), told_history(fails[:1])
    assert shared.untried([ridge], tried, rng) is not None
    assert shared.untried([ridge], told_history(fails), rng) is None
    again = with_values(space, ridge.path, aggregation="sum")
    works = told_history([*fails, (Query(again), 10.0)])
    assert shared.untried([ridge], works, rng) is not None


def test_what_known_configurations_tried_is_not_tried_again() -> None:
    space = events_space()
    path = ("aggregate", "unit", "some", "svm")
    known = [with_values(space, path, aggregation=f, min_frequency=2) for f in FAMILIES]
    known += [with_values(space, path, min_frequency=n) for n in (3, 5)]
    assert {c.path[-1] for c in varied(space, known)} == {"boosting"}


def test_values_of_two_algorithms_are_tried_in_turn_and_only_allowed_ones() -> None:
    asked = varied(events_space(windows()), [])
    assert [c.path[0] for c in asked[:4]] == ["aggregate", "aggregate", "windows", "windows"]
    made = [dict(c["construct"].values) for c in asked if c.path[0] == "windows"]
    assert {v["window"] for v in made} == {"all", "year", "week"}
    assert not [v for v in made if (v["window"], v["scale"]) == ("week", "log")]


def test_first_runs_are_encoded_as_they_run() -> None:
    space = events_space()
    shared = SharedValues(space)
    table = PathTable(space, 0, shared)
    ran = with_values(space, ("aggregate", "none", "none", "boosting"), aggregation="average")
    of_trees = {("trees", "construct", "aggregate"): ran["construct"]}
    for best in (shared.best(), {**shared.best(), **of_trees}):
        table.best = best
        runs, features = table.first_runs()
        expected = table.candidates.encode(map(table.first_run, range(len(table))))
        assert (runs.algorithms == expected.algorithms).all()
        assert (features == table.candidates.features(expected)).all()


def test_choices_that_are_none_or_lists_are_varied_as_others() -> None:
    listed = Categorical("h", ["all", None, [1, 2]])
    steps = Step("s", (algorithm("only", listed),)), Step("m", (algorithm("a"), algorithm("b")))
    space = Space("shared", steps)
    shared, history = SharedValues(space, numbers=False), History()
    bases = [default_configuration(space, path) for path in space.paths()]
    rng = np.random.default_rng(0)
    while (varied := shared.untried(bases, history, rng)) is not None and len(history) < 30:
        history.record(Trial(len(history), Query(varied)))
    assert {c["s"].documents for c in history.asked} >= {(("h", None),), (("h", "[1, 2]"),)}
