"""Every algorithm of every space can be built, runs reproducibly, and has correct flags."""

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
from sklearn.utils.class_weight import compute_class_weight

from prefect_tune.optimizers import Algorithm, Choice
from prefect_tune.optimizers.space.configuration import active_hyperparameters, default_choice
from prefect_tune.optimizers.space.sampling import sample_choice
from prefect_tune.optimizers.space.vectors import from_unit
from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.catalogue import admm
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
USUAL = {
    *("flash: preprocess: trees_embedding", "flash: preprocess: select_univariate"),
    *("flash: preprocess: linear_svm", "flash: preprocess: nystroem"),
    *("flash: fit model: multinomial_nb", "flash: fit model: gradient_boosting"),
    *("flash: fit model: sgd", "regression: fit model: ridge", "modern: fit model: lightgbm"),
}
"""One algorithm of each kind."""


def cases() -> list[Any]:
    """Return each algorithm once, even if several spaces use it, with few trees and passes."""
    found: dict[int, Any] = {}
    fewer = {"n_estimators": 6, "max_iter": 50}
    for space in SPACES.values():
        for step in space.steps:
            for algorithm in step.algorithms:
                if algorithm.is_passthrough or step.name in TAKES_TABLES:
                    continue
                is_model = step is space.steps[-1]
                kind = space.target if is_model else f"transform for {space.target}"
                fixed = {k: min(v, fewer[k]) if k in fewer else v
                         for k, v in algorithm.fixed.items()}  # fmt: skip
                name = f"{space.name}: {step.name}: {algorithm.id}"
                marks = () if name in USUAL else pytest.mark.full
                case = pytest.param(kind, replace(algorithm, fixed=fixed), id=name, marks=marks)
                found.setdefault(id(algorithm), case)
    return list(found.values())


def fold(kind: str, *, as_sparse: bool = False) -> FoldData:
    matrices = [SIGNED, NEW]
    if as_sparse:
        matrices = [sparse.csr_array(np.where(np.abs(m) > 1, m, 0)) for m in matrices]
    train, held_out = map(canonical, matrices)
    if kind.endswith("regression"):
        return FoldData(train, held_out, NUMBERS, np.array([]))
    return FoldData(train, held_out, CLASSES[POSITION], CLASSES)


def run(
    kind: str, algorithm: Algorithm, choice: Choice, data: FoldData, *, balanced: bool = False
) -> Any:
    summary = replace(MatrixSummary.of(data.train), n_classes=len(data.classes))
    how = recipe(algorithm, choice, summary, balanced=balanced)
    fit = fit_model if kind in ("classification", "regression") else fit_transformer
    return fit(how, 7, data)


def bytes_of(came: Any) -> bytes:
    """Return the bytes of predictions or of transformed held-out rows."""
    if isinstance(came, tuple):
        predictions = came[1]
        score = b"" if predictions.score is None else predictions.score.tobytes()
        return predictions.label.tobytes() + score
    made = came.parts["held_out"]
    return (made.toarray() if sparse.issparse(made) else made).tobytes()


def quick(choice: Choice) -> Choice:
    """Return the same algorithm with fewer trees and passes."""
    most = {"n_estimators": 6, "max_iter": 50, "max_iter_predict": 25}
    values = tuple((k, min(v, most[k]) if k in most else v) for k, v in choice.values)  # noqa: PD011
    return Choice(choice.algorithm, values)


def extreme(algorithm: Algorithm, u: float) -> Choice:
    values: dict[str, Any] = {}
    for hyperparameter in active_hyperparameters(algorithm.hyperparameters, values):
        values[hyperparameter.name] = from_unit(hyperparameter, u)
    return quick(Choice(algorithm.id, tuple(sorted(values.items()))))


def default(algorithm: Algorithm) -> Choice:
    return quick(default_choice(algorithm))


def draws(algorithm: Algorithm, n: int) -> list[Choice]:
    rng = np.random.default_rng(1)
    return [quick(sample_choice(algorithm, rng)) for _ in range(n)]


