"""Of paths that make one pipeline the canonical one stands for all: steps that are ignored."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import ignoring_space, mixed_space, ordered_space

from prefect_tune.optimizers import Algorithm, Configuration, Space, Step, UnknownName
from prefect_tune.optimizers.space.candidate_space import CandidateSpace, neighbours
from prefect_tune.optimizers.space.sampling import new_configuration, sample_configuration

SPACE = ignoring_space()
NONE, MADE = Algorithm(id="none"), Algorithm(id="made", estimator="x.Made")


def product_of(space: Space) -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = [()]
    for step in space.searched:
        paths = [(*path, a.id) for path in paths for a in step.algorithms]
    return paths


@st.composite
def spaces(draw) -> Space:
    """Two to four steps in front of a model, each of which may be ignored by any later one."""
    names = [f"s{k}" for k in range(draw(st.integers(2, 4)))]
    steps = []
    for k, name in enumerate(names):
        earlier = st.lists(st.sampled_from(names[:k]), unique=True) if k else st.just([])
        made = [
            Algorithm(id=f"a{i}", estimator="x.A", ignores=tuple(draw(earlier)))
            for i in range(draw(st.integers(1, 2)))
        ]
        idle = Algorithm(id="none", only_ignored=draw(st.booleans()))
        steps.append(Step(name, tuple(draw(st.permutations([idle, *made])))))
    models = [
        Algorithm(
            id=f"m{i}",
            estimator="x.M",
            ignores=tuple(draw(st.lists(st.sampled_from(names), unique=True))),
        )
        for i in range(draw(st.integers(1, 3)))
    ]
    return Space("any", (*steps, Step("model", tuple(models))))


def test_a_step_that_is_ignored_does_nothing() -> None:
    assert SPACE.canonical(("mean", "power", "some", "tree")) == ("none", "none", "none", "tree")
    assert SPACE.canonical(("mean", "power", "some", "bayes")) == ("mean", "none", "some", "bayes")
    assert SPACE.canonical(("mean", "unit", "some", "svm")) == ("mean", "none", "some", "svm")
    assert SPACE.canonical(("mean", "unit", "none", "svm")) == ("mean", "unit", "none", "svm")


def test_a_step_that_is_ignored_ignores_nothing_itself() -> None:
    space = Space(
        "chain",
        (
            Step("a", (NONE, MADE)),
            Step("b", (NONE, Algorithm(id="made", estimator="x.B", ignores=("a",)))),
            Step("model", (Algorithm(id="m", estimator="x.M", ignores=("b",)),)),
        ),
    )
    assert space.canonical(("made", "made", "m")) == ("made", "none", "m")


def test_what_is_only_for_ignored_steps_is_not_had_otherwise() -> None:
    assert not SPACE.is_feasible(("none", "unit", "none", "svm"))
    assert SPACE.settled(("none", "unit", "none", "svm")) == ("mean", "unit", "none", "svm")
    assert SPACE.step("impute").plainest.id == "mean"


def test_canonical_paths_are_counted_and_listed_once() -> None:
    assert (SPACE.n_paths, SPACE.n_feasible_paths) == (13, 13)
    assert len(set(SPACE.paths())) == 13


@given(spaces())
def test_every_path_has_one_canonical_form_and_settles_on_one_that_can_run(space) -> None:
    listed = set(space.paths())
    assert len(listed) == space.n_paths
    for path in product_of(space):
        canonical, settled = space.canonical(path), space.settled(path)
        assert space.canonical(canonical) == canonical
        assert settled in listed
        assert settled == canonical or canonical not in listed
        assert (path in listed) == (settled == path)


@given(spaces(), st.integers(0, 9))
def test_all_ways_to_make_candidates_end_in_canonical_ones(space, seed) -> None:
    rng = np.random.default_rng(seed)
    listed = set(space.paths())
    candidates = CandidateSpace(space)
    drawn = candidates.sample(20, rng)
    near, origin = neighbours(candidates, drawn, 4, rng)
    found = [candidates.decode(c, i) for c in (drawn, near) for i in range(len(c))]
    assert {c.path for c in found if c is not None} <= listed
    assert not (near.algorithms == drawn.algorithms[origin]).all(axis=1).any()
    assert sample_configuration(space, rng).path in listed


def test_from_a_model_that_ignores_steps_there_is_a_way_to_one_that_does_not() -> None:
    candidates, rng = CandidateSpace(SPACE), np.random.default_rng(0)
    tree = candidates.encode(
        [Configuration.of(SPACE, ("none", "none", "none", "tree"), [{}, {}, {}, {"depth": 5}])]
    )
    near, _ = neighbours(candidates, tree, 50, rng)
    paths = {c.path for i in range(len(near)) if (c := candidates.decode(near, i))}
    assert {("mean", "none", "none", "svm"), ("mean", "none", "none", "bayes")} <= paths


def test_models_are_drawn_evenly_however_few_paths_they_have() -> None:
    rng = np.random.default_rng(0)
    models = [sample_configuration(SPACE, rng).path[-1] for _ in range(600)]
    assert all(150 < models.count(m) < 250 for m in ("tree", "bayes", "svm"))
    drawn = CandidateSpace(SPACE).sample(600, rng).algorithms[:, -1]
    assert (np.bincount(drawn) > 150).all()


def test_a_configuration_of_a_user_becomes_canonical() -> None:
    document = {
        "impute": {"algorithm": "power", "hyperparameters": {"p": 1.5}},
        "scale": {"algorithm": "unit"},
        "select": {"algorithm": "none"},
        "model": {"algorithm": "tree", "hyperparameters": {"depth": 7}},
    }
    read = Configuration.from_json(document, SPACE)
    assert read.path == ("none", "none", "none", "tree")
    assert read["impute"].values == ()
    assert Configuration.from_json(read.to_json(), SPACE) == read


def test_a_configuration_that_leaves_out_what_its_model_needs_is_refused() -> None:
    document = {
        "impute": {"algorithm": "none"},
        "scale": {"algorithm": "none"},
        "select": {"algorithm": "none"},
        "model": {"algorithm": "bayes"},
    }
    with pytest.raises(ValueError, match="none > none > none > bayes cannot run"):
        Configuration.from_json(document, SPACE)


def test_all_that_is_new_is_found_although_paths_are_equal() -> None:
    space = Space(
        "finite",
        (
            Step("a", (NONE, MADE)),
            Step(
                "model",
                (
                    Algorithm(id="m", estimator="x.M", ignores=("a",)),
                    Algorithm(id="n", estimator="x.N"),
                ),
            ),
        ),
    )
    rng, asked = np.random.default_rng(0), set[Configuration]()
    for _ in range(3):
        asked.add(new_configuration(space, asked, rng))
    assert {c.path for c in asked} == {("none", "m"), ("none", "n"), ("made", "n")}


def test_a_part_keeps_what_does_nothing_of_what_is_ignored() -> None:
    kept = {"impute": ["mean"], "scale": ["unit"], "select": ["some"], "model": ["tree", "svm"]}
    part = SPACE.restricted_to(kept)
    assert set(part.paths()) == {
        ("none", "none", "none", "tree"),
        *(
            path
            for path in SPACE.paths()
            if path[0] == "mean" and path[1] != "power" and path[-1] == "svm"
        ),
    }


MADE_ONLY = Step("a", (MADE, Algorithm(id="other", estimator="x.O")))


@pytest.mark.parametrize(
    ("steps", "error", "message"),
    [
        ((MADE_ONLY,), ValueError, "ignores step 'a', which has no choice that does nothing"),
        (
            (Step("a", (Algorithm(id="weighting", class_weights="balanced"),)),),
            ValueError,
            "no choice that does nothing",
        ),
        ((Step("b", (NONE, MADE)),), UnknownName, "which ignores 'a'.*Known: b"),
        ((Step("a", (MADE,), fixed=True),), ValueError, "ignores step 'a', which always runs"),
        (
            (Step("a", (NONE, Algorithm(id="m", estimator="x.M", only_ignored=True))),),
            ValueError,
            "only for where its step is ignored, and does something",
        ),
    ],
)
def test_what_cannot_be_ignored_is_told(steps, error, message) -> None:
    model = Step("model", (Algorithm(id="m", estimator="x.M", ignores=("a",)), MADE))
    with pytest.raises(error, match=message):
        Space("wrong", (*steps, model))


def test_a_step_of_orders_cannot_be_ignored() -> None:
    ordered = ordered_space(2)
    model = Step("model", (Algorithm(id="m", estimator="x.M", ignores=("order",)),))
    with pytest.raises(ValueError, match="ignores step 'order', which orders others"):
        Space("wrong", (*ordered.steps[:-1], model))


def test_steps_in_any_order_can_be_ignored() -> None:
    ordered = ordered_space(2)
    models = (
        Algorithm(id="m", estimator="x.M", ignores=("b",)),
        Algorithm(id="n", estimator="x.N", ignores=("a", "b")),
    )
    space = Space("both", (*ordered.steps[:-1], Step("model", models)))
    assert [p for p in space.paths() if p[-1] == "n"] == [("a_before_b", "none", "none", "n")]
    assert {p[2] for p in space.paths()} == {"none"}


def test_what_ignores_nothing_is_described_as_ever_and_drawn_as_ever() -> None:
    described = [a for s in mixed_space().describe()["steps"] for a in s["algorithms"]]
    assert not any({"ignores", "only_ignored", "requires"} & set(a) for a in described)
    tree = SPACE.describe()["steps"][-1]["algorithms"][0]
    assert tree["ignores"] == ["impute", "scale", "select"]
