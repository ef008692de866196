"""Every algorithm of every space, built and run."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from prefect_tune.optimizers import Algorithm, UnknownName
from prefect_tune.optimizers.configuration import (
    Choice,
    default_configuration,
    sample_configuration,
)
from prefect_tune.storage.codec import canonical
from prefect_tune.tasks.catalogue.spaces import SPACES, space_named
from prefect_tune.tasks.fitting import Facts, FoldData, build, fit_model, fit_transformer, recipe

RNG = np.random.default_rng(0)
Y = np.arange(60) % 3
X = RNG.normal(size=(60, 8)) + Y[:, None] * [1, 0, 0, 2, 0, 0, 0, 0] + 4
CLASSES = np.array(["a", "b", "c"])

ESTIMATORS = sorted(
    {
        (step.name, algorithm.id): (step.name, algorithm)
        for space in SPACES.values()
        for step in space.searched
        for algorithm in step.algorithms
        if not algorithm.passes_on and step.name != "construct features"
    }.items()
)


def data(*, as_sparse: bool) -> FoldData:
    matrix = canonical(sparse.csr_array(np.maximum(X - 4, 0)) if as_sparse else X)
    return FoldData(matrix, matrix, CLASSES[Y], CLASSES)


def run(step: str, algorithm: Algorithm, choice: Choice, fold: FoldData, *, balanced: bool = False):
    how = recipe(algorithm, choice, Facts.of(fold.train), balanced=balanced)
    if step == "fit model":
        return fit_model(how, 7, fold)
    return fit_transformer(how, 7, fold)


def choices(algorithm: Algorithm) -> list[Choice]:
    """The default and a few draws."""
    step_space = next(
        s for s in SPACES.values() if any(a is algorithm for t in s.searched for a in t.algorithms)
    )
    step = next(t for t in step_space.searched if algorithm in t.algorithms)
    paths = [p for p in step_space.paths() if p[step_space.searched.index(step)] == algorithm.id]
    drawn = [sample_configuration(step_space, RNG, paths[0])[step.name] for _ in range(4)]
    return [default_configuration(step_space, paths[0])[step.name], *drawn]


@pytest.mark.parametrize("case", [c for _, c in ESTIMATORS], ids=lambda c: f"{c[0]}: {c[1].id}")
@pytest.mark.parametrize("as_sparse", [False, True], ids=["dense", "sparse"])
def test_every_algorithm_runs_on_what_it_says_it_accepts_and_repeats_itself(
    case, as_sparse
) -> None:
    step, algorithm = case
    if as_sparse and not algorithm.flags.accepts_sparse:
        with pytest.raises((TypeError, ValueError)):
            run(step, algorithm, choices(algorithm)[0], data(as_sparse=True))
        return
    for choice in choices(algorithm):
        first = run(step, algorithm, choice, data(as_sparse=as_sparse))
        second = run(step, algorithm, choice, data(as_sparse=as_sparse))
        if step == "fit model":
            assert (first[1].label == second[1].label).all()
            assert first[1].score.tobytes() == second[1].score.tobytes()
            assert first[1].score.shape == (60, 3)
        else:
            train = first.parts["train"]
            layout = algorithm.flags.output
            expected = ("sparse" if as_sparse else "dense") if layout == "same" else layout
            assert first.facts["layout"] == expected
            assert abs(train - second.parts["train"]).max() == 0


@pytest.mark.parametrize("case", [c for _, c in ESTIMATORS], ids=lambda c: f"{c[0]}: {c[1].id}")
def test_every_estimator_can_be_cloned(case) -> None:
    _, algorithm = case
    how = recipe(algorithm, choices(algorithm)[0], Facts.of(X), balanced=True)
    estimator = build(how, 3)
    assert clone(estimator).get_params().keys() == estimator.get_params().keys()
    if algorithm.flags.stochastic:
        assert estimator.random_state == 3


@pytest.mark.parametrize("case", [c for _, c in ESTIMATORS], ids=lambda c: f"{c[0]}: {c[1].id}")
def test_class_weights_reach_exactly_those_that_say_so(case) -> None:
    step, algorithm = case
    how = recipe(algorithm, choices(algorithm)[0], Facts.of(X), balanced=True)
    assert how.weights == algorithm.flags.weights
    if step != "fit model":
        return
    few = np.r_[0:20, 20:40:5]
    rare = FoldData(X[few], X, CLASSES[np.where(Y[few] == 2, 1, 0)], CLASSES)
    plain, weighed = (
        run(step, algorithm, choices(algorithm)[0], rare, balanced=b)[1].score
        for b in (False, True)
    )
    if algorithm.flags.weights == "none":
        assert plain.tobytes() == weighed.tobytes()
    elif algorithm.id == "logistic_regression":
        assert (plain != weighed).any()


def test_counts_of_the_spaces() -> None:
    counts = {
        name: (s.n_paths, s.n_feasible_paths, s.n_hyperparameters) for name, s in SPACES.items()
    }
    assert counts == {"small": (120, 120, 16), "healthcare": (240, 224, 18)}


def test_an_unknown_space_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'healthcare'"):
        space_named("healthcar")
