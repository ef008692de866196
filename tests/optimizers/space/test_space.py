"""Spaces, their paths, and configurations."""

import json
import pickle
from collections import Counter
from itertools import product

import numpy as np
import pytest
from ConfigSpace import Categorical, Integer
from ConfigSpace.hyperparameters import OrdinalHyperparameter
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import RandomState
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.tree import DecisionTreeClassifier
from worlds import (
    algorithm,
    finite_space,
    ignoring_space,
    mixed_space,
    one_algorithm,
    ordered_space,
    sparse_space,
)

from prefect_tune.optimizers import (
    Algorithm,
    Configuration,
    Query,
    Space,
    Step,
    order_step,
)
from prefect_tune.optimizers.space.configuration import default_configuration, part_of
from prefect_tune.optimizers.space.sampling import (
    SpaceExhausted,
    enumerate_configurations,
    new_configuration,
    sample_configuration,
)
from prefect_tune.optimizers.space.vectors import CandidateSpace, Encoding


def test_paths_are_listed_and_counted_without_forbidden_paths() -> None:
    expected = ["none tree", "none bayes", "unit svm", "unit tree", "unit bayes"]
    assert [" ".join(path) for path in mixed_space().paths()] == expected
    space = mixed_space()
    assert (space.n_paths, space.n_feasible_paths, space.n_hyperparameters) == (6, 5, 4)
    space = sparse_space()
    assert space.n_paths == 4
    assert [a.id for _, a in space.pipeline(("keep", "any"))] == ["count", "keep", "any"]
    assert list(sparse_space().paths()) == [("keep", "any"), ("dense", "any"), ("dense", "picky")]


NONE, MADE = Algorithm(id="none"), Algorithm(id="made", estimator="x.Made")
MADE_ONLY = Step("a", (MADE, Algorithm(id="other", estimator="x.O")))


def steps_called(names: str) -> tuple[Step, ...]:
    """Return steps with one algorithm each."""
    return tuple(Step(name, (Algorithm(id="a"),)) for name in names)


def ignored(step: Step) -> Space:
    """Return a space with a model that ignores step `a`."""
    model = Step("model", (Algorithm(id="m", estimator="x.M", ignores=("a",)), MADE))
    return Space("ignored", (step, model))


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: Step("s", ()), "no algorithm"),
        (lambda: order_step("a", "a"), "got a, a"),
        (lambda: order_step(*"abcde"), "2 to 4"),
        (lambda: Space("x", (order_step("s", "t"), *steps_called("sut"))), "the steps s, t"),
        (lambda: Space("x", (order_step("s", "t"), *steps_called("st"))), "last step"),
        (lambda: Step("s", (Algorithm(id="a"), Algorithm(id="a"))), "named 'a'"),
        (lambda: Step("s", (Algorithm(id="a"), Algorithm(id="b")), fixed=True), "is fixed"),
        (lambda: Space("x", (Step("s", (Algorithm(id="a"),), fixed=True),)), "fixed steps only"),
        (lambda: Space("x", steps_called("ss")), "named 's'"),
        (lambda: Space("x", steps_called("st"), frozenset({(("s", "a"), ("t", "a"))})), "no path"),
        (lambda: Algorithm(id="a", transforms={"depth": "clip_n"}), "'depth'"),
        (lambda: algorithm("a", growth={"tree": 1.0}), "tree"),
        (lambda: algorithm("a", rounds="tree"), "tree"),
        (lambda: ignored(MADE_ONLY), "step 'a'"),
        (lambda: ignored(Step("a", (Algorithm(id="a", class_weights="balanced"),))), "nothing"),
        (lambda: ignored(Step("b", (NONE, MADE))), "Known: b"),
        (lambda: ignored(Step("a", (MADE,), fixed=True)), "must be searched"),
        (lambda: ignored(Step("a", (NONE, algorithm("m", only_ignored=True)))), "only_ignored"),
    ],
)
def test_invalid_space_is_refused_with_the_reason(build, reason) -> None:
    with pytest.raises(ValueError, match=reason):
        build()


