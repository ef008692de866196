"""The checks of scikit-learn: each fit is a whole study on one shared server and worker."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from scipy.stats import rankdata
from sklearn.datasets import make_blobs
from sklearn.utils.estimator_checks import parametrize_with_checks

from prefect_tune import PipelineSearch

SPACES = Path(__file__).with_name("tiny_spaces.py")

TYPICAL = {
    "check_estimator_cloneable",
    "check_estimator_sparse_tag",
    "check_estimators_pickle",
    "check_fit_idempotent",
}
"""The checks that every run of the tests makes for classes; `tests/run all` makes all."""

pytestmark = pytest.mark.usefixtures("server")


def search(predicts: Literal["classification", "regression"], space: str = "") -> PipelineSearch:
    """Return a search with one trial of the only pipeline of a space."""
    return PipelineSearch(
        predicts=predicts,
        space=f"{SPACES}:{space or predicts}",
        method="random",
        trials=1,
        folds=2,
        workers=1,
        task_runs="trial",
        random_state=0,
        verbose=0,
    )


def cases() -> Iterator[object]:
    """Return the tests of scikit-learn's `parametrize_with_checks`, with shorter names.

    A regression search gets only the checks of regressors and some typical checks. All other checks
    would test the same code as in a classification search.
    """
    for estimator, check in parametrize_with_checks(
        [search("classification"), search("regression")]
    ).args[1]:
        options = check.keywords if isinstance(check, partial) else {}
        name = getattr(check, "func", check).__name__
        if estimator.predicts == "regression" and not ("regress" in name or name in TYPICAL):
            continue
        if name == "check_array_api_input":  # which needs an array library
            continue
        words = [estimator.predicts, name, *(f"{key}={value}" for key, value in options.items())]
        is_typical = name in TYPICAL and estimator.predicts == "classification" and not options
        marks = () if is_typical else pytest.mark.full
        yield pytest.param(estimator, check, id=" ".join(words), marks=marks)


@pytest.mark.parametrize(("estimator", "check"), list(cases()))
def test_scikit_learn_check_passes(estimator: PipelineSearch, check: Callable[..., None]) -> None:
    check(estimator)


def test_search_has_a_decision_function_only_if_the_fitted_model_does() -> None:
    """The consistency check of scikit-learn runs before a fit, when the method does not exist."""
    X, y = make_blobs(60, centers=[(2, 2), (4, 4)], random_state=0)
    linear, neighbors = search("classification"), search("classification", "neighbors")
    assert not hasattr(linear, "decision_function")
    assert hasattr(linear, "predict_proba")
    linear.fit(X, y)
    neighbors.fit(X, y)
    ranks = [rankdata(linear.decision_function(X)), rankdata(linear.predict_proba(X)[:, 1])]
    np.testing.assert_array_equal(*ranks)
    assert not hasattr(neighbors, "decision_function")
    assert hasattr(neighbors, "predict_proba")
