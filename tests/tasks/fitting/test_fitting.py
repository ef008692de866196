"""How a step is fitted: effective values, seeds, versions, memory and threads."""

import asyncio
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.machinery import SourceFileLoader

import numpy as np
import pytest
import scipy
import sklearn
from ConfigSpace import Categorical, ConfigurationSpace, Float
from lightgbm import LGBMClassifier
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
from prefect_tune.tasks import threads
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
    WillNotFit,
    build,
    check_memory,
    recipe,
)
from prefect_tune.tasks.threads import one_thread, with_one_thread
from prefect_tune.tasks.user_code import ProgramExit, digest_of_own, exits_as_errors, library_of

POLYNOMIAL = PREPROCESS.algorithm("polynomial")
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


def test_only_what_can_change_a_result_is_in_a_recipe() -> None:
    algorithm = Algorithm(id="pca", estimator="sklearn.decomposition.PCA")
    plain = recipe(algorithm, Choice("pca"), SUMMARY, balanced=False)
    assert plain.to_json(1) == plain.to_json(2)  # it takes no seed
    assert plain == recipe(algorithm, Choice("pca"), SUMMARY, balanced=True)  # nor weights


def test_different_choices_have_different_keys_and_estimators_share_no_object() -> None:
    choices = [None, (3,), [3], DecisionTreeClassifier(), DecisionTreeClassifier(max_depth=2)]
    space = ConfigurationSpace(space=[Categorical("estimator", choices)])
    bagging = Algorithm(
        id="bagging",
        estimator="sklearn.ensemble.BaggingClassifier",
        hyperparameters=space,
        flags=Flags(stochastic=True),
    )
    made = [recipe(bagging, Choice.of("bagging", {"estimator": c}), SUMMARY, balanced=False)
            for c in choices]  # fmt: skip
    assert len({json.dumps(how.to_json(0)["arguments"]) for how in made}) == len(choices)
    first, second = build(made[3], 1).estimator, build(made[3], 2).estimator
    assert first.random_state != second.random_state
    assert choices[3].random_state is None


def test_packages_of_an_object_are_part_of_a_key() -> None:
    fixed = {"estimator": LGBMClassifier()}
    algorithm = Algorithm(id="a", estimator="sklearn.ensemble.BaggingClassifier", fixed=fixed)
    assert "lightgbm" in recipe(algorithm, Choice("a"), SUMMARY, balanced=False).library


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
            "not finite",
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
    loss = admm.CLASSIFY.algorithm("gradient_boosting")
    choice = Choice(loss.id, (("loss", "exponential"),))
    two, three = (replace(SUMMARY, n_classes=n) for n in (2, 3))
    fitted = [recipe(loss, choice, summary, balanced=False) for summary in (two, three)]
    assert [how.arguments["loss"] for how in fitted] == ["exponential", "log_loss"]
    assert MatrixSummary(**three.to_json()) == SUMMARY


SELECTIONS = [
    (PREPROCESS.algorithm("select_univariate"), {"param": 0.01, "score": "f_classif", "mode": 2}),
    (PREPROCESS.algorithm("select_univariate"), {"param": 0.01, "score": "chi2", "mode": 1}),
    (PREPROCESS.algorithm("linear_svm"), {"C": 1e-6, "tol": 1e-4}),
    (admm.SELECT_LARGE.algorithm("select_fwe"), {"alpha": 0.01}),
]


def test_weighted_bins_are_found_in_one_pass_and_stay_the_same(monkeypatch) -> None:
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


SOLVERS = [f"numpy {np.__version__}", f"scipy {scipy.__version__}"]
OWN = "prefect_tune.tasks.catalogue.preparation.make_imputer"
REPAIRS = "prefect_tune.tasks.catalogue.construction.REPAIRS"


def test_versions_of_numpy_and_scipy_are_in_keys_of_scikit_learns_steps() -> None:
    library = library_of("sklearn.linear_model.LogisticRegression", lambda: None)
    assert library.split(", ") == [f"sklearn {sklearn.__version__}", *SOLVERS]


def test_a_step_of_ours_enters_by_its_text_and_the_versions_below_it() -> None:
    library = library_of(OWN, lambda: None).split(", ")
    assert library == [
        f"prefect_tune {digest_of_own(OWN)}", *SOLVERS, f"sklearn {sklearn.__version__}"
    ]  # fmt: skip


