"""Checked predictions: the output of a fitted model, as labels and scores of known classes.

Models may return frames, scores in another order, or values outside the classes. Other modules
therefore never use the output of `predict`, `predict_proba` or `decision_function` directly.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.pipeline import Pipeline

Array = NDArray[np.float64]
Values = NDArray[Any]
ScoreMethod = Literal["predict_proba", "decision_function"]

_SCORE_METHODS: tuple[ScoreMethod, ...] = ("predict_proba", "decision_function")
"""Methods that return scores, in order of preference."""
_NEVER = float(np.finfo(np.float64).min)
"""Decision value of a class the model has never seen, as in scikit-learn's cross-validation; its
probability is 0."""
_ROUNDING = 1e-4
"""Tolerance for a row of probabilities to sum to 1; some models compute in float32."""
_SHOWN_CLASSES = 8
_NO_NUMBERS = (str, bytes, complex, np.complexfloating, np.datetime64, np.timedelta64)
"""Types that are not numbers even though `float` may accept their values."""


class InvalidPredictions(ValueError):  # noqa: N818 - reads as the reason of a failed trial
    """A model returned something that cannot be its predictions for the given rows."""


@dataclass(frozen=True)
class Predictions:
    """Predictions of n rows.

    Attributes:
        label: Position of the predicted class, or the predicted number, shape (n,).
        score: Probability of each class, shape (n, c), or values that order rows the same way;
            None if the model gives neither.
    """

    label: Values
    score: Array | None = None

    def belong_to(self, n_rows: int, n_classes: int) -> bool:
        """Return whether shapes fit, which older versions did not check; 0 classes for numbers."""
        is_label = np.isfinite(self.label) & (self.label >= 0) & (self.label < n_classes)
        is_right = is_label if n_classes else np.isfinite(self.label)
        if self.label.shape != (n_rows,) or not is_right.all():
            return False
        if self.score is None or not n_rows:
            return True
        return self.score.shape == (n_rows, n_classes) and bool(np.isfinite(self.score).all())

    def take(self, rows: Values) -> "Predictions":
        """Return the predictions of some rows, given by position or as a mask."""
        return Predictions(self.label[rows], None if self.score is None else self.score[rows])

    @property
    def are_probabilities(self) -> bool:
        """Whether the scores are probabilities."""
        return not self.why_no_probabilities

    @property
    def why_no_probabilities(self) -> str:
        """The reason the scores are no probabilities; empty if they are."""
        if self.score is None:
            return "this model returns no scores"
        negative = np.flatnonzero((self.score < 0).any(axis=1))
        if len(negative):
            lowest = float(self.score[negative[0]].min())
            return f"its scores are not probabilities (row {negative[0]} has {lowest:.4g})"
        off = np.flatnonzero(~np.isclose(self.score.sum(axis=1), 1, atol=_ROUNDING))
        if len(off):
            total = float(self.score[off[0]].sum())
            return f"its scores are not probabilities (row {off[0]} sums to {total:.4g}, not 1)"
        return ""


def predictions_of(
    model: Any,
    X: Any,
    classes: Values,
    *,
    name: str = "",
    methods: Sequence[ScoreMethod] = _SCORE_METHODS,
) -> Predictions:
    """Return the checked predictions of a fitted model for n rows X.

    Labels come from `predict`, scores from the first of `methods` that the model has. If the model
    declares how labels follow from probabilities, the rows are predicted only once. `classes` are
    all classes, sorted, or empty if numbers are predicted; `name` is the model's in messages.

    Raises:
        InvalidPredictions: If the model does not return one label and one row of scores per row.
    """
    if not n_rows(X):
        return Predictions(np.empty(0, dtype=np.int32 if len(classes) else np.float64))
    answer = _Answer(model, X, classes, name)
    if len(classes) and "predict_proba" in methods and (labels_of := _labels_of(model)):
        probabilities = np.asarray(model.predict_proba(X))
        label = answer.labels(labels_of(probabilities))
        return Predictions(label, answer.scores("predict_proba", probabilities, lambda: label))
    label = predicted_labels(model, X, classes, name=name)
    for method in methods if len(classes) else ():
        if not callable(getattr(model, method, None)):
            continue
        try:
            returned = getattr(model, method)(X)
        except NotImplementedError:  # how some models signal a missing method
            continue
        return Predictions(label, answer.scores(method, returned, lambda: label))
    return Predictions(label)


def _labels_of(model: Any) -> Callable[[Array], Any] | None:
    """Return a function from probabilities to labels for a model or a pipeline's last step.

    None if unknown: the labels of a support vector machine, for instance, may contradict scores.
    """
    last = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if type(last) in {RandomForestClassifier, ExtraTreesClassifier}:
        return lambda probabilities: last.classes_[probabilities.argmax(axis=1)]
    return getattr(last, "labels_of_probabilities", None)


def predicted_labels(model: Any, X: Any, classes: Values, *, name: str = "") -> Values:
    """Return positions of the predicted classes, or numbers, (n,); see `predictions_of`."""
    return _Answer(model, X, classes, name).labels(model.predict(X))


def predicted_scores(
    model: Any, X: Any, classes: Values, method: ScoreMethod, *, name: str = ""
) -> Array:
    """Return the scores of one method, one column per class, (n, c); see `predictions_of`.

    Raises:
        InvalidPredictions: Also if the columns stand for pairs of classes.
    """
    answer = _Answer(model, X, classes, name)
    returned = getattr(model, method)(X)
    scores = answer.scores(method, returned, lambda: answer.labels(model.predict(X)))
    if scores is None:
        raise answer.invalid(f"{method} compares pairs of classes and has no score per class")
    return scores


def checked_predictions(
    model: Any, X: Any, classes: Values, label: Any, probabilities: Any = None, *, name: str = ""
) -> Predictions:
    """Check labels and probabilities (or None) of a model in training, as `predictions_of` does."""
    answer = _Answer(model, X, classes, name)
    checked = answer.labels(label)
    if probabilities is None:
        return Predictions(checked)
    return Predictions(checked, answer.scores("predict_proba", probabilities, lambda: checked))


class _Answer:
    def __init__(self, model: Any, X: Any, classes: Values, name: str) -> None:
        self.model, self.classes, self.n = model, np.asarray(classes), n_rows(X)
        has_index = hasattr(getattr(X, "index", None), "equals")
        self.row_names: list[Any] = X.index.tolist() if has_index else list(range(self.n))
        self.name = name or _class_name(model)

    def labels(self, returned: Any) -> Values:
        values = self._rows("predict", returned)
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            several = values.ndim == 2 and len(self.classes) == values.shape[1]
            hint = "; probabilities belong in predict_proba" if several else ""
            expected = f"expected one label for each row, shape ({self.n},)"
            raise self.invalid(f"predict returned shape {values.shape}; {expected}{hint}")
        if not len(self.classes):
            return self._finite("predict", self._numbers("predict", values))
        found = _positions(values, self.classes)
        self._check(
            found >= 0, "predict", values, f"; the classes are {_listed(self.classes.tolist())}"
        )
        return found.astype(np.int32)

    def scores(
        self, method: ScoreMethod, returned: Any, label: Callable[[], Values]
    ) -> Array | None:
        """Return one column of scores per class; None if there is one per pair of classes."""
        values = self._finite(method, self._numbers(method, self._rows(method, returned)))
        known, shape = self._known_classes(_column_names(returned)), values.shape
        n_known = len(self.classes if known is None else known)
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim == 1 and method == "decision_function" and n_known == 2:
            values = np.column_stack([-values, values])
        elif values.ndim == 1 and n_known == 1:
            values = values[:, None]
        elif method == "decision_function" and self._compares_pairs(values, n_known):
            return None
        if values.ndim != 2 or values.shape[1] != n_known:
            expected = f"expected one column for each of {n_known} classes"
            raise self.invalid(f"{method} returned shape {shape}; {expected}")
        if known is None:
            self._check_order(method, values, label())
        if known is None or np.array_equal(known, np.arange(len(self.classes))):
            return values
        fill = 0.0 if method == "predict_proba" else _NEVER
        full = np.full((self.n, len(self.classes)), fill)
        full[:, known] = values
        return full

    def invalid(self, reason: str) -> InvalidPredictions:
        return InvalidPredictions(f"{self.name}: {reason}")

    def _rows(self, method: str, returned: Any) -> Values:
        try:
            values = _as_array(returned)
        except ValueError as error:  # rows of different shapes
            raise self.invalid(f"{method} returned no array: {error}") from error
        if values.ndim == 0 and self.n == 1:
            values = values.reshape(1)
        if values.ndim == 0:
            kind = type(returned).__name__
            raise self.invalid(f"{method} returned one {kind} for {self.n} rows")
        if len(values) != self.n:
            shape = f" (shape {values.shape})" if values.ndim > 1 else ""
            raise self.invalid(f"{method} returned {len(values)} rows for {self.n}{shape}")
        self._check_index(method, returned)
        return values

    def _check_index(self, method: str, returned: Any) -> None:
        index: Any = getattr(returned, "index", None)
        if not hasattr(index, "equals"):  # lists have an `index` method
            return
        order = index.tolist()
        if order != self.row_names and set(order) == set(self.row_names):
            raise self.invalid(f"{method} returned the rows in another order than they were given")

    def _numbers(self, method: str, values: Values) -> Array:
        if values.dtype.kind in "fiub":
            with np.errstate(over="ignore"):  # an infinite number raises its own error
                return values.astype(np.float64, copy=False)
        are_numbers = np.array([_is_number(value) for value in values.flat], dtype=np.bool_)
        self._check(are_numbers.reshape(values.shape), method, values, ", which is no number")
        return values.astype(np.float64)

    def _finite(self, method: str, values: Array) -> Array:
        self._check(np.isfinite(values), method, values, ", which is not finite")
        return values

    def _check(
        self, is_right: NDArray[np.bool_], method: str, values: Values, expected: str
    ) -> None:
        if is_right.all():
            return
        value = values[~is_right][:1].tolist()[0]
        wrong_rows = int((~is_right.reshape(self.n, -1)).any(axis=1).sum())
        where = f"in {wrong_rows} of {self.n} rows"
        raise self.invalid(f"{method} returned {value!r} {where}{expected}")

    def _known_classes(self, column_names: list[Any]) -> NDArray[np.intp] | None:
        """Return the class of each column by `classes_` or column names; None if unknown."""
        named = self._places(column_names)
        known = self._places(getattr(self.model, "classes_", None))
        is_same = named is not None and (known is None or set(named) == set(known))
        return named if is_same else known

    def _places(self, values: Any) -> NDArray[np.intp] | None:
        """Return the position of each class in a list; None if `values` is no list of classes."""
        values = None if values is None else _as_array(values)
        if values is None or values.ndim != 1 or not len(values):
            return None
        found = _positions(values, self.classes)
        return found if (found >= 0).all() and len(set(found.tolist())) == len(found) else None

    def _compares_pairs(self, values: Array, n_known: int) -> bool:
        """Return whether decision values have a column for each pair of classes (one-vs-one)."""
        if values.ndim != 2 or n_known < 3 or values.shape[1] != n_known * (n_known - 1) // 2:
            return False
        return values.shape[1] != n_known or _is_one_vs_one(self.model)  # 3 classes have 3 pairs

    def _check_order(self, method: str, values: Array, label: Values) -> None:
        """Raise unless most rows of each predicted class have their highest score in its column."""
        is_highest = values[np.arange(self.n), label] >= values.max(axis=1)
        if all(is_highest[label == c].mean() >= 0.5 for c in np.unique(label)):
            return
        known = getattr(self.model, "classes_", None)
        has = "has no classes_" if known is None else "has classes_ that differ from the data's"
        raise self.invalid(
            f"the model {has}, and the columns of {method} disagree with predict; set classes_ in "
            "fit, in the order of the columns"
        )


def n_rows(X: Any) -> int:
    """Return the number of rows of a matrix, a frame, events or a list."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(np.asarray(X))


