from dataclasses import replace

import numpy as np
import pytest
from ConfigSpace import ConfigurationSpace, Float, Integer
from scipy import sparse

from prefect_tune.optimizers import Algorithm, Choice
from prefect_tune.optimizers.space.configuration import default_choice
from prefect_tune.tasks.catalogue import admm, classification, preprocessing
from prefect_tune.tasks.fitting.fitting import FoldData, fit_model, fit_transformer
from prefect_tune.tasks.fitting.memory_estimate import MatrixSummary
from prefect_tune.tasks.fitting.recipe import effective_value, recipe, step_seed

SUMMARY = MatrixSummary(100, 20, "dense", "float64")


def with_rule(rule: str, value: float, summary: MatrixSummary = SUMMARY) -> object:
    algorithm = Algorithm(
        id="a",
        estimator="sklearn.decomposition.PCA",
        hyperparameters=ConfigurationSpace(space=[Float("x", (0, 1000))]),
        transforms={"x": rule},
    )
    return recipe(algorithm, Choice("a", (("x", value),)), summary, balanced=False).arguments["x"]


@pytest.mark.parametrize(
    ("rule", "value", "effective"),
    [
        ("clip_n", 500, 100),
        ("clip_n", 50, 50),
        ("clip_p", 500, 20),
        ("depth_factor", 0.5, 10),
        ("depth_factor", 0.0, 1),
        ("logp_max_features", 1.0, 3),  # ln 20 + 1 = 3.996
        ("logp_max_features", 5.0, 10),  # never more than half the columns
    ],
)
def test_values_are_fitted_to_the_size_of_the_data(rule, value, effective) -> None:
    assert with_rule(rule, value) == effective


def test_values_that_are_fitted_to_the_same_are_the_same_recipe() -> None:
    algorithm = Algorithm(
        id="knn",
        estimator="sklearn.neighbors.KNeighborsClassifier",
        hyperparameters=ConfigurationSpace(space=[Integer("n_neighbors", (1, 1000))]),
        transforms={"n_neighbors": "clip_n"},
    )
    first, second = (
        recipe(algorithm, Choice("knn", (("n_neighbors", k),)), SUMMARY, balanced=False).to_json(1)
        for k in (200, 300)
    )
    assert first == second


def test_only_what_can_change_a_result_is_in_a_recipe() -> None:
    algorithm = Algorithm(id="pca", estimator="sklearn.decomposition.PCA")
    plain = recipe(algorithm, Choice("pca"), SUMMARY, balanced=False)
    assert plain.to_json(1) == plain.to_json(2)  # it takes no seed
    assert plain == recipe(algorithm, Choice("pca"), SUMMARY, balanced=True)  # nor weights


def test_the_seed_of_a_step_depends_on_study_step_and_fold() -> None:
    seeds = {step_seed(s, step, fold) for s in (0, 1) for step in ("a", "b") for fold in (0, 1)}
    assert len(seeds) == 8
    assert step_seed(0, "fit model", 2) == step_seed(0, "fit model", 2)


@pytest.mark.parametrize(
    ("estimator", "arguments", "X", "message"),
    [
        ("sklearn.feature_selection.VarianceThreshold", {"threshold": 9.0}, None, "variance"),
        (
            "sklearn.preprocessing.PowerTransformer",
            {"method": "box-cox"},
            np.full((9, 2), -1.0),
            "strictly positive",
        ),
        (
            "sklearn.preprocessing.FunctionTransformer",
            {},
            np.array([[1.0, np.inf]] * 9),
            "a makes values that are not finite",
        ),
    ],
)
def test_a_step_that_cannot_work_says_why(estimator, arguments, X, message) -> None:
    algorithm = Algorithm(id="a", estimator=estimator, fixed=arguments)
    matrix = np.random.default_rng(0).random((9, 2)) if X is None else X
    how = recipe(algorithm, Choice("a"), MatrixSummary.of(matrix), balanced=False)
    y = np.array(list("abcabcabc"))
    with pytest.raises(ValueError, match=message):
        fit_transformer(how, 0, FoldData(matrix, matrix, y, np.array(list("abc"))))


def test_the_number_of_classes_fits_a_value_and_is_not_kept_with_a_matrix() -> None:
    two, three = (replace(SUMMARY, n_classes=n) for n in (2, 3))
    assert effective_value("two_class_loss", "exponential", two) == "exponential"
    assert effective_value("two_class_loss", "exponential", three) == "log_loss"
    assert MatrixSummary(**three.to_json()) == SUMMARY


@pytest.mark.parametrize("algorithm", [classification.SGD, classification.PASSIVE_AGGRESSIVE])
def test_training_with_balanced_classes_can_go_on(algorithm) -> None:
    matrix = np.random.default_rng(0).random((30, 2))
    y = np.array(list("aaabaaaaac") * 3)
    choice, summary = default_choice(algorithm), MatrixSummary.of(matrix)
    data = FoldData(matrix, matrix, y, np.array(list("abc")))
    made, _ = fit_model(recipe(algorithm, choice, summary, balanced=True), 0, data)
    estimator = made.parts["estimator"]
    before = estimator.coef_.copy()
    assert not np.array_equal(estimator.partial_fit(matrix, y).coef_, before)


SELECTIONS = [
    (preprocessing.SELECT_UNIVARIATE, {"param": 0.01, "score": "f_classif", "mode": 2}),
    (preprocessing.SELECT_UNIVARIATE, {"param": 0.01, "score": "chi2", "mode": 1}),
    (preprocessing.LINEAR_SVM, {"C": 1e-6, "tol": 1e-4}),
    (admm.SELECT_LARGE.algorithm("select_fwe"), {"alpha": 0.01}),
]


@pytest.mark.parametrize(("algorithm", "values"), SELECTIONS)
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_a_selection_that_no_column_passes_keeps_the_best_one(algorithm, values, layout) -> None:
    y = np.array(list("ab") * 15)
    alike = np.repeat(np.arange(15), 2) / 15  # in both classes
    matrix = np.column_stack([alike, 1 - alike, alike + 0.1 * (y == "a"), np.ones(30)])
    data = FoldData(layout(matrix), layout(matrix), y, np.array(["a", "b"]))
    choice = Choice(algorithm.id, tuple(sorted(values.items())))
    made = fit_transformer(
        recipe(algorithm, choice, MatrixSummary.of(data.train), balanced=False), 0, data
    )
    kept = made.parts["train"]
    dense = kept.toarray() if sparse.issparse(kept) else kept
    assert dense.tolist() == matrix[:, [2]].tolist()