@pytest.mark.parametrize("changed", ["prefect_tune.tasks.catalogue.construction"])
def test_the_digest_changes_with_the_code_of_the_module_and_of_what_it_imports(
    monkeypatch, changed
) -> None:
    before, of_others = digest_of_own(REPAIRS), digest_of_own(OWN)
    text = SourceFileLoader.get_source

    def edited(loader: SourceFileLoader, module: str) -> str:
        return text(loader, module) + ("\nedited = 1" if module == changed else "")

    digest_of_own.cache_clear()
    monkeypatch.setattr(SourceFileLoader, "get_source", edited)
    assert digest_of_own(REPAIRS) != before
    assert digest_of_own(OWN) == of_others


def estimated(algorithm, summary: MatrixSummary, **values: object) -> float:
    how = recipe(algorithm, Choice(algorithm.id, tuple(values.items())), summary, balanced=False)
    return how.memory(how.arguments, summary) if how.memory else 0.0


@pytest.mark.parametrize("degree", [2, 3])
@pytest.mark.parametrize("interaction_only", [0, 1])
@pytest.mark.parametrize("p", [1, 2, 7])
def test_a_polynomial_is_estimated_to_the_column(degree, interaction_only, p) -> None:
    made = PolynomialFeatures(
        degree, interaction_only=bool(interaction_only), include_bias=False
    ).fit_transform(np.ones((5, p)))
    summary = MatrixSummary(5, p, "dense", "float64")
    needed = estimated(POLYNOMIAL, summary, degree=degree, interaction_only=interaction_only)
    assert needed == made.nbytes


def test_a_sparse_polynomial_is_estimated_by_what_is_stored() -> None:
    X = sparse.random_array((200, 50), density=0.1, rng=np.random.default_rng(0), format="csr")
    made = PolynomialFeatures(2, include_bias=False).fit_transform(X)
    needed = estimated(POLYNOMIAL, MatrixSummary.of(X), degree=2, interaction_only=0)
    assert 0.5 * made.nnz * 12 < needed <= made.nnz * 12


def test_what_will_not_fit_is_refused_with_the_figures_before_it_starts() -> None:
    X = np.ones((30, 40))
    summary = MatrixSummary.of(X)
    choice = Choice("polynomial", (("degree", 3), ("interaction_only", 0)))
    how = recipe(POLYNOMIAL, choice, summary, balanced=False)
    y = np.array(["a", "b"] * 15)
    data = FoldData(X, X, y, np.unique(y), memory_limit_bytes=1_000_000)
    with pytest.raises(WillNotFit, match="30 rows"):
        fit_transformer(how, 0, data)


def test_what_would_not_fit_on_all_rows_is_refused_on_a_part_of_them() -> None:
    X, y = np.ones((30, 40)), np.array(["a", "b"] * 15)
    choice = Choice("polynomial", (("degree", 2), ("interaction_only", 0)))
    how = recipe(POLYNOMIAL, choice, MatrixSummary.of(X), balanced=False)
    part = FoldData(X, X, y, np.unique(y), memory_limit_bytes=1_000_000)
    fit_transformer(how, 0, part)
    with pytest.raises(WillNotFit, match="3,000 rows"):
        fit_transformer(how, 0, replace(part, n_rows_in_all=3_000))


def test_a_matrix_that_is_larger_than_the_memory_is_refused() -> None:
    wide = MatrixSummary(10**6, 10**4, "dense", "float64")
    with pytest.raises(WillNotFit, match=r"80\.0 GB"):
        check_memory("Ridge", [], {}, wide, limit_bytes=10**9)
    for fits in (replace(wide, layout="sparse", density=1e-3), replace(wide, layout="frame")):
        check_memory("Ridge", [], {}, fits, limit_bytes=10**9)


def test_the_limit_is_the_machines_memory_when_none_is_given() -> None:
    summary = MatrixSummary(10**7, 10, "dense")
    with pytest.raises(WillNotFit, match=r"1,600,000\.0 GB"):
        check_memory("KernelPCA", [MEMORY_RULES["kernel_matrix"]], {}, summary)


