"""A model in skops' format, which names what must be trusted and refuses what it cannot hold."""

import sys

import numpy as np
import pytest
from inputs import table
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.boosting import light_gbm
from prefect_tune.tasks.catalogue.preparation import make_encoder, make_imputer
from prefect_tune.tasks.ensembling.model import ClassEnsemble
from prefect_tune.tasks.exporting.skops_file import skops_file
from prefect_tune.tasks.user_code import load_user_code

FRAME = canonical(table())
X, y = FRAME.drop(columns="target"), np.asarray(FRAME["target"].astype(str))
MINE = """
from sklearn.linear_model import LogisticRegression


class Mine(LogisticRegression):
    pass
"""


def fitted(*steps: object) -> Pipeline:
    return make_pipeline(make_imputer(), make_encoder(), *steps).fit(X, y)


def test_a_plain_pipeline_needs_no_type_of_ours() -> None:
    model = fitted(LogisticRegression())
    found = skops_file(model, [4])
    assert np.array_equal(found.model.predict_proba(X), model.predict_proba(X))
    assert "prefect_tune" not in found.packages
    assert set(found.trusted) <= {
        "numpy.dtype",
        "sklearn.compose._column_transformer.make_column_selector",
    }


def test_what_must_be_trusted_and_installed_is_named() -> None:
    boosted = make_pipeline(light_gbm.classifier(n_estimators=3)).fit(X, y)
    model = ClassEnsemble.of_fitted([boosted, fitted(LogisticRegression())], [0.4, 0.6])
    found = skops_file(model, [4, 7])
    assert np.array_equal(found.model.predict_proba(X), model.predict_proba(X))
    assert {"lightgbm", "prefect_tune", "skops"} <= set(found.packages)
    assert "prefect_tune.tasks.ensembling.model.ClassEnsemble" in found.trusted


def test_a_users_class_is_refused_by_its_step_and_trial() -> None:
    mine = load_user_code(MINE, "mine.py").Mine()
    model = ClassEnsemble.of_fitted([fitted(LogisticRegression()), fitted(mine)])
    with pytest.raises(BadInput, match=r"step 'mine' of trial 7 \(Mine\): .* ends in \.pkl"):
        skops_file(model, [4, 7])


def test_what_skops_fails_on_is_refused_by_its_step() -> None:
    unnamed = FunctionTransformer(lambda matrix: matrix)
    with pytest.raises(BadInput, match="cannot hold step 'functiontransformer'"):
        skops_file(fitted(unnamed, LogisticRegression()), [4])


def test_without_skops_the_way_to_get_it_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "skops", None)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(BadInput, match=r"pip install 'prefect-tune\[skops\]'"):
        skops_file(fitted(LogisticRegression()), [4])