@pytest.mark.parametrize("n", [2, 3])
def test_exactly_one_of_several_equivalent_orders_is_feasible(n: int) -> None:
    space = ordered_space(n)

    def working(path: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        pipeline = space.pipeline(path)
        return tuple((s.name, a.id) for s, a in pipeline if not a.is_idle)

    every = list(product(*([a.id for a in s.algorithms] for s in space.searched)))
    can_run = [working(path) for path in space.paths()]
    assert len(can_run) == len(set(can_run))
    assert set(can_run) == {working(path) for path in every}


IGNORING = ignoring_space()


@st.composite
def spaces(draw) -> Space:
    """Spaces of two to four steps before a model; any later step may ignore an earlier step."""

    def made(name: str, earlier: list[str]) -> Algorithm:
        ignores = st.lists(st.sampled_from(earlier), unique=True) if earlier else st.just([])
        return Algorithm(id=name, estimator="x.A", ignores=tuple(draw(ignores)))

    names = [f"s{k}" for k in range(draw(st.integers(2, 4)))]
    steps = []
    for k, name in enumerate(names):
        some = [made(f"a{i}", names[:k]) for i in range(draw(st.integers(1, 2)))]
        idle = Algorithm(id="none", only_ignored=draw(st.booleans()))
        steps.append(Step(name, tuple(draw(st.permutations([idle, *some])))))
    models = [made(f"m{i}", names) for i in range(draw(st.integers(1, 3)))]
    return Space("any", (*steps, Step("model", tuple(models))))


@pytest.mark.parametrize(
    ("path", "canonical"),
    [
        ("mean power some tree", "none none none tree"),
        ("mean power some bayes", "mean none some bayes"),
        ("mean unit some svm", "mean none some svm"),
        ("mean unit none svm", "mean unit none svm"),
    ],
)
def test_ignored_step_becomes_none(path: str, canonical: str) -> None:
    assert IGNORING.canonical_path(tuple(path.split()), settle=False) == tuple(canonical.split())


@settings(max_examples=40)
@given(spaces())
def test_every_path_has_one_canonical_and_feasible_form(space) -> None:
    listed = set(space.paths())
    assert len(listed) == space.n_paths
    for path in product(*([a.id for a in step.algorithms] for step in space.searched)):
        canonical, settled = space.canonical_path(path, settle=False), space.canonical_path(path)
        assert space.canonical_path(canonical, settle=False) == canonical
        assert settled in listed
        assert settled == canonical or canonical not in listed
        assert (path in listed) == (settled == path)


def test_configuration_given_by_a_user_becomes_canonical() -> None:
    document = {
        "impute": {"algorithm": "power", "hyperparameters": {"p": 1.5}},
        "scale": {"algorithm": "unit"},
        "select": {"algorithm": "none"},
        "model": {"algorithm": "tree", "hyperparameters": {"depth": 7}},
    }
    read = Configuration.from_json(document, IGNORING)
    assert read.path == ("none", "none", "none", "tree")
    assert read["impute"].values == ()
    assert Configuration.from_json(read.to_json(), IGNORING) == read


SPACE = mixed_space()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("scale"), "scale, model"),
        (lambda d: d["model"].update(algorithm="svn"), "'svm'"),
        (lambda d: d["model"]["hyperparameters"].pop("C"), "C, kernel"),
        (lambda d: d["model"]["hyperparameters"].update({"poly.degree": 3}), "C, kernel"),
        (lambda d: d["model"]["hyperparameters"].update(C=1e9), "C=1000000000.0"),
        (lambda d: d["model"]["hyperparameters"].update(C="x"), "C='x'"),
        (lambda d: d["scale"].update(algorithm="none"), "none > svm"),
    ],
)
def test_configuration_outside_the_space_is_refused_with_the_reason(change, message):
    document = default_configuration(SPACE, ("unit", "svm")).to_json()
    change(document)
    with pytest.raises(ValueError, match=message):
        Configuration.from_json(document, SPACE)


