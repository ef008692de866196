"""Every algorithm of every space: it builds, runs, repeats itself, and its flags are true."""

import json
import re
import warnings
from collections.abc import Iterable
from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ConfigSpace import ConfigurationSpace, Float
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.class_weight import compute_class_weight

from prefect_tune.optimizers import Algorithm, Choice
from prefect_tune.optimizers.documents import UnknownName
from prefect_tune.optimizers.space.configuration import active_hyperparameters, default_choice
from prefect_tune.optimizers.space.sampling import sample_choice
from prefect_tune.optimizers.space.vectors import from_unit
from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.catalogue import admm
from prefect_tune.tasks.catalogue.construction import CONSTRUCT_FEATURES
from prefect_tune.tasks.catalogue.estimators import QuadraticDiscriminant, select_by_p_value
from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE
from prefect_tune.tasks.catalogue.spaces import SPACES
from prefect_tune.tasks.fitting.fitting import FoldData, fit_model, fit_transformer
from prefect_tune.tasks.fitting.recipe import MatrixSummary, WillNotFit, build, recipe

RNG = np.random.default_rng(0)
N = 45
POSITION = np.arange(N) % 3
SIGNED = RNG.normal(size=(N, 6)) * [1, 1, 5, 1, 1, 1] + POSITION[:, None] * [1, 0, 0, 2, 0, 0]
NEW = RNG.normal(size=(12, 6)) * 3
CLASSES = np.array(["a", "b", "c"])
NUMBERS = SIGNED[:, 0] * 2 + np.abs(SIGNED[:, 3]) + 1
FAILURES = {
    "kernel_pca": "negative eigenvalues",
    "quadratic_discriminant": "covariance matrix of class|not positive definite|singular",
    "fast_ica": "makes values that are not finite|infs or NaNs",
}
"""The only failures that depend on values, and their reasons."""
TAKES_TABLES = {"construct features", "construct", "impute", "encode"}
Case = tuple[str, Algorithm]


def cases() -> dict[str, Case]:
    """Each algorithm once, also when several spaces use it."""
    found: dict[int, tuple[str, Case]] = {}
    for space in SPACES.values():
        for step in space.steps:
            for algorithm in step.algorithms:
                if algorithm.is_passthrough or step.name in TAKES_TABLES:
                    continue
                is_model = step is space.steps[-1]
                kind = space.target if is_model else f"transform for {space.target}"
                name = f"{space.name}: {step.name}: {algorithm.id}"
                found.setdefault(id(algorithm), (name, (kind, algorithm)))
    return dict(found.values())


def small(algorithm: Algorithm) -> Algorithm:
    """With fewer trees and passes than it is declared with, where those are fixed."""
    fewer = {"n_estimators": 6, "max_iter": 50}
    fixed = {k: min(v, fewer.get(k, v)) if k in fewer else v for k, v in algorithm.fixed.items()}
    return replace(algorithm, fixed=fixed)


CASES = {name: (kind, small(algorithm)) for name, (kind, algorithm) in cases().items()}
every = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
MODELS = {name: case for name, case in CASES.items() if case[0] in ("classes", "numbers")}
every_model = pytest.mark.parametrize("case", MODELS.values(), ids=MODELS)


def fold(kind: str, *, as_sparse: bool = False) -> FoldData:
    matrices = [SIGNED, NEW]
    if as_sparse:
        matrices = [sparse.csr_array(np.where(np.abs(m) > 1, m, 0)) for m in matrices]
    train, held_out = map(canonical, matrices)
    if kind.endswith("numbers"):
        return FoldData(train, held_out, NUMBERS, np.array([]))
    return FoldData(train, held_out, CLASSES[POSITION], CLASSES)


def run(case: Case, choice: Choice, data: FoldData, *, balanced: bool = False):
    kind, algorithm = case
    summary = replace(MatrixSummary.of(data.train), n_classes=len(data.classes))
    how = recipe(algorithm, choice, summary, balanced=balanced)
    if kind in ("classes", "numbers"):
        return fit_model(how, 7, data)
    return fit_transformer(how, 7, data)


def bytes_of(kind: str, came) -> bytes:
    if kind in ("classes", "numbers"):
        predictions = came[1]
        score = b"" if predictions.score is None else predictions.score.tobytes()
        return predictions.label.tobytes() + score
    made = came.parts["held_out"]
    return (made.toarray() if sparse.issparse(made) else made).tobytes()


def extreme(algorithm: Algorithm, u: float) -> Choice:
    values: dict = {}
    for hyperparameter in active_hyperparameters(algorithm.hyperparameters, values):
        values[hyperparameter.name] = from_unit(hyperparameter, u)
    return Choice(algorithm.id, tuple(sorted(values.items())))