def check_runs(kind: str, algorithm: Algorithm, choices: Iterable[Choice], data: FoldData) -> None:
    """Check that every choice runs, or fails because of its values with a good reason."""
    for choice in dict.fromkeys(choices):
        try:
            came = run(kind, algorithm, choice, data)
        except (ValueError, np.linalg.LinAlgError) as error:
            if re.search(FAILURES.get(algorithm.id, "(?!)"), str(error)):
                continue
            raise
        if kind == "classification" and came[1].score is not None:
            assert came[1].score.shape == (12, 3)


def check_flags(kind: str, algorithm: Algorithm) -> None:
    """Check that an algorithm takes a seed and weights exactly as its flags say."""
    how = recipe(algorithm, default(algorithm), MatrixSummary.of(SIGNED), balanced=False)
    estimator = build(how, 3)
    assert (how.to_json(3) != how.to_json(4)) == algorithm.flags.stochastic
    seeds = {v for k, v in estimator.get_params().items() if k.endswith("random_state")}
    assert (3 in seeds) == algorithm.flags.stochastic
    weights = algorithm.flags.weights
    if kind != "classification":
        assert kind != "regression" or weights == "none"
        return
    can = {
        "class_weight": any(k.endswith("class_weight") for k in estimator.get_params()),
        "sample_weight": "sample_weight" in signature(how.model_in(estimator).fit).parameters,
    }
    if weights == "none":
        assert algorithm.id == "mlp" or not any(can.values())  # mlp: not before scikit-learn 1.7
    else:
        assert can[weights]


def check_sparse(kind: str, algorithm: Algorithm) -> None:
    """Check that an algorithm takes sparse data exactly if its flag says so."""
    choice, data = default(algorithm), fold(kind, as_sparse=True)
    if not algorithm.flags.accepts_sparse:
        if not algorithm.requires:  # these could, and their tables are never sparse
            with pytest.raises((TypeError, ValueError)):
                run(kind, algorithm, choice, data)
        return
    came = run(kind, algorithm, choice, data)
    if kind.startswith("transform"):
        layout = {"same": "sparse"}.get(algorithm.flags.output, algorithm.flags.output)
        assert came.summary["layout"] == layout
    check_runs(kind, algorithm, draws(algorithm, 2), data)


def check_balanced_model(algorithm: Algorithm) -> None:
    """Compare with a fit by scikit-learn alone that weights each training row by its class."""
    rare = np.r_[0:45:3, 1:45:9]  # 15 rows of class a and 5 of class b
    y = CLASSES[POSITION[rare]]
    data = FoldData(SIGNED[rare], NEW, y, CLASSES)
    of_classes = compute_class_weight("balanced", classes=np.array(["a", "b"]), y=y)
    weights = dict(zip("ab", of_classes, strict=True))
    choice = default(algorithm)
    came = run("classification", algorithm, choice, data, balanced=True)
    if algorithm.flags.weights == "none":
        assert bytes_of(run("classification", algorithm, choice, data)) == bytes_of(came)
        return
    how = recipe(algorithm, choice, MatrixSummary.of(data.train), balanced=False)
    by_hand, prefix = build(how, 7), "estimator__" if how.repairs else ""
    of_rows = {}
    if algorithm.flags.weights == "class_weight":
        by_hand.set_params(**{f"{prefix}class_weight": weights})
    else:
        of_rows = {f"{prefix}sample_weight": [weights[label] for label in data.y]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        by_hand.fit(data.train, data.y, **of_rows)
        expected = np.searchsorted(CLASSES, by_hand.predict(data.held_out))
    assert came[1].label.tolist() == expected.tolist()
    if hasattr(by_hand, "predict_proba"):
        np.testing.assert_allclose(came[1].score[:, :2], by_hand.predict_proba(data.held_out))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "algorithm"), cases())