def test_query_is_full_only_with_all_rows_folds_and_epochs() -> None:
    asked = default_configuration(SPACE, ("unit", "svm"))
    assert Query(asked).is_full
    partial = ({"subset": 0.5}, {"folds": 2}, {"epochs": 9}, {"held_out": 0.5})
    assert not any(Query(asked, **fidelity).is_full for fidelity in partial)
    assert [part_of(3, asked, "folds") for asked in (None, 1, 3)] == [None, 1, None]
    with pytest.raises(ValueError, match="4 folds"):
        part_of(3, 4, "folds")


def test_feasible_paths_are_drawn_equally_often() -> None:
    """With 1000 draws, each of 5 paths gets 200, with a standard deviation of 12.6."""
    rng = np.random.default_rng(1)
    counts = Counter(sample_configuration(SPACE, rng).path for _ in range(1000))
    assert len(counts) == 5
    assert all(abs(count - 200) < 63 for count in counts.values())  # five of them


def test_new_configurations_differ_until_the_space_is_exhausted() -> None:
    space, rng, asked = finite_space(), np.random.default_rng(0), set()
    for n in range(5):
        asked.add(new_configuration(space, asked, rng))
        assert len(asked) == n + 1
    assert asked == set(enumerate_configurations(space, 100))  # without what is forbidden
    with pytest.raises(SpaceExhausted):
        new_configuration(space, asked, rng)


def scaled(X):
    """A function of the module, used as a choice."""
    return X


CHOICES = [
    (10,), (10, 5), [10], None, "(10,", {0: 1, 1: 2.5}, 0.5, float("nan"), scaled, np.log,
    DecisionTreeClassifier, DecisionTreeClassifier(max_depth=2), DecisionTreeClassifier(),
    RBF(1.00001) + WhiteKernel(), RBF(1.00002) + WhiteKernel(), ("a", (np.int64(3),)),
]  # fmt: skip


@pytest.mark.parametrize("listing", [Categorical, OrdinalHyperparameter])
def test_choices_of_any_type_survive_json(listing) -> None:
    space = one_algorithm(listing("h", CHOICES))
    documents = set()
    for choice in CHOICES:
        configuration = Configuration.of(space, ("a",), [{"h": choice}])
        document = json.loads(json.dumps(configuration.to_json(), allow_nan=False))
        back = Configuration.from_json(document, space)
        assert dict(back["s"].values)["h"] is choice
        assert (back, hash(back)) == (configuration, hash(configuration))
        documents.add(configuration.canonical)
        copied = pickle.loads(pickle.dumps(configuration))  # as for another process
        known = CandidateSpace(space)
        assert dict(known.decode(known.encode([copied]), 0)["s"].values)["h"] is choice
    assert len(documents) == len(CHOICES)
    assert json.dumps(space.steps[0].algorithms[0].describe())
    assert np.isfinite(Encoding(space).to_cube(configuration)[0]).all()


@pytest.mark.parametrize("hyperparameter", [Integer("h", (1, 9)), Categorical("h", [1, 2])])
def test_boolean_is_not_accepted_as_a_number(hyperparameter) -> None:
    document = {"s": {"algorithm": "a", "hyperparameters": {"h": True}}}
    with pytest.raises(ValueError, match="h=True"):
        Configuration.from_json(document, one_algorithm(hyperparameter))


@pytest.mark.parametrize(
    "choices",
    [[lambda X: X], [object()], [np.random.default_rng(0).normal], [{1, 2}], [RandomState(0)],
     [(1, 2), "(1, 2)"]],
)  # fmt: skip
def test_choices_without_a_stable_name_are_refused(choices) -> None:
    with pytest.raises(ValueError, match="stored"):
        one_algorithm(Categorical("h", [None, *choices]))