def _class_name(model: Any) -> str:
    steps = getattr(model, "steps", None)
    return _class_name(steps[-1][1]) if isinstance(steps, list) else type(model).__name__


def _as_array(values: Any) -> Values:
    if sparse.issparse(values):
        return values.toarray()
    if isinstance(values, list | tuple):  # numpy would turn numbers in mixed lists into text
        return np.array(values, dtype=object)
    if isinstance(values, np.ma.MaskedArray):  # `filled` would invent a value
        visible: Values = np.array(values.data, dtype=object)
        visible[np.ma.getmaskarray(values)] = None
        return visible
    return np.asarray(values)


def _column_names(returned: Any) -> list[Any]:
    """Return the names of a frame's columns; none if they merely number the columns."""
    names = getattr(returned, "columns", None)
    named = [] if names is None else list(names)
    return [] if named == list(range(len(named))) else named


def _positions(values: Values, classes: Values) -> NDArray[np.intp]:
    """Return the position of each value in sorted classes, -1 if none; 1.0 and True equal 1."""
    if values.dtype.kind == classes.dtype.kind and values.dtype.kind in "iubU":
        found = np.minimum(np.searchsorted(classes, values), len(classes) - 1)
        return np.where(classes[found] == values, found, -1)
    known = {label: position for position, label in enumerate(classes.tolist())}
    return np.array([_position(value, known) for value in values.tolist()], dtype=np.intp)


def _position(value: Any, known: dict[Any, int]) -> int:
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    try:
        return known.get(value, -1)
    except TypeError:  # not hashable
        return -1


def _is_number(value: Any) -> bool:
    if isinstance(value, _NO_NUMBERS):
        return False
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _is_one_vs_one(model: Any) -> bool:
    """Return whether a model, or one inside it, returns decision values of pairs."""
    parameters = model.get_params(deep=True) if hasattr(model, "get_params") else {}
    return any(
        name.rsplit("__", 1)[-1] == "decision_function_shape" and value == "ovo"
        for name, value in parameters.items()
    )


def _listed(values: list[Any]) -> str:
    more = len(values) - _SHOWN_CLASSES
    shown = ", ".join(map(repr, values[:_SHOWN_CLASSES]))
    return f"{shown} and {more} more" if more > 0 else shown
