"""A pickled model is read, and predicts the same, where prefect-tune is not installed."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finished.programs import run_without_prefect_tune
from inputs import table, write_meds
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import Pipeline, make_pipeline

from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.catalogue import estimators
from prefect_tune.tasks.catalogue.boosting import cat_boost, light_gbm, xg_boost
from prefect_tune.tasks.catalogue.combinations import ArithmeticCombinations, CategoryInteractions
from prefect_tune.tasks.catalogue.construction import EventAggregation, ToDense
from prefect_tune.tasks.catalogue.preparation import make_encoder, make_imputer
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.ensembling.model import ClassEnsemble, NumberEnsemble
from prefect_tune.tasks.exporting.portable import portable
from prefect_tune.tasks.repairs import BoundCategories, ClipNegatives
from prefect_tune.tasks.user_code import load_user_code

FRAME = canonical(table())
X, y = FRAME.drop(columns="target"), np.asarray(FRAME["target"].astype(str))
MINE = """
import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin


def bent(X, exponent):
    return np.sign(X) * np.abs(X) ** exponent


class Power(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return bent(X, 0.5)
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


def prepare() -> tuple[Any, Any]:
    return make_imputer(), make_encoder()


def models() -> dict[str, Any]:
    """By name, models that hold all of our classes, fitted to the test table."""
    none = estimators.SelectByModel(LogisticRegression(), threshold=1e9)
    trees = HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=5)
    bound = Pipeline([("bound_categories", BoundCategories()), ("estimator", trees)])
    mine = load_user_code(MINE, "mine.py").Power()
    made = {
        "combinations": make_pipeline(
            ArithmeticCombinations(4), CategoryInteractions(2), *prepare(), LogisticRegression()
        ),
        "fallback": make_pipeline(*prepare(), none, LogisticRegression()),
        "clipped": make_pipeline(*prepare(), ClipNegatives(), MultinomialNB()),
        "layers": make_pipeline(*prepare(), estimators.LayerwiseMLP((2,), (0.1, 0.1), max_iter=9)),
        "bounded": make_pipeline(bound),
        "mine": make_pipeline(*prepare(), mine, LogisticRegression()),
        "lightgbm": make_pipeline(light_gbm.classifier(n_estimators=4, random_state=0)),
        "xgboost": make_pipeline(xg_boost.classifier(n_estimators=4, random_state=0)),
        "catboost": make_pipeline(cat_boost.classifier(iterations=4, random_state=0)),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: model.fit(X, y) for name, model in made.items()}


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    return models()


@pytest.mark.slow
def test_models_predict_the_same_where_prefect_tune_cannot_be_imported(
    tmp_path: Path, fitted: dict[str, Any]
) -> None:
    found = fitted
    members = [found[name] for name in ("combinations", "bounded", "lightgbm")]
    ensemble = ClassEnsemble.of_fitted(members, [0.2, 0.3, 0.5])
    numbers = make_pipeline(*prepare(), Ridge()).fit(X, np.arange(len(X)))
    average = NumberEnsemble.of_fitted([numbers, numbers], [0.4, 0.6])
    events = read_source(Source(str(write_meds(tmp_path / "meds")), labels="labels/task"))
    of_events = make_pipeline(EventAggregation(), ToDense(), LogisticRegression())
    of_events.fit(events.X, events.labels)
    cases = {
        **{name: (model, X, model.predict_proba(X)) for name, model in found.items()},
        "ensemble": (ensemble, X, ensemble.predict_proba(X)),
        "average": (average, X, average.predict(X)),
        "events": (of_events, events.X, of_events.predict_proba(events.X)),
    }
    (tmp_path / "models.pkl").write_bytes(portable(cases).data)
    (tmp_path / "reads.py").write_text(READS)
    said = run_without_prefect_tune(tmp_path / "reads.py", tmp_path / "models.pkl")
    assert said.split() == [word for name in cases for word in (name, "True")]


@pytest.mark.parametrize("name", ["bounded", "combinations", "lightgbm", "xgboost", "catboost"])
def test_columns_in_another_order_or_besides_are_refused_not_mistaken(fitted, name) -> None:
    model = fitted[name]
    assert list(model.feature_names_in_) == list(X)
    for other in (X[X.columns[::-1]], X.assign(more=1.0)):
        with pytest.raises(ValueError, match="feature names should match"):
            model.predict(other)


def test_reading_says_which_packages_it_takes() -> None:
    plain = make_pipeline(*prepare(), LogisticRegression()).fit(X, y)
    pickled = portable(plain)
    assert set(pickled.packages) <= {"numpy", "pandas", "scipy", "sklearn"}
    assert not pickled.carries_code
    assert np.array_equal(pickled.model.predict_proba(X), plain.predict_proba(X))
    pickled = portable(make_pipeline(light_gbm.classifier(n_estimators=2)).fit(X, y))
    assert pickled.carries_code
    assert {"cloudpickle", "lightgbm", "pandas", "sklearn"} <= set(pickled.packages)
    assert "prefect_tune" not in pickled.packages


def test_what_is_pickled_later_is_by_name_again() -> None:
    portable(ArithmeticCombinations())
    import cloudpickle

    assert b"ArithmeticCombinations" in cloudpickle.dumps(ArithmeticCombinations())
    assert len(cloudpickle.dumps(ArithmeticCombinations())) < 500