def one_by_one(algorithm: Algorithm) -> list[Choice]:
    """Each choice of each categorical and both ends of each number, the others at their default."""
    found = []
    for varied in algorithm.hyperparameters.values():
        choices = getattr(varied, "choices", ())
        for u in [(i + 0.5) / len(choices) for i in range(len(choices))] if choices else (0.0, 1.0):
            values: dict = {}
            for hyperparameter in active_hyperparameters(algorithm.hyperparameters, values):
                is_varied = hyperparameter.name == varied.name
                value = from_unit(hyperparameter, u) if is_varied else hyperparameter.default_value
                values[hyperparameter.name] = getattr(value, "item", lambda v=value: v)()
            found.append(quick(Choice(algorithm.id, tuple(sorted(values.items())))))
    return list(dict.fromkeys(found))


def quick(choice: Choice) -> Choice:
    """The same with fewer trees and passes."""
    most = {"n_estimators": 6, "max_iter": 50, "max_iter_predict": 25}
    values = tuple((k, min(v, most[k]) if k in most else v) for k, v in choice.values)  # noqa: PD011
    return Choice(choice.algorithm, values)


def default(algorithm: Algorithm) -> Choice:
    return quick(default_choice(algorithm))


def draws(algorithm: Algorithm, n: int) -> list[Choice]:
    rng = np.random.default_rng(1)
    return [quick(sample_choice(algorithm, rng)) for _ in range(n)]


def check_runs(case: Case, choices: Iterable[Choice], data: FoldData) -> None:
    """Every choice runs, or fails by the values for a reason of the algorithm."""
    kind, algorithm = case
    for choice in dict.fromkeys(choices):
        try:
            came = run(case, choice, data)
        except (ValueError, np.linalg.LinAlgError) as error:
            if re.search(FAILURES.get(algorithm.id, "(?!)"), str(error)):
                continue
            raise
        if kind == "classes" and came[1].score is not None:
            assert came[1].score.shape == (12, 3)


@pytest.mark.slow
@every
def test_it_runs_at_both_ends_of_its_ranges_and_repeats_itself_under_its_seed(case) -> None:
    kind, algorithm = case
    choice, data = default(algorithm), fold(kind)
    check_runs(case, [quick(extreme(algorithm, u)) for u in (0.0, 1.0)], data)
    first, again = (run(case, choice, data) for _ in range(2))
    assert bytes_of(kind, first) == bytes_of(kind, again)
    if kind.startswith("transform"):
        expected = "sparse" if algorithm.flags.output == "sparse" else "dense"
        assert first.summary["layout"] == expected


@pytest.mark.full
@every
def test_it_runs_with_each_choice_and_with_draws(case) -> None:
    kind, algorithm = case
    check_runs(case, [*one_by_one(algorithm), *draws(algorithm, 3)], fold(kind))


@pytest.mark.slow
@every
def test_it_is_built_as_its_recipe_and_its_flags_say(case) -> None:
    kind, algorithm = case
    how = recipe(algorithm, default(algorithm), MatrixSummary.of(SIGNED), balanced=False)
    estimator = build(how, 3)
    assert repr(clone(estimator)) == repr(estimator)
    assert json.loads(json.dumps(how.to_json(3))) == how.to_json(3)
    assert (how.to_json(3) != how.to_json(4)) == algorithm.flags.stochastic
    seeds = {v for k, v in estimator.get_params().items() if k.endswith("random_state")}
    assert (3 in seeds) == algorithm.flags.stochastic
    if not algorithm.flags.stochastic and None in seeds:  # takes one and makes no use of it
        of_some_settings = {"pca", "kernel_svm", "svm", "lasso", "logistic_regression"}
        assert algorithm.id in of_some_settings | {"elastic_net", "select_percentile"}
    if kind != "classes":
        assert kind != "numbers" or algorithm.flags.weights == "none"
        return
    can = {
        "class_weight": any(k.endswith("class_weight") for k in estimator.get_params()),
        "sample_weight": "sample_weight" in signature(how.model_in(estimator).fit).parameters,
    }
    if algorithm.flags.weights == "none":
        assert algorithm.id == "mlp" or not any(can.values())  # mlp: not before scikit-learn 1.7
    else:
        assert can[algorithm.flags.weights]


@pytest.mark.slow
@every
def test_it_takes_sparse_data_exactly_if_its_flag_says_so(case) -> None:
    kind, algorithm = case
    choice, data = default(algorithm), fold(kind, as_sparse=True)
    if not algorithm.flags.accepts_sparse:
        if not algorithm.requires:  # these could, and their tables are never sparse
            with pytest.raises((TypeError, ValueError)):
                run(case, choice, data)
        return
    came = run(case, choice, data)
    if kind.startswith("transform"):
        layout = {"same": "sparse"}.get(algorithm.flags.output, algorithm.flags.output)
        assert came.summary["layout"] == layout
    check_runs(case, draws(algorithm, 2), data)


