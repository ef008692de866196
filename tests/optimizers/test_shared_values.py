"""Values shared by many paths: definition, comparison, and the best values."""

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
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.tasks.catalogue.spaces import SPACES


def windows() -> Algorithm:
    """Return a second algorithm of the first step, with a condition and a forbidden pair."""
    space = ConfigurationSpace(
        space=[
            Categorical("window", ["all", "year", "week"], default="all"),
            Categorical("year.of", ["count", "last"], default="count"),
            Float("share", (1e-4, 1e-1), log=True, default=1e-3),
            Categorical("scale", ["none", "log"], default="none"),
        ]
    )
    space.add(EqualsCondition(space["year.of"], space["window"], "year"))
    forbidden = (("window", "week"), ("scale", "log"))
    clauses = (ForbiddenEqualsClause(space[name], value) for name, value in forbidden)
    space.add(ForbiddenAndConjunction(*clauses))
    return algorithm("windows", hyperparameters=space)


def configured(model: str, made: str = "aggregate", **values: str | float) -> Configuration:
    """Return the default of a plain path of `SPACE`, with other values in the first step."""
    document = default_configuration(SPACE, (made, "none", "none", model)).to_json()
    document["construct"]["hyperparameters"] |= values
    return Configuration.from_json(document, SPACE)


SPACE = events_space(windows())
SHARED = SharedValues(SPACE)


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
def test_shared_values_belong_to_steps_on_every_path(space: Space, names: set[str]):
    assert {h for *_, h in SharedValues(space).names} == names


def test_best_values_differ_by_model_family() -> None:
    """Averages lower the loss of trees; sums slightly lower the loss of both other families."""
    space = events_space()
    shared, table = SharedValues(space), PathTable(space, 0, SharedValues(space))
    configurations, losses = [], []
    for model in ("svm", "boosting", "bayes"):
        for aggregation in FAMILIES:
            configurations.append(configured(model, aggregation=aggregation))
            of_average = 20.0 if model == "boosting" else 31.0
            losses.append({"sum": 29.0, "average": of_average}.get(aggregation, 30.0))
    table.best = shared.best(
        PathLinear.fit(shared.columns(configurations), np.array(losses)).coefficients
    )
    firsts = {
        path[-1]: dict(table.first_run(i)["construct"].values)["aggregation"]
        for i, path in enumerate(table.paths)
    }
    trees = {"boosting": "average", "forest": "average"}
    assert firsts == {**dict.fromkeys(("svm", "ridge", "bayes", "neighbors"), "sum"), **trees}
    # First runs are encoded at once as they are one by one.
    runs, features = table.first_runs()
    expected = table.candidates.encode(map(table.first_run, range(len(table))))
    assert (runs.algorithms == expected.algorithms).all()
    assert (features == table.candidates.features(expected)).all()


def test_default_wins_among_equal_values_and_forbidden_values_never_win() -> None:
    def best(low: np.ndarray, made: str = "windows") -> dict[str, object]:
        return dict(SHARED.best(low)["linear", "construct", made].values)

    def lowering(**values: str) -> np.ndarray:
        return -SHARED.columns([configured("svm", "windows", **values)])[0]

    equal = best(np.zeros(SHARED.width), "aggregate")
    assert equal == {"aggregation": "count", "min_frequency": 3}
    assert best(lowering(window="week"))["window"] == "week"
    assert best(lowering(window="week") + lowering(scale="log"))["window"] == "all"
    last = best(lowering(**{"window": "year", "year.of": "last"}))
    assert (last["window"], last["year.of"]) == ("year", "last")


def models_varied(space: Space, **seconds: float) -> list[tuple[str, str]]:
    """Return first and last algorithm of each configuration whose values are varied."""
    earlier = tuple(("fit model", model, level, None) for model, level in seconds.items())
    costs = Costs(space, Objective(earlier_seconds=earlier))
    bases = SharedValues(space).bases(space.paths(), costs)
    return [(base.path[0], base.path[-1]) for base in bases]


def test_values_are_varied_on_the_cheapest_models_of_two_families() -> None:
    of_events = SPACES["modern_healthcare"]
    assert [model for _, model in models_varied(of_events)] == ["logistic_regression", "lightgbm"]
    known = models_varied(
        of_events, hist_gradient_boosting=0.0, lightgbm=2.0, xgboost=1.0, catboost=3.0
    )
    assert [model for _, model in known] == ["logistic_regression", "xgboost"]
    assert models_varied(SPACE) == [
        (made, model) for made in ("aggregate", "windows") for model in ("ridge", "boosting")
    ]
    # Without boosted trees others are taken, and without kinds the first model.
    whole = {s.name: [a.id for a in s.algorithms] for s in events_space().searched}
    for models, varied in (
        (["bayes", "ridge", "svm", "forest"], ["ridge", "forest"]),
        (["neighbors", "bayes"], ["bayes"]),
    ):
        part = events_space().restricted_to(whole | {"model": models})
        assert [model for _, model in models_varied(part)] == varied
    assert models_varied(SPACES["flash"]) == []


def tried(space: Space, known: list[Configuration], **options: bool) -> list[Configuration]:
    """Return the proposals after the known configurations, until each value has been tried."""
    shared, history = SharedValues(space, **options), History()
    bases = shared.bases(space.paths(), Costs(space, Objective()))
    for number in count():
        new: Configuration | None = known[number] if number < len(known) else None
        rng = np.random.default_rng([0, max(number - len(known), 0)])
        if (new := new or shared.untried(bases, history, rng)) is None:
            break
        history.record(Trial(number, Query(new)))
    return list(history.asked)[len(known) :]


def test_each_value_is_tried_with_each_family_in_few_new_trials() -> None:
    asked = tried(events_space(), [])
    assert [c.path[-1] for c in asked] == ["ridge", "boosting"] * 4
    assert asked[0] == configured("ridge")
    for model in ("ridge", "boosting"):
        values = [dict(c["construct"].values) for c in asked if c.path[-1] == model]
        assert {v["aggregation"] for v in values} == set(FAMILIES)
        assert {v["min_frequency"] for v in values} == {2, 3, 5}
    made = [dict(c["construct"].values) for c in tried(SPACE, []) if c.path[0] == "windows"]
    assert {v["window"] for v in made} == {"all", "year", "week"}
    assert not [v for v in made if (v["window"], v["scale"]) == ("week", "log")]  # forbidden
    known = [configured("svm", aggregation=f, min_frequency=2) for f in FAMILIES]
    known += [configured("svm", min_frequency=n) for n in (3, 5)]
    assert {c.path[-1] for c in tried(events_space(), known)} == {"boosting"}


def test_model_family_that_only_fails_is_not_varied() -> None:
    base, rng = configured("ridge"), np.random.default_rng(0)
    others = ({"aggregation": "average"}, {"min_frequency": 2})
    fails = [(Query(base), None), *((Query(configured("ridge", **v)), None) for v in others)]
    works = (Query(configured("ridge", aggregation="sum")), 10.0)
    for results, is_varied in ((fails[:2], True), (fails, False), ([*fails, works], True)):
        found = SHARED.untried([base], told_history(results), rng)
        assert (found is not None) == is_varied


def test_none_and_lists_are_varied_like_other_choices() -> None:
    listed = Categorical("h", ["all", None, [1, 2]])
    steps = Step("s", (algorithm("only", listed),)), Step("m", (algorithm("a"), algorithm("b")))
    asked = tried(Space("shared", steps), [], numbers=False)
    assert {c["s"].documents for c in asked} >= {(("h", None),), (("h", "[1, 2]"),)}
