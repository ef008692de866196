"""Models outside of prefect-tune: as plain scikit-learn, pickled, in skops' format, as code."""

import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from finished.programs import built_from, parameters, run_without_prefect_tune
from inputs import table, write_meds
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import BaggingClassifier, HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC

from prefect_tune.optimizers.space.configuration import default_choice
from prefect_tune.optimizers.space.sampling import sample_choice
from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue import estimators
from prefect_tune.tasks.catalogue.boosting import cat_boost, light_gbm, xg_boost
from prefect_tune.tasks.catalogue.combinations import ArithmeticCombinations, CategoryInteractions
from prefect_tune.tasks.catalogue.construction import (
    BoundCategories,
    ClipNegatives,
    EventAggregation,
    ToDense,
)
from prefect_tune.tasks.catalogue.event_windows import EventWindows
from prefect_tune.tasks.catalogue.preparation import make_encoder, make_imputer
from prefect_tune.tasks.catalogue.spaces import SPACES
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.final.ensemble import ClassEnsemble, NumberEnsemble
from prefect_tune.tasks.final.export import (
    TrialPipeline,
    code_of,
    estimator_classes,
    is_ours,
    plain,
    portable,
    skops_file,
)
from prefect_tune.tasks.fitting.recipe import MatrixSummary, build, recipe
from prefect_tune.tasks.user_code import load_user_code

FRAME = canonical(table())
X, y = FRAME.drop(columns="target"), np.asarray(FRAME["target"].astype(str))
GUARDS = {
    "Polynomial": estimators.Polynomial(),
    "QuadraticDiscriminant": estimators.QuadraticDiscriminant(0.1),
    "SelectByModel": estimators.select_by_extra_trees(n_estimators=5, random_state=0),
    "SelectByPercentile": estimators.select_percentile(percentile=50),
    "SelectByScore": estimators.select_univariate(param=0.5, mode=0, score="f_classif"),
}
"""Estimators that differ from their parents only where these fail."""


def prepare() -> tuple[Any, Any]:
    return make_imputer(), make_encoder()


def prepared(*steps: object) -> Pipeline:
    return make_pipeline(*prepare(), *steps).fit(X, y)


def ours_in(model: object) -> list[str]:
    return [kind.__name__ for kind in estimator_classes(model) if is_ours(kind.__module__)]


def is_same(model: Pipeline, other: Pipeline, rows: pd.DataFrame = X) -> bool:
    return np.array_equal(model.predict_proba(rows), other.predict_proba(rows))


@pytest.mark.parametrize("name", GUARDS)
def test_guarded_estimators_are_exported_as_scikit_learn_classes(name) -> None:
    model = prepared(GUARDS[name], *([] if "Discriminant" in name else [LogisticRegression()]))
    assert ours_in(model) == [name]
    made = plain(model)
    assert ours_in(made) == []
    assert ours_in(model) == [name]
    assert is_same(model, made)
    assert is_same(clone(model).fit(X, y), clone(made).fit(X, y))


def test_dense_clipping_is_exported_as_numpy_and_other_classes_are_unchanged() -> None:
    dense = prepared(ClipNegatives(), MultinomialNB())
    assert ours_in(plain(dense)) == []
    assert is_same(dense, plain(dense))
    counts = sparse.csr_array(np.eye(len(X))[:, :4] - 0.5)
    clipped = make_pipeline(ClipNegatives(), MultinomialNB()).fit(counts, y)
    assert ours_in(plain(clipped)) == ["ClipNegatives"]
    nothing = estimators.SelectByModel(LogisticRegression(), threshold=1e9)  # would be left
    model = prepared(nothing, LogisticRegression())
    assert ours_in(plain(model)) == ["SelectByModel"]