@every
def test_it_needs_nonnegative_data_exactly_if_its_flag_says_so(case) -> None:
    """Without its repair it fails on negative numbers; without the flag it would not need one."""
    kind, algorithm = case
    needs = algorithm.flags.needs_nonnegative
    if not needs:
        return  # the first test gives every algorithm negative numbers
    values = dict(default(algorithm).values)
    if isinstance(needs, tuple):
        choice = next(
            c
            for c in (sample_choice(algorithm, np.random.default_rng(s)) for s in range(100))
            if dict(c.values)[needs[0]] == needs[1]
        )
        values = dict(choice.values)
    choice = Choice(algorithm.id, tuple(sorted(values.items())))
    data = fold(kind)
    how = recipe(algorithm, choice, MatrixSummary.of(data.train), balanced=False)
    assert how.repairs == ("clip",)
    run(case, choice, data)
    bare = build(how, 0)[-1]
    with pytest.raises(ValueError, match="egative"):
        bare.fit(data.train, data.y)


def unbalanced() -> tuple[FoldData, dict[str, float]]:
    """15 rows of class a and 5 of class b, and the weight of each class."""
    rare = np.r_[0:45:3, 1:45:9]
    y = CLASSES[POSITION[rare]]
    weights = compute_class_weight("balanced", classes=np.array(["a", "b"]), y=y)
    return FoldData(SIGNED[rare], NEW, y, CLASSES), dict(zip("ab", weights, strict=True))


@pytest.mark.slow
@every_model
def test_balancing_is_training_with_weights_of_inverse_frequency(case) -> None:
    """As scikit-learn itself fits it with the weight of each training row's class."""
    kind, algorithm = case
    if kind == "numbers":
        return
    data, weights = unbalanced()
    choice = default(algorithm)
    balanced = run(case, choice, data, balanced=True)[1]
    if algorithm.flags.weights == "none":
        plain = run(case, choice, data)[1]
        assert bytes_of(kind, (None, plain)) == bytes_of(kind, (None, balanced))
        return
    how = recipe(algorithm, choice, MatrixSummary.of(data.train), balanced=False)
    by_hand = build(how, 7)
    steps = "estimator__" if how.repairs else ""
    if algorithm.flags.weights == "class_weight":
        by_hand.set_params(**{f"{steps}class_weight": weights})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            by_hand.fit(data.train, data.y)
    else:
        of_rows = {f"{steps}sample_weight": [weights[label] for label in data.y]}
        by_hand.fit(data.train, data.y, **of_rows)
    assert (CLASSES[balanced.label] == by_hand.predict(NEW)).all()
    if hasattr(by_hand, "predict_proba"):
        expected = by_hand.predict_proba(NEW)
        np.testing.assert_allclose(balanced.score[:, :2], expected, rtol=1e-9)


WEIGHED = {n: c for n, c in CASES.items() if "transform" in c[0] and c[1].flags.weights != "none"}


@pytest.mark.parametrize("case", WEIGHED.values(), ids=WEIGHED)
def test_balancing_reaches_the_model_inside_a_selection(case) -> None:
    _, algorithm = case
    data, weights = unbalanced()
    fitted = run(case, default(algorithm), data, balanced=True).parts["estimator"]
    plain = recipe(algorithm, default(algorithm), MatrixSummary.of(data.train), balanced=False)
    for weight, is_same in ((weights, True), (None, False)):
        by_hand = build(plain, 7).set_params(estimator__class_weight=weight)
        by_hand.fit(data.train, data.y)
        learned, expected = (
            e.estimator_.coef_
            if hasattr(e.estimator_, "coef_")
            else e.estimator_.feature_importances_
            for e in (fitted, by_hand)
        )
        assert np.allclose(learned, expected) == is_same


GAPS = pd.DataFrame({"a": [1.0, np.nan, 5.0, 5.0], "b": ["x", None, "y", "x"], "c": [np.nan] * 4})
WHOLE = pd.DataFrame({"a": [1.0, 2.0, 5.0, 5.0], "b": ["x", "z", "y", "x"]})
TWO_CLASSES = np.array(["n", "y"])


def transformed(algorithm: Algorithm, choice: Choice, X):
    how = recipe(algorithm, choice, MatrixSummary(len(X), 2, "frame"), balanced=False)
    estimator = clone(build(how, 0))
    assert estimator.get_params().keys() == build(how, 0).get_params().keys()
    y = np.resize(TWO_CLASSES, len(X))
    return fit_transformer(how, 0, FoldData(X, X, y, TWO_CLASSES))