def test_writing_out_a_sparse_matrix_counts() -> None:
    matrix = sparse.csr_array((1_000_000, 1_000_000))
    y = np.zeros(1_000_000)
    how = recipe(
        Algorithm(id="a", estimator="sklearn.svm.SVC"), Choice("a"), SUMMARY, balanced=False
    )
    check_fits(how, FoldData(matrix, matrix, y, y[:1]))
    with pytest.raises(WillNotFit, match="1,000,000 columns"):
        check_fits(replace(how, repairs=("write_out",)), FoldData(matrix, matrix, y, y[:1]))


ENDS = [SystemExit("I quit"), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()]


def raised(error: BaseException) -> None:
    with exits_as_errors():
        raise error


@pytest.mark.parametrize("error", ENDS)
def test_what_ends_programs_is_an_error_in_a_thread(error) -> None:
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(raised, error).exception()
    assert isinstance(found, ProgramExit)
    assert f"raised {type(error).__name__}" in str(found)


def test_in_the_main_thread_signals_stay_what_they_are() -> None:
    with pytest.raises(KeyboardInterrupt):
        raised(KeyboardInterrupt())
    with pytest.raises(ProgramExit, match="SystemExit: I quit"):
        raised(SystemExit("I quit"))
    with pytest.raises(ValueError, match="as it is"):
        raised(ValueError("as it is"))


LATE = """
from threadpoolctl import threadpool_info
from prefect_tune.tasks.threads import one_thread

with one_thread():
    assert threadpool_info() == []
import numpy

def counts():
    return {library["num_threads"] for library in threadpool_info()}

before = counts()
assert before
with one_thread():
    assert counts() == {1}
assert counts() == before
"""

LIGHTGBM = """
import os, sys
import numpy as np
from sklearn.base import BaseEstimator
from prefect_tune.tasks.threads import one_thread, with_one_thread

X = np.random.default_rng(0).normal(size=(20_000, 20))
y = X[:, 0] > 0

class Own:
    def fit(self, X, y):
        import lightgbm
        lightgbm.train({"verbose": -1}, lightgbm.Dataset(X, y), 20)

def threads():
    return len(os.listdir("/proc/self/task"))

with one_thread():
    if sys.argv[1] == "native":
        estimator = Own()
    else:
        from lightgbm import LGBMClassifier
        estimator = LGBMClassifier(n_estimators=20, verbose=-1)
    before = threads()
    with_one_thread(estimator).fit(X, y)
    assert threads() == before, (before, threads())
assert "OMP_NUM_THREADS" not in os.environ
"""


def run_fresh(script: str, *arguments: str, **variables: str) -> None:
    """Run a script in a process whose environment says nothing of threads."""
    environment = {k: v for k, v in os.environ.items() if k not in threads.THREAD_VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_library_that_was_imported_since_has_one_thread_too() -> None:
    run_fresh(LATE, OPENBLAS_NUM_THREADS="2")


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
@pytest.mark.slow
@pytest.mark.parametrize("way", ["native", pytest.param("estimator", marks=pytest.mark.full)])
def test_lightgbm_works_with_one_thread_where_it_is_loaded_late(way) -> None:
    run_fresh(LIGHTGBM, way)


class TellsWhatWasSet:
    """An estimator as CatBoost's are."""

    def __init__(self, depth=None, thread_count=None) -> None:
        self.set = {"depth": depth} | ({"thread_count": thread_count} if thread_count else {})

    def get_params(self, deep):  # noqa: ARG002
        return self.set

    def set_params(self, **parameters):
        self.set |= parameters
        return self


def test_a_number_of_threads_that_was_left_open_is_one_and_others_stay() -> None:
    inner = RandomForestClassifier()
    outer = with_one_thread(BaggingClassifier(inner, n_jobs=2))
    assert (outer.n_jobs, inner.n_jobs) == (2, 1)
    assert with_one_thread(TellsWhatWasSet()).set == {"depth": None, "thread_count": 1}
    assert with_one_thread(TellsWhatWasSet(thread_count=3)).set["thread_count"] == 3
    assert with_one_thread("no estimator") == "no estimator"


def test_variables_come_back_when_the_last_thread_leaves(monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    first, second = one_thread(), one_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert os.environ["OMP_NUM_THREADS"] == "1"
    second.__exit__(None, None, None)
    assert os.environ["OMP_NUM_THREADS"] == "7"
