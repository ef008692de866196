"""Our estimators as scikit-learn's own, where those are the same.

Some of our classes differ from their parents only where these would fail or leave nothing. Where
that did not happen, the parent with the same parameters and fitted values predicts the same to the
last bit, and a clone of it learns the same.
"""

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.feature_selection import GenericUnivariateSelect, SelectFromModel, SelectPercentile
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, TargetEncoder

from prefect_tune.tasks.catalogue.estimators import (
    Polynomial,
    QuadraticDiscriminant,
    SelectByModel,
    SelectByPercentile,
    SelectByScore,
)
from prefect_tune.tasks.catalogue.gaps_and_categories import OutOfFoldEncoder
from prefect_tune.tasks.repairs import BoundCategories, ClipNegatives

Value = TypeVar("Value")
Replace = Callable[[Any], Any]

_PARENTS: Mapping[type[Any], type[Any]] = {
    OutOfFoldEncoder: TargetEncoder,
    Polynomial: PolynomialFeatures,
    QuadraticDiscriminant: QuadraticDiscriminantAnalysis,
    SelectByModel: SelectFromModel,
    SelectByPercentile: SelectPercentile,
    SelectByScore: GenericUnivariateSelect,
}
FALLBACK = "only_column_"
"""Attribute of a selection that would have left no column, and keeps one."""


def plain(model: Value) -> Value:
    """Return a model, fitted or not, with scikit-learn's classes in place of ours.

    What has no counterpart stays. The model is not changed; what stays is shared with it.

    >>> plain(Pipeline([("products", Polynomial(degree=3))]))[0]
    PolynomialFeatures(degree=3)
    """
    return _replaced(model, _as_parent, {})


def without_idle_bounds(model: Value) -> Value:
    """Return a fitted model without bounds on the number of categories that held nothing back.

    It predicts the same. A clone of it learns only from columns that pandas knows as categories,
    and refuses more of them than its last step has room for.
    """
    return _replaced(model, _without_bound, {})


def estimator_classes(model: Any) -> tuple[type[Any], ...]:
    """Return the classes of all estimators that a model is made of, by name.

    >>> [kind.__name__ for kind in estimator_classes(Pipeline([("products", Polynomial())]))]
    ['Pipeline', 'Polynomial']
    """
    found: set[type[Any]] = set()

    def note(estimator: BaseEstimator) -> BaseEstimator:
        found.add(type(estimator))
        return estimator

    _replaced(model, note, {})
    return tuple(sorted(found, key=lambda kind: (kind.__name__, kind.__module__)))


def clip_at_zero() -> FunctionTransformer:
    """Return scikit-learn's counterpart of `ClipNegatives` for dense matrices."""
    return FunctionTransformer(np.clip, kw_args={"a_min": 0, "a_max": None})


def _as_parent(estimator: BaseEstimator) -> BaseEstimator:
    if isinstance(estimator, ClipNegatives) and vars(estimator).get("is_sparse_") is False:
        return clip_at_zero()
    parent = _PARENTS.get(type(estimator))
    if parent is None or hasattr(estimator, FALLBACK):
        return estimator
    changed: BaseEstimator = object.__new__(parent)
    vars(changed).update(vars(estimator))
    return changed


def _without_bound(estimator: BaseEstimator) -> BaseEstimator:
    if not isinstance(estimator, Pipeline) or len(estimator.steps) != 2:
        return estimator
    first, last = (step for _, step in estimator.steps)
    return last if isinstance(first, BoundCategories) and first.is_idle else estimator


def _replaced(value: Any, replace: Replace, done: dict[int, Any]) -> Any:
    """Return a value with its estimators replaced, the innermost first; itself if none is.

    Args:
        value: An estimator, or what one holds.
        replace: Returns what takes the place of an estimator; itself if it stays.
        done: By the id of what was looked at, the outcome: what is shared stays shared.
    """
    if id(value) not in done:
        done[id(value)] = _looked_at(value, replace, done)
    return done[id(value)]


def _looked_at(value: Any, replace: Replace, done: dict[int, Any]) -> Any:
    if isinstance(value, BaseEstimator):
        held = vars(value)
        changed = {name: _replaced(item, replace, done) for name, item in held.items()}
        if any(changed[name] is not held[name] for name in held):
            value = copy(value)
            vars(value).update(changed)
        return replace(value)
    if isinstance(value, dict):
        changed = {name: _replaced(item, replace, done) for name, item in value.items()}
        if all(changed[name] is value[name] for name in value):
            return value
        value = copy(value)
        value.update(changed)
        return value
    if type(value) in (list, tuple):
        items = [_replaced(item, replace, done) for item in value]
        return value if all(map(lambda a, b: a is b, items, value)) else type(value)(items)
    return value
