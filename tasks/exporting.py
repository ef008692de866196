"""Export of a final model with as little dependence on prefect-tune as possible.

`plain` replaces our estimator classes by their scikit-learn parents. Some of our classes differ
from their parents only in cases in which the parent would fail or select nothing. If no such case
occurred, the parent predicts the same to the last bit, and its clone learns the same.

`portable` pickles a model with our remaining code and the user's by value, as bytecode for this
version of Python. Reading a `skops_file` runs no code, but types that skops does not know must be
installed where the file is read and trusted by the reader.
"""

import copyreg
import io
import pickle
import sys
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from operator import is_
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.feature_selection import GenericUnivariateSelect, SelectFromModel, SelectPercentile
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, TargetEncoder

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.estimators import (
    Polynomial,
    QuadraticDiscriminant,
    SelectByModel,
    SelectByPercentile,
    SelectByScore,
)
from prefect_tune.tasks.catalogue.gaps_and_categories import OutOfFoldEncoder
from prefect_tune.tasks.repairs import ClipNegatives
from prefect_tune.tasks.user_code import is_user_code, pickle_by_value

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
"""Attribute of a fitted selection that keeps one column because it would have selected none."""


def plain(model: Value) -> Value:
    """Return a copy of a model, fitted or not, with scikit-learn's classes in place of ours.

    Estimators without a counterpart stay and are shared with the original.

    >>> plain(Polynomial(degree=3))
    PolynomialFeatures(degree=3)
    """
    return _replaced(model, _as_parent, {})


def estimator_classes(model: Any) -> tuple[type[Any], ...]:
    """Return the classes of all estimators in a model, by name.

    >>> [kind.__name__ for kind in estimator_classes([Polynomial(), ClipNegatives()])]
    ['ClipNegatives', 'Polynomial']
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


def _replaced(value: Any, replace: Replace, done: dict[int, Any]) -> Any:
    """Return a value with its estimators replaced, innermost first; shared objects stay shared."""
    if id(value) in done:
        return done[id(value)]
    made = value
    if isinstance(value, BaseEstimator | dict):
        held = value if isinstance(value, dict) else vars(value)
        changed = {name: _replaced(item, replace, done) for name, item in held.items()}
        if any(changed[name] is not held[name] for name in held):
            made = copy(value)
            (made if isinstance(made, dict) else vars(made)).update(changed)
        if isinstance(made, BaseEstimator):
            made = replace(made)
    elif type(value) in (list, tuple):
        items = [_replaced(item, replace, done) for item in value]
        if not all(map(is_, items, value)):
            made = type(value)(items)
    done[id(value)] = made
    return made


OURS = "prefect_tune"
_READ_BY = "cloudpickle"
_REMEDY = "export to a file that ends in .pkl"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model as a file, and the model read back.

    Attributes:
        packages: Packages that reading imports, sorted.
        trusted: Types that the reader of a skops file must trust, sorted.
    """

    data: bytes
    model: Any
    packages: tuple[str, ...]
    trusted: tuple[str, ...] = ()

    @property
    def carries_code(self) -> bool:
        """Whether the file carries code by value, which only this version of Python reads."""
        return _READ_BY in self.packages


def portable(model: Any) -> ModelFile:
    """Pickle a model with our code and the user's by value, and read it back."""
    data = pickle_by_value(model, lambda name: is_ours(name) or is_user_code(name))
    reader = _Reader(data)
    read = reader.load()
    return ModelFile(data, read, tuple(sorted(reader.packages - sys.stdlib_module_names)))


def _cached(function: Callable[[Any], Any], name: str) -> cached_property[Any]:
    made = cached_property(function)
    made.attrname = name
    return made


# Before Python 3.12 a cached property holds a lock, which cannot be pickled by value.
copyreg.pickle(cached_property, lambda it: (_cached, (it.func, it.attrname)))


def is_ours(module: str) -> bool:
    """Return whether a module belongs to prefect-tune."""
    return module.partition(".")[0] == OURS


class _Reader(pickle.Unpickler):
    """Reads a pickle, and notes the packages that it or its code imports."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.packages: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        self.packages.add(module.partition(".")[0])
        # Code pickled by value imports the modules that it uses by this function.
        is_import = (module, name) == ("cloudpickle.cloudpickle", "subimport")
        return self._imported if is_import else super().find_class(module, name)

    def _imported(self, module: str) -> ModuleType:
        self.packages.add(module.partition(".")[0])
        return import_module(module)


def skops_file(model: Any) -> ModelFile:
    """Write a pipeline or an ensemble with skops; BadInput names the reason if it refuses."""
    try:
        import skops.io  # noqa: PLC0415 - optional dependency
    except ImportError as error:
        raise BadInput(
            "skops' format needs skops, which is not installed",
            remedy=f"pip install 'prefect-tune[skops]', or {_REMEDY}",
        ) from error
    try:
        data: bytes = skops.io.dumps(model)
        trusted = tuple(sorted(skops.io.get_untrusted_types(data=data)))
        read = skops.io.loads(data, trusted=trusted)
    except Exception as error:  # any kind, depending on the model's objects
        reason = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        raise BadInput(f"skops' format cannot store the model: {reason}", remedy=_REMEDY) from error
    if users := [kind.rpartition(".")[2] for kind in trusted if is_user_code(kind)]:
        raise BadInput(
            f"skops' format cannot store {users[0]}: its class is defined in your own file, which "
            "cannot be imported elsewhere",
            remedy=_REMEDY,
        )
    named = {kind.partition(".")[0] for kind in trusted} - {"builtins"}
    packages = tuple(sorted({"numpy", "scipy", "sklearn", "skops", *named}))
    return ModelFile(data, read, packages, trusted)