def test_these_are_all_the_steps_of_papers_that_take_no_matrix() -> None:
    ours = {"modern", "modern_healthcare", "modern_regression", "events"}
    published = [space for name, space in SPACES.items() if name not in ours]
    first = {s for space in published for s in space.steps if s.name in {"impute", "encode"}}
    assert first == {IMPUTE, admm.IMPUTE, ENCODE}
    assert {space.steps[0] for space in published} == {IMPUTE, admm.IMPUTE, CONSTRUCT_FEATURES}


@pytest.mark.parametrize(
    ("algorithm", "values", "filled"),
    [
        (IMPUTE.algorithms[0], {}, 5.0),
        (admm.IMPUTE.algorithms[0], {"strategy": "mean"}, 11 / 3),
        (admm.IMPUTE.algorithms[0], {"strategy": "median"}, 5.0),
        (admm.IMPUTE.algorithms[0], {"strategy": "most_frequent"}, 5.0),
    ],
)
def test_an_imputer_leaves_no_gap(algorithm, values, filled) -> None:
    made = transformed(algorithm, Choice(algorithm.id, tuple(values.items())), GAPS)
    train = made.parts["train"]
    assert not train.isna().to_numpy().any()
    assert train["a"].tolist() == [1.0, pytest.approx(filled), 5.0, 5.0]
    assert train["b"].tolist() == ["x", "(missing)", "y", "x"]
    assert made.summary["layout"] == "frame"


def test_an_encoder_makes_a_dense_matrix_with_a_column_per_category() -> None:
    algorithm = ENCODE.algorithms[0]
    made = transformed(algorithm, default_choice(algorithm), WHOLE)
    assert made.summary["layout"] == algorithm.flags.output == "dense"
    assert made.parts["train"].tolist() == [[1, 1, 0, 0], [2, 0, 0, 1], [5, 0, 1, 0], [5, 1, 0, 0]]


def neighbours(value: float, data: MatrixSummary) -> int:
    return max(1, round(value * data.rows))


def all_distances(_: dict[str, Any], data: MatrixSummary) -> float:
    return 8.0 * data.rows**2


TOY = Algorithm(
    id="toy",
    estimator="sklearn.neighbors.KNeighborsClassifier",
    hyperparameters=ConfigurationSpace(space=[Float("n_neighbors", (0.0, 1.0), default=0.1)]),
    transforms={"n_neighbors": neighbours},
    memory=all_distances,
)
X = np.random.default_rng(0).normal(size=(30, 2))
Y = np.array(["a", "b"] * 15)


def toy_recipe(share: float):
    choice = Choice("toy", (("n_neighbors", share),))
    return recipe(TOY, choice, MatrixSummary.of(X), balanced=False)


def test_its_effective_values_reach_estimator_and_keys() -> None:
    made, predictions = fit_model(toy_recipe(0.1), 0, FoldData(X, X, Y, np.unique(Y)))
    assert made.parts["estimator"].n_neighbors == 3
    assert len(predictions.label) == 30
    assert toy_recipe(0.1).to_json(0) == toy_recipe(0.101).to_json(0) != toy_recipe(0.2).to_json(0)


def test_its_memory_is_estimated_before_it_starts() -> None:
    data = FoldData(X, X, Y, np.unique(Y), memory_limit_bytes=7000)
    with pytest.raises(WillNotFit, match="30 rows"):
        fit_model(toy_recipe(0.1), 0, data)


def test_a_users_algorithm_has_the_estimate_of_the_catalogue_for_its_estimator() -> None:
    users = Algorithm(id="mine", estimator="sklearn.decomposition.KernelPCA")
    rule = recipe(users, Choice("mine"), MatrixSummary.of(X), balanced=False).memory
    assert rule is not None
    assert rule({}, MatrixSummary.of(X)) == 2 * 8 * 30**2


def test_a_rule_of_memory_that_does_not_exist_is_answered_with_the_nearest() -> None:
    wrong = Algorithm(id="mine", estimator="sklearn.decomposition.PCA", memory="kernel_matrx")
    with pytest.raises(UnknownName, match="'kernel_matrix'"):
        recipe(wrong, Choice("mine"), MatrixSummary.of(X), balanced=False)


def test_a_refit_forgets_how_the_fit_before_went() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    noise, signal = rng.normal(size=(60, 3)), rng.normal(size=(60, 3)) + 5 * y[:, None]
    select = select_by_p_value(alpha=1e-6, mode=0).fit(noise, y)
    assert select.get_support().sum() == 1
    assert select.fit(signal, y).get_support().all()
    assert np.array_equal(
        QuadraticDiscriminant().fit(noise[:6], y[:6]).fit(signal, y).predict_proba(signal),
        QuadraticDiscriminant().fit(signal, y).predict_proba(signal),
    )