MINE = """
import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin


def bent(X):
    return np.sign(X) * np.abs(X) ** 0.5


class Power(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return bent(X)
"""
READS = """
import pickle, sys
import numpy as np

with open(sys.argv[1], "rb") as file:
    models = pickle.load(file)
for name, (model, rows, expected) in models.items():
    predict = getattr(model, "predict_proba", model.predict)
    print(name, np.array_equal(predict(rows), expected))
"""


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    """Return models by name, fitted to the test table, that contain all of our classes."""
    none = estimators.SelectByModel(LogisticRegression(), threshold=1e9)
    trees = HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=5)
    mine = load_user_code(MINE, "mine.py").Power()
    made = {
        "combinations": make_pipeline(
            ArithmeticCombinations(4), CategoryInteractions(2), *prepare(), LogisticRegression()
        ),
        "fallback": make_pipeline(*prepare(), none, LogisticRegression()),
        "clipped": make_pipeline(*prepare(), ClipNegatives(), MultinomialNB()),
        "layers": make_pipeline(*prepare(), estimators.LayerwiseMLP((2,), (0.1, 0.1), max_iter=9)),
        "bounded": make_pipeline(make_pipeline(BoundCategories(), trees)),
        "mine": make_pipeline(*prepare(), mine, LogisticRegression()),
        "lightgbm": make_pipeline(light_gbm.classifier(n_estimators=4, random_state=0)),
        "xgboost": make_pipeline(xg_boost.classifier(n_estimators=4, random_state=0)),
        "catboost": make_pipeline(cat_boost.classifier(iterations=4, random_state=0)),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: model.fit(X, y) for name, model in made.items()}


@pytest.mark.slow
def test_models_predict_the_same_where_prefect_tune_cannot_be_imported(tmp_path, fitted) -> None:
    members = [fitted[name] for name in ("combinations", "bounded", "lightgbm")]
    ensemble = ClassEnsemble.of_fitted(members, [0.2, 0.3, 0.5])
    numbers = make_pipeline(*prepare(), Ridge()).fit(X, np.arange(len(X)))
    average = NumberEnsemble.of_fitted([numbers, numbers], [0.4, 0.6])
    events = read_source(Source(str(write_meds(tmp_path / "meds")), labels="labels/task"))
    of_events = make_pipeline(EventAggregation(), ToDense(), LogisticRegression())
    of_events.fit(events.X, events.labels)
    windows = make_pipeline(EventWindows(), LogisticRegression()).fit(events.X, events.labels)
    cases = {
        **{name: (model, X, model.predict_proba(X)) for name, model in fitted.items()},
        "ensemble": (ensemble, X, ensemble.predict_proba(X)),
        "average": (average, X, average.predict(X)),
        "events": (of_events, events.X, of_events.predict_proba(events.X)),
        "windows": (windows, events.X, windows.predict_proba(events.X)),
    }
    (tmp_path / "models.pkl").write_bytes(portable(cases).data)
    (tmp_path / "reads.py").write_text(READS)
    said = run_without_prefect_tune(tmp_path / "reads.py", tmp_path / "models.pkl")
    assert said.split() == [word for name in cases for word in (name, "True")]


@pytest.mark.parametrize("name", ["bounded", "combinations", "lightgbm", "xgboost", "catboost"])
def test_reordered_or_extra_columns_are_refused(fitted, name) -> None:
    model = fitted[name]
    assert list(model.feature_names_in_) == list(X)
    for other in (X[X.columns[::-1]], X.assign(more=1.0)):
        with pytest.raises(ValueError, match="feature names"):
            model.predict(other)


def test_pickle_lists_required_packages(fitted) -> None:
    model = prepared(LogisticRegression())
    pickled = portable(model)
    assert set(pickled.packages) <= {"numpy", "pandas", "scipy", "sklearn"}
    assert not pickled.carries_code
    assert np.array_equal(pickled.model.predict_proba(X), model.predict_proba(X))
    pickled = portable(fitted["lightgbm"])
    assert pickled.carries_code
    assert {"cloudpickle", "lightgbm", "pandas", "sklearn"} <= set(pickled.packages)
    assert "prefect_tune" not in pickled.packages


