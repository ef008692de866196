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
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.feature_selection import GenericUnivariateSelect, SelectFromModel, SelectPercentile
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, TargetEncoder
from sklearn.utils.metaestimators import available_if

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.estimators import (
    Polynomial,
    QuadraticDiscriminant,
    SelectByModel,
    SelectByPercentile,
    SelectByScore,
)
from prefect_tune.tasks.catalogue.gaps_and_categories import OutOfFoldEncoder
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.row_reader import RowReader
from prefect_tune.tasks.repairs import BoundCategories, ClipNegatives
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

    >>> plain(Pipeline([("products", Polynomial(degree=3))]))[0]
    PolynomialFeatures(degree=3)
    """
    return _replaced(model, _as_parent, {})


def with_reader(model: Any, dataset: Dataset, *, of_matrix: bool = False) -> Any:
    """Return a model with the reader (unless `of_matrix`) and the classes of its `dataset`."""
    steps = model.steps if isinstance(model, Pipeline) else [("model", model)]
    if not np.array_equal(dataset.learned_classes, np.array(dataset.classes)):
        steps = [("model", NamedClasses(model, dataset.classes))]
        model = Pipeline(steps)
    return model if of_matrix else Pipeline([("read rows", dataset.row_reader), *steps])


class NamedClasses(ClassifierMixin, BaseEstimator):
    """A fitted classifier of class positions that returns the classes themselves."""

    def __init__(self, model: Any, classes: Sequence[Any]) -> None:
        self.model, self.classes = model, classes

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, shape (c,)."""
        return np.array(self.classes)

    def fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Fit the classifier to the positions of the classes `y`."""
        self.model.fit(X, np.searchsorted(self.classes_, y), **params)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each row, shape (n,)."""
        return self.classes_[np.asarray(self.model.predict(X), dtype=np.intp)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy; scikit-learn would refuse fractional numbers as classes."""
        return float(np.average(self.predict(X) == np.asarray(y), weights=sample_weight))

    @available_if(lambda self: hasattr(self.model, "predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, shape (n, c)."""
        return np.asarray(self.model.predict_proba(X))

    @available_if(lambda self: hasattr(self.model, "decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return decision values as the classifier gives them."""
        return np.asarray(self.model.decision_function(X))


def without_idle_bounds(model: Value) -> Value:
    """Return a fitted model without category bounds that had no effect, predicting the same."""
    return _replaced(model, _without_bound, {})


def estimator_classes(model: Any) -> tuple[type[Any], ...]:
    """Return the classes of all estimators in a model, by name.

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
    """Return a value with its estimators replaced, innermost first; shared objects stay shared."""
    if id(value) not in done:
        done[id(value)] = _rebuilt(value, replace, done)
    return done[id(value)]


def _rebuilt(value: Any, replace: Replace, done: dict[int, Any]) -> Any:
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


OURS = "prefect_tune"
_READ_BY = "cloudpickle"


@dataclass(frozen=True, slots=True)
class Pickled:
    """A model as a pickle, the model read back, and the packages that reading imports, sorted."""

    data: bytes
    model: Any
    packages: tuple[str, ...]

    @property
    def carries_code(self) -> bool:
        """Whether the pickle carries code by value, which only this version of Python reads."""
        return _READ_BY in self.packages


def portable(model: Any) -> Pickled:
    """Pickle a model with our code and the user's by value, and read it back."""
    data = pickle_by_value(model, lambda name: is_ours(name) or is_user_code(name))
    reader = _Reader(data)
    read = reader.load()
    return Pickled(data, read, tuple(sorted(reader.packages - sys.stdlib_module_names)))


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
    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.packages: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        self._note(module)
        found = super().find_class(module, name)
        return self._noted(found) if (module, name) == _IMPORT else found

    def _noted(self, imports: Callable[[str], ModuleType]) -> Callable[[str], ModuleType]:
        def noted(module: str) -> ModuleType:
            self._note(module)
            return imports(module)

        return noted

    def _note(self, module: str) -> None:
        self.packages.add(module.partition(".")[0])


_IMPORT = ("cloudpickle.cloudpickle", "subimport")
"""Function with which code pickled by value imports the modules it uses."""


_ALWAYS = ("numpy", "scipy", "sklearn", "skops")
_REMEDY = "export to a file that ends in .pkl"


@dataclass(frozen=True, slots=True)
class SkopsFile:
    """A model in skops' format and read back; the reader must trust the `trusted` types, sorted."""

    data: bytes
    model: Any
    trusted: tuple[str, ...]

    @property
    def packages(self) -> tuple[str, ...]:
        """Packages that reading imports, sorted."""
        named = {kind.partition(".")[0] for kind in self.trusted} - {"builtins"}
        return tuple(sorted({*_ALWAYS, *named}))


def skops_file(model: Any, trials: Sequence[int]) -> SkopsFile:
    """Write the trials' pipeline or ensemble with skops; BadInput names the step it refuses."""
    try:
        import skops.io  # noqa: F401, PLC0415 - optional dependency
    except ImportError as error:
        raise BadInput(
            "skops' format needs skops, which is not installed",
            remedy="pip install 'prefect-tune[skops]', or export to a file that ends in .pkl",
        ) from error
    model = without_idle_bounds(model)
    try:
        found = _dumped(model)
    except Exception as error:  # any kind, depending on the model's objects
        raise _refusal(model, trials) or BadInput(
            f"skops' format cannot store the model: {_short_error(error)}", remedy=_REMEDY
        ) from error
    if any(map(is_user_code, found.trusted)):
        refusal = _refusal(model, trials)
        assert refusal is not None  # noqa: S101 - the code belongs to one of the steps
        raise refusal
    return found


def _dumped(model: Any) -> SkopsFile:
    import skops.io  # noqa: PLC0415 - optional dependency

    data: bytes = skops.io.dumps(model)
    trusted = skops.io.get_untrusted_types(data=data)
    return SkopsFile(data, skops.io.loads(data, trusted=trusted), tuple(sorted(trusted)))


def _refusal(model: Any, trials: Sequence[int]) -> BadInput | None:
    """Return the error for the first step that skops cannot store; None if it can store all."""
    for where, part in _parts(model, trials):
        if reason := _skops_problem(part):
            name = type(part).__name__
            text = f"skops' format cannot store {where} ({name}): {reason}"
            return BadInput(text, remedy=_REMEDY)
    return None


def _parts(model: Any, trials: Sequence[int]) -> Iterator[tuple[str, Any]]:
    if isinstance(model, Pipeline) and isinstance(model[0], RowReader):
        yield "step 'read rows'", model[0]
        model = model[-1] if len(model) == 2 else model[1:]
    if isinstance(model, Pipeline) and isinstance(model[-1], NamedClasses):
        model = model[-1]
    if isinstance(model, NamedClasses):
        model = model.model
    pipelines = model.members_ if len(trials) > 1 else [model]
    for number, pipeline in zip(trials, pipelines, strict=True):
        of = f" of trial {number}" if len(pipelines) > 1 else ""
        steps = pipeline.steps if isinstance(pipeline, Pipeline) else [("model", pipeline)]
        for name, step in steps:
            yield f"step {name!r}{of}", step


def _skops_problem(step: Any) -> str:
    try:
        found = _dumped(step)
    except Exception as error:  # any kind, depending on the step's objects
        return _short_error(error)
    if any(map(is_user_code, found.trusted)):
        return "its class is defined in your own file, which cannot be imported elsewhere"
    return ""


def _short_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".split("\n", 1)[0]
