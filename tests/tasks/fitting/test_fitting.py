"""How a step is fitted: effective values, seeds, versions, memory and threads."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from typing import Any

import numpy as np
import pytest
import scipy
import sklearn
from catboost import CatBoostClassifier
from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer
from scipy import sparse
from sklearn.ensemble import (
    BaggingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.ensemble._hist_gradient_boosting import binning
from sklearn.preprocessing import PolynomialFeatures
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.stats import _weighted_percentile

from prefect_tune.optimizers import Algorithm, Choice, Flags
from prefect_tune.tasks.catalogue import admm
from prefect_tune.tasks.catalogue.flash import PREPROCESS
from prefect_tune.tasks.fitting.fitting import (
    FoldData,
    check_fits,
    fit_transformer,
    quick_weighted_bins,
)
from prefect_tune.tasks.fitting.recipe import (
    MEMORY_RULES,
    MatrixSummary,
    Recipe,
    WillNotFit,
    build,
    check_memory,
    recipe,
)
from prefect_tune.tasks.threads import one_thread, with_one_thread
from prefect_tune.tasks.user_code import ProgramExit, digest_of_own, exits_as_errors, library_of

POLYNOMIAL = PREPROCESS.algorithm("polynomial")
SUMMARY = MatrixSummary(100, 20, "dense", "float64")


def recipe_of(
    algorithm: Algorithm, summary: MatrixSummary = SUMMARY, /, *, balanced: bool = False,
    **values: Any,
) -> Recipe:  # fmt: skip
    return recipe(algorithm, Choice.of(algorithm.id, values), summary, balanced=balanced)


@pytest.mark.parametrize(
    ("rule", "value", "effective"),
    [
        ("clip_n", 500, 100),
        ("clip_p", 500, 20),
        ("depth_factor", 0.5, 10),
        ("depth_factor", 0.0, 1),
        ("logp_max_features", 1.0, 3),  # ln 20 + 1 = 3.996
        ("logp_max_features", 5.0, 10),  # never more than half the columns
    ],
)
def test_values_are_adjusted_to_the_size_of_the_data(rule, value, effective) -> None:
    algorithm = Algorithm(
        id="a",
        estimator="sklearn.decomposition.PCA",
        hyperparameters=ConfigurationSpace(space=[Float("x", (0, 1000))]),
        transforms={"x": rule},
    )
    assert recipe_of(algorithm, x=value).arguments["x"] == effective


@pytest.mark.parametrize(
    ("rule", "rows", "effective"),
    [
        ("leaves_of_n", 9_000, 31),
        ("leaves_of_n", 160_000, 124),
        ("rounds_of_n", 160_000, 62),
    ],
)
def test_boosted_trees_grow_with_many_rows(rule, rows, effective) -> None:
    algorithm = Algorithm(
        id="trees",
        estimator="lightgbm.LGBMClassifier",
        hyperparameters=ConfigurationSpace(space=[Integer("size", (1, 1000))]),
        transforms={"size": rule},
        rounds="size",
    )
    made = recipe_of(algorithm, replace(SUMMARY, rows=rows), size=31)
    assert (made.arguments["size"], made.rounds) == (effective, "size" if rows > 10_000 else "")


def test_different_choices_have_different_keys_and_estimators_share_no_object() -> None:
    choices = [None, (3,), [3], DecisionTreeClassifier(), DecisionTreeClassifier(max_depth=2)]
    bagging = Algorithm(
        id="bagging",
        estimator="sklearn.ensemble.BaggingClassifier",
        hyperparameters=ConfigurationSpace(space=[Categorical("estimator", choices)]),
        flags=Flags(stochastic=True),
    )
    made = [recipe_of(bagging, estimator=choice) for choice in choices]
    assert len({json.dumps(how.to_json(0)["arguments"]) for how in made}) == len(choices)
    first, second = build(made[3], 1).estimator, build(made[3], 2).estimator
    assert first.random_state != second.random_state
    assert choices[3].random_state is None


def test_number_of_classes_decides_a_value_and_is_not_stored_with_a_matrix() -> None:
    boosting = admm.CLASSIFY.algorithm("gradient_boosting")
    two, three = (replace(SUMMARY, n_classes=n) for n in (2, 3))
    fitted = [recipe_of(boosting, summary, loss="exponential") for summary in (two, three)]
    assert [how.arguments["loss"] for how in fitted] == ["exponential", "log_loss"]
    assert MatrixSummary(**three.to_json()) == SUMMARY


def test_weighted_bins_are_found_in_one_pass_and_are_identical(monkeypatch) -> None:
    rng, passes = np.random.default_rng(0), []
    weights, y = rng.integers(0, 3, 2000).astype(float), rng.integers(0, 2, 2000)
    X = rng.normal(size=(2000, 2))
    X[rng.random(X.shape) < 0.1] = np.nan
    quick_weighted_bins.cache_clear()

    def probabilities():
        model = HistGradientBoostingClassifier(max_iter=5)
        return model.fit(X, y, sample_weight=weights).predict_proba(X)

    def noted(column, *arguments, **options):
        passes.append(column)
        return _weighted_percentile(column, *arguments, **options)

    monkeypatch.setattr(binning, "_weighted_percentile", noted)
    plain = probabilities()
    n_plain = len(passes)
    quick_weighted_bins()
    assert np.array_equal(probabilities(), plain)
    assert len(passes) - n_plain == X.shape[1] < n_plain


SELECTIONS = [
    (PREPROCESS.algorithm("select_univariate"), {"param": 0.01, "score": "f_classif", "mode": 2}),
    (PREPROCESS.algorithm("select_univariate"), {"param": 0.01, "score": "chi2", "mode": 1}),
    (PREPROCESS.algorithm("linear_svm"), {"C": 1e-6, "tol": 1e-4}),
    (admm.SELECT_LARGE.algorithm("select_fwe"), {"alpha": 0.01}),
]


@pytest.mark.parametrize(("algorithm", "values"), SELECTIONS)
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_selection_that_rejects_every_column_keeps_the_best_column(
    algorithm, values, layout
) -> None:
    y = np.array(list("ab") * 15)
    alike = np.repeat(np.arange(15), 2) / 15  # in both classes
    matrix = np.column_stack([alike, 1 - alike, alike + 0.1 * (y == "a"), np.ones(30)])
    data = FoldData(layout(matrix), layout(matrix), y, np.array(["a", "b"]))
    made = fit_transformer(recipe_of(algorithm, MatrixSummary.of(data.train), **values), 0, data)
    kept = made.parts["train"]
    dense = kept.toarray() if sparse.issparse(kept) else kept
    assert dense.tolist() == matrix[:, [2]].tolist()


SOLVERS = [f"numpy {np.__version__}", f"scipy {scipy.__version__}"]
SKLEARN = f"sklearn {sklearn.__version__}"
OWN = "prefect_tune.tasks.catalogue.preparation.make_imputer"
REPAIRS = "prefect_tune.tasks.catalogue.construction.REPAIRS"


@pytest.mark.parametrize(
    ("path", "versions"),
    [
        ("sklearn.linear_model.LogisticRegression", [SKLEARN, *SOLVERS]),
        (OWN, [f"prefect_tune {digest_of_own(OWN)}", *SOLVERS, SKLEARN]),
    ],
)
def test_versions_of_all_relevant_libraries_are_in_the_key(path, versions) -> None:
    assert library_of(path, lambda: None).split(", ") == versions


def test_digest_of_an_estimator_changes_only_with_the_code_of_the_module(monkeypatch) -> None:
    before, of_others = digest_of_own(REPAIRS), digest_of_own(OWN)
    text = SourceFileLoader.get_source

    def edited(loader: SourceFileLoader, module: str) -> str:
        is_changed = module == "prefect_tune.tasks.catalogue.construction"
        return text(loader, module) + ("\nedited = 1" if is_changed else "")

    digest_of_own.cache_clear()
    monkeypatch.setattr(SourceFileLoader, "get_source", edited)
    assert digest_of_own(REPAIRS) != before
    assert digest_of_own(OWN) == of_others


def test_step_that_produces_infinite_values_is_an_error() -> None:
    matrix, y = np.full((6, 2), np.inf), np.array(list("ababab"))
    algorithm = Algorithm(id="a", estimator="sklearn.preprocessing.FunctionTransformer")
    how = recipe_of(algorithm, MatrixSummary.of(matrix))
    with pytest.raises(ValueError, match="not finite"):
        fit_transformer(how, 0, FoldData(matrix, matrix, y, np.unique(y)))


@pytest.mark.parametrize("degree", [2, 3])
@pytest.mark.parametrize("interaction_only", [0, 1])
@pytest.mark.parametrize("p", [1, 2, 7])
def test_size_of_a_polynomial_is_estimated_exactly(degree, interaction_only, p) -> None:
    exact = PolynomialFeatures(degree, interaction_only=bool(interaction_only), include_bias=False)
    summary = MatrixSummary(5, p, "dense", "float64")
    how = recipe_of(POLYNOMIAL, summary, degree=degree, interaction_only=interaction_only)
    needed = how.memory(how.arguments, summary)
    assert needed == exact.fit_transform(np.ones((5, p))).nbytes


def test_step_that_would_exceed_memory_on_all_rows_is_refused_before_the_fit() -> None:
    X, y = np.ones((30, 40)), np.array(["a", "b"] * 15)
    data = FoldData(X, X, y, np.unique(y), memory_limit_bytes=1_000_000)
    of = MatrixSummary.of(X)
    two, three = (recipe_of(POLYNOMIAL, of, degree=n, interaction_only=0) for n in (2, 3))
    with pytest.raises(WillNotFit, match="30 rows"):
        fit_transformer(three, 0, data)
    fit_transformer(two, 0, data)
    with pytest.raises(WillNotFit, match="3,000 rows"):
        fit_transformer(two, 0, replace(data, n_rows_in_all=3_000))


def test_matrix_that_would_exceed_memory_is_refused_even_if_sparse_before() -> None:
    wide = MatrixSummary(10**6, 10**4, "dense", "float64")
    with pytest.raises(WillNotFit, match=r"80\.0 GB"):
        check_memory("Ridge", [], {}, wide, limit_bytes=10**9)
    for fits in (replace(wide, layout="sparse", density=1e-3), replace(wide, layout="frame")):
        check_memory("Ridge", [], {}, fits, limit_bytes=10**9)
    kernel = [MEMORY_RULES["kernel_matrix"]]
    with pytest.raises(WillNotFit, match=r"1,600,000\.0 GB"):  # than the machine's memory
        check_memory("KernelPCA", kernel, {}, MatrixSummary(10**7, 10, "dense"))
    matrix, y = sparse.csr_array((1_000_000, 1_000_000)), np.zeros(1_000_000)
    how = recipe_of(Algorithm(id="a", estimator="sklearn.svm.SVC"))
    data = FoldData(matrix, matrix, y, y[:1])
    check_fits(how, data)
    with pytest.raises(WillNotFit):
        check_fits(replace(how, repairs=("write_out",)), data)


def raised(error: BaseException) -> None:
    with exits_as_errors():
        raise error


@pytest.mark.parametrize(
    ("error", "in_main_thread"),
    [
        (SystemExit("I quit"), ProgramExit),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (ValueError("as it is"), ValueError),
    ],
)
def test_exits_become_errors_but_signals_in_the_main_thread_do_not(error, in_main_thread) -> None:
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(raised, error).exception()
    assert type(found) is (ValueError if isinstance(error, ValueError) else ProgramExit)
    with pytest.raises(in_main_thread):
        raised(error)


def test_unset_number_of_threads_becomes_one_and_set_numbers_stay() -> None:
    inner = RandomForestClassifier()
    outer = with_one_thread(BaggingClassifier(inner, n_jobs=2))
    assert (outer.n_jobs, inner.n_jobs) == (2, 1)
    assert with_one_thread(CatBoostClassifier()).get_params() == {"thread_count": 1}
    given = CatBoostClassifier(thread_count=3)
    assert with_one_thread(given).get_params()["thread_count"] == 3
    assert with_one_thread("no estimator") == "no estimator"


def test_environment_variables_are_restored_when_the_last_thread_leaves(monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    first, second = one_thread(), one_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert os.environ["OMP_NUM_THREADS"] == "1"
    second.__exit__(None, None, None)
    assert os.environ["OMP_NUM_THREADS"] == "7"