@pytest.mark.slow
def test_skops_file_lists_trusted_types_and_required_packages(fitted) -> None:
    model = prepared(LogisticRegression())
    found = skops_file(model)
    assert np.array_equal(found.model.predict_proba(X), model.predict_proba(X))
    assert "prefect_tune" not in found.packages
    assert not [name for name in found.trusted if is_ours(name)]
    ensemble = ClassEnsemble.of_fitted([fitted["lightgbm"], model], [0.4, 0.6])
    found = skops_file(ensemble)
    assert np.array_equal(found.model.predict_proba(X), ensemble.predict_proba(X))
    assert {"lightgbm", "prefect_tune", "skops"} <= set(found.packages)
    assert "prefect_tune.tasks.final.ensemble.ClassEnsemble" in found.trusted


def test_models_that_skops_cannot_store_are_refused(fitted, monkeypatch) -> None:
    with pytest.raises(BadInput, match="Power: its class"):
        skops_file(fitted["mine"])
    unnamed = FunctionTransformer(lambda matrix: matrix)
    with pytest.raises(BadInput, match="cannot store"):
        skops_file(prepared(unnamed, LogisticRegression()))
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(BadInput, check=lambda e: "install skops" in e.remedy):
        skops_file(prepared(LogisticRegression()))


def algorithms() -> list[Any]:
    """Return each algorithm of each space; the default tier has a few of different kinds."""
    usual = {"pca", "linear_svm", "lightgbm", "select_univariate", "target", "mlp"}
    return [
        pytest.param(a, id=f"{space.name}: {step.name}: {a.id}", marks=marks)
        for space in SPACES.values()
        for step in space.steps
        for a in step.algorithms
        for marks in (() if a.id in usual else pytest.mark.full,)
        if not a.is_passthrough
    ]


def code(estimator: Any) -> str:
    return code_of(TrialPipeline(Pipeline([("fit model", estimator)]), "", ()), ["One step."])


@pytest.mark.parametrize("algorithm", algorithms())
def test_code_of_every_algorithm_builds_the_same_estimator(algorithm) -> None:
    rng = np.random.default_rng(0)
    for layout in ("dense", "sparse", "frame"):
        summary = MatrixSummary(100, 8, layout, n_classes=3)
        for choice in (default_choice(algorithm), *(sample_choice(algorithm, rng) for _ in "abc")):
            estimator = build(recipe(algorithm, choice, summary, balanced=True), seed=3)
            text = code(estimator)
            assert parameters(built_from(text)[0]) == parameters(estimator), text


VALUES: list[BaseEstimator] = [
    SVC(C=np.float64(0.1), gamma=np.inf, class_weight={"no": 1.5, "yes": 2}),
    BaggingClassifier(Pipeline([("it's", FunctionTransformer(np.log1p)), ("svc", SVC())])),
    make_pipeline(SimpleImputer(missing_values=np.nan).set_output(transform="pandas"), SVC()),
    make_column_transformer(("drop", make_column_selector("a.*", dtype_include="number"))),
    GridSearchCV(SVC(), {"C": (1,)}, cv=KFold(3, shuffle=True, random_state=0)),
]


@pytest.mark.parametrize("estimator", VALUES)
def test_values_and_helpers_of_scikit_learn_are_written_as_code(estimator) -> None:
    text = code(estimator)
    found, expected = parameters(built_from(text)[0]), parameters(estimator)
    found.pop("cv", None), expected.pop("cv", None)
    assert found == expected, text


def test_error_names_a_value_that_cannot_be_written_as_code() -> None:
    with pytest.raises(BadInput, match="object object"):
        code(SVC(C=object()))
    with pytest.raises(BadInput, match="lambda"):
        code(FunctionTransformer(lambda X: X))