def test_algorithm_runs_reproducibly_and_has_correct_flags(kind, algorithm) -> None:
    data, ends = fold(kind), [extreme(algorithm, u) for u in (0.0, 1.0)]
    check_runs(kind, algorithm, [*ends, *draws(algorithm, 6)], data)
    first, again = (run(kind, algorithm, default(algorithm), data) for _ in range(2))
    assert bytes_of(first) == bytes_of(again)
    check_flags(kind, algorithm)
    check_sparse(kind, algorithm)
    if kind == "classification":
        check_balanced_model(algorithm)
    elif kind.startswith("transform"):
        is_sparse = algorithm.flags.output == "sparse"
        assert first.summary["layout"] == ("sparse" if is_sparse else "dense")


GAPS = pd.DataFrame({"a": [1.0, np.nan, 5.0, 5.0], "b": ["x", None, "y", "x"], "c": [np.nan] * 4})
WHOLE = pd.DataFrame({"a": [1.0, 2.0, 5.0, 5.0], "b": ["x", "z", "y", "x"]})
ENCODED = [[1, 1, 0, 0], [2, 0, 0, 1], [5, 0, 1, 0], [5, 1, 0, 0]]
FILLED = [[0.0] * 4, ["x", "(missing)", "y", "x"]]


@pytest.mark.parametrize(
    ("step", "values", "X", "expected"),
    [
        (IMPUTE, {}, GAPS, [[1.0, 5.0, 5.0, 5.0], *FILLED]),
        (admm.IMPUTE, {"strategy": "mean"}, GAPS, [[1.0, 11 / 3, 5.0, 5.0], *FILLED]),
        (ENCODE, {}, WHOLE, np.transpose(ENCODED).tolist()),
    ],
)
def test_missing_values_are_filled_and_categories_become_columns(step, values, X, expected) -> None:
    algorithm, classes = step.algorithms[0], np.array(["n", "y"])
    choice = Choice(algorithm.id, tuple(values.items())) if values else default_choice(algorithm)
    how = recipe(algorithm, choice, MatrixSummary(4, 2, "frame"), balanced=False)
    made = fit_transformer(how, 0, FoldData(X, X, np.resize(classes, 4), classes)).parts["train"]
    columns = np.asarray(made, dtype=object).T.tolist()
    assert columns[0] == pytest.approx(expected[0])
    assert columns[1:] == expected[1:]


TOY = Algorithm(
    id="toy",
    estimator="sklearn.neighbors.KNeighborsClassifier",
    hyperparameters=ConfigurationSpace(space=[Float("n_neighbors", (0.0, 1.0), default=0.1)]),
    transforms={"n_neighbors": lambda value, data: max(1, round(value * data.rows))},
    memory=lambda _, data: 8.0 * data.rows**2,
)


def test_rules_of_a_user_algorithm_decide_its_arguments_and_keys_and_memory() -> None:
    X, y = SIGNED[:30], np.array(["a", "b"] * 15)
    how, near, far = (
        recipe(TOY, Choice("toy", (("n_neighbors", u),)), MatrixSummary.of(X), balanced=False)
        for u in (0.1, 0.101, 0.2)
    )
    data = FoldData(X, X, y, np.unique(y))
    assert fit_model(how, 0, data)[0].parts["estimator"].n_neighbors == 3
    assert how.to_json(0) == near.to_json(0) != far.to_json(0)
    with pytest.raises(WillNotFit):
        fit_model(how, 0, replace(data, memory_limit_bytes=7000))


def test_refit_forgets_the_previous_fit() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    noise, signal = rng.normal(size=(60, 3)), rng.normal(size=(60, 3)) + 5 * y[:, None]
    select = select_by_p_value(alpha=1e-6, mode=0).fit(noise, y)
    assert select.get_support().sum() == 1
    assert select.fit(signal, y).get_support().all()
    refitted = QuadraticDiscriminant().fit(noise[:6], y[:6]).fit(signal, y)
    fresh = QuadraticDiscriminant().fit(signal, y)
    assert np.array_equal(refitted.predict_proba(signal), fresh.predict_proba(signal))
