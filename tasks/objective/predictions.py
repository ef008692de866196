"""Checked predictions: a fitted model's output as labels and scores for known classes.

A model may return frames, scores in another order, or values that are not classes. Therefore other
modules never use the output of `predict`, `predict_proba` or `decision_function` directly.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import available_if

from prefect_tune.tasks.bad_input import shown_columns
from prefect_tune.tasks.data.dataset import Dataset

Array = NDArray[np.float64]
Values = NDArray[Any]
ScoreMethod = Literal["predict_proba", "decision_function"]

_SCORE_METHODS: tuple[ScoreMethod, ...] = ("predict_proba", "decision_function")
"""Methods that return scores, in order of preference."""
_NEVER = float(np.finfo(np.float64).min)
"""Decision value of a class that was not in the training rows, as in scikit-learn's
cross-validation; the probability is 0.
"""
_ROUNDING = 1e-4
"""Tolerance for a row of probabilities to sum to 1; some models compute in float32."""


class InvalidPredictions(ValueError):  # noqa: N818 - reads as the reason of a failed trial
    """The output of a model is unusable as predictions for the given rows."""

    exit_code = 1  # exit code of a command: a failure, not a user's mistake


@dataclass(frozen=True)
class Predictions:
    """Predictions for n rows.

    Attributes:
        label: Positions of the predicted classes, or the predicted numbers, shape (n,).
        score: Probability of each class, shape (n, c), or other values that rank rows by
            confidence; None if the model returns neither.
    """

    label: Values
    score: Array | None = None

    def outputs(self, n_classes: int) -> Array:
        """Return scores, or votes if there are no scores, shape (n, c); numbers, shape (n, 1)."""
        if not n_classes:
            return np.asarray(self.label, dtype=np.float64)[:, None]
        return np.eye(n_classes)[self.label] if self.score is None else self.score

    def take(self, rows: Values) -> "Predictions":
        """Return the predictions for a subset of rows, given by position or as a mask."""
        return Predictions(self.label[rows], None if self.score is None else self.score[rows])

    @property
    def are_probabilities(self) -> bool:
        """Whether the scores are probabilities."""
        return not self.why_no_probabilities

    @property
    def why_no_probabilities(self) -> str:
        """Reason why the scores are not probabilities; empty if they are."""
        if self.score is None:
            return "this model returns no scores"
        is_one = np.isclose(self.score.sum(axis=1), 1, atol=_ROUNDING)
        wrong = np.flatnonzero((self.score < 0).any(axis=1) | ~is_one)
        return f"the model's scores of row {wrong[0]} are not probabilities" if len(wrong) else ""


def predictions_of(
    model: Any,
    X: Any,
    classes: Values,
    *,
    name: str = "",
    methods: Sequence[ScoreMethod] = _SCORE_METHODS,
) -> Predictions:
    """Return the checked predictions of a fitted model for the n rows X.

    Labels come from `predict`, and scores from the first of `methods` that the model has. If labels
    can be derived from probabilities, the model is called only once. `classes` contains all
    classes, sorted, and is empty for regression; `name` is the model's name in messages.

    Raises:
        InvalidPredictions: If the model does not return one valid label and one row of scores per
            row.
    """
    if not n_rows(X):
        return Predictions(np.empty(0, dtype=np.int32 if len(classes) else np.float64))
    answer = _Answer(model, X, classes, name)
    if len(classes) and "predict_proba" in methods and (labels_of := _labels_of(model)):
        probabilities = np.asarray(model.predict_proba(X))
        label = answer.labels(labels_of(probabilities))
        return Predictions(label, answer.scores("predict_proba", probabilities))
    label = answer.labels(model.predict(X))
    for method in methods if len(classes) else ():
        if not callable(getattr(model, method, None)):
            continue
        try:
            returned = getattr(model, method)(X)
        except NotImplementedError:  # some models signal a missing method this way
            continue
        return Predictions(label, answer.scores(method, returned))
    return Predictions(label)


def _labels_of(model: Any) -> Callable[[Array], Any] | None:
    """Return a model's or pipeline's function that derives labels from probabilities.

    Returns None if labels cannot be derived: labels of a support vector machine, for example, may
    contradict its scores.
    """
    last = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if type(last) in {RandomForestClassifier, ExtraTreesClassifier}:
        return lambda probabilities: last.classes_[probabilities.argmax(axis=1)]
    return getattr(last, "labels_of_probabilities", None)


def predicted_labels(model: Any, X: Any, classes: Values) -> Values:
    """Return positions of predicted classes, or predicted numbers, shape (n,)."""
    return _Answer(model, X, classes).labels(model.predict(X))


def predicted_scores(model: Any, X: Any, classes: Values, method: ScoreMethod) -> Array:
    """Return the scores of a method, one column per class, shape (n, c).

    Raises:
        InvalidPredictions: If the scores are invalid or the columns represent pairs of classes.
    """
    answer = _Answer(model, X, classes)
    scores = answer.scores(method, getattr(model, method)(X))
    if scores is None:
        raise answer.invalid(f"{method} compares pairs of classes and has no score per class")
    return scores


def checked_predictions(
    model: Any, X: Any, classes: Values, label: Any, probabilities: Any
) -> Predictions:
    """Check labels and probabilities (or None) of a model during training."""
    answer = _Answer(model, X, classes)
    checked = answer.labels(label)
    if probabilities is None:
        return Predictions(checked)
    return Predictions(checked, answer.scores("predict_proba", probabilities))


class _Answer:
    def __init__(self, model: Any, X: Any, classes: Values, name: str = "") -> None:
        self.model, self.classes, self.n = model, np.asarray(classes), n_rows(X)
        self.last = model.steps[-1][1] if isinstance(model, Pipeline) else model
        self.name = name or type(self.last).__name__

    def labels(self, returned: Any) -> Values:
        values = _as_array(returned)
        if values.shape == (self.n, 1):
            values = values[:, 0]
        if not len(self.classes):
            return self._numbers("predict", values, (self.n,))
        is_vector = values.ndim == 1
        found = _positions(values, self.classes) if is_vector else np.full(values.shape, -1)
        shown = shown_columns(map(repr, self.classes.tolist()))
        self._check("predict", values, (self.n,), found >= 0, f"; the classes are {shown}")
        return found.astype(np.int32)

    def scores(self, method: ScoreMethod, returned: Any) -> Array | None:
        """Return one column of scores per class; None if columns represent pairs of classes."""
        values, known = _as_array(returned), self._learned_classes()
        n_known = len(self.classes) if known is None else len(known)
        if method == "decision_function":
            if n_known > 2 and _is_one_vs_one(self.model):
                return None
            if n_known == 2 and values.size == self.n:  # a single column is for the second class
                second = self._numbers(method, values.reshape(-1), (self.n,))
                values = np.column_stack([-second, second])
        values = self._numbers(method, values, (self.n, n_known))
        if known is None or np.array_equal(known, np.arange(len(self.classes))):
            return values
        full = np.full((self.n, len(self.classes)), 0.0 if method == "predict_proba" else _NEVER)
        full[:, known] = values
        return full

    def invalid(self, reason: str) -> InvalidPredictions:
        return InvalidPredictions(f"{self.name}: {reason}")

    def _numbers(self, method: str, values: Values, shape: tuple[int, ...]) -> Array:
        if values.dtype == object:
            values = np.array(values.tolist())  # finds the type of the items
        if values.dtype.kind not in "fiub":
            self._check(method, values, shape, np.zeros(values.shape, bool), "; expected numbers")
        with np.errstate(over="ignore"):  # infinite numbers raise their own error
            numbers = values.astype(np.float64, copy=False)
        self._check(method, values, shape, np.isfinite(numbers), "; expected finite numbers")
        return numbers

    def _check(
        self,
        method: str,
        values: Values,
        shape: tuple[int, ...],
        is_right: NDArray[np.bool_],
        expected: str,
    ) -> None:
        """Raise `InvalidPredictions` unless values have the expected shape and are all valid."""
        if values.shape != shape:
            raise self.invalid(f"{method} returned shape {values.shape}; expected {shape}")
        if not is_right.all():
            value = values[~is_right][:1].tolist()[0]
            wrong_rows = int((~is_right.reshape(self.n, -1)).any(axis=1).sum())
            where = f"in {wrong_rows} of {self.n} rows"
            raise self.invalid(f"{method} returned {value!r} {where}{expected}")

    def _learned_classes(self) -> NDArray[np.intp] | None:
        """Return the class of each column, from `classes_`; None if unknown."""
        values = np.asarray(getattr(self.model, "classes_", ()))
        found = _positions(values, self.classes) if values.ndim == 1 and len(values) else ()
        is_known = len(found) and min(found) >= 0 and len(set(found)) == len(found)
        return np.asarray(found) if is_known else None


def with_reader(model: Any, dataset: Dataset, *, of_matrix: bool = False) -> Any:
    """Return a model that returns classes and, unless `of_matrix`, reads rows as in `dataset`."""
    steps = model.steps if isinstance(model, Pipeline) else [("model", model)]
    if not np.array_equal(dataset.learned_classes, np.array(dataset.classes)):
        steps = [("model", NamedClasses(model, dataset.classes))]
        model = Pipeline(steps)
    if of_matrix or dataset.row_reader is None:
        return model
    return Pipeline([("read rows", dataset.row_reader), *steps])


class NamedClasses(ClassifierMixin, BaseEstimator):
    """A classifier that wraps a classifier of class positions and returns class labels."""

    def __init__(self, model: Any, classes: Sequence[Any]) -> None:
        self.model, self.classes = model, classes

    @property
    def classes_(self) -> Values:
        """The sorted classes, shape (c,)."""
        return np.array(self.classes)

    def fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Fit the inner classifier to the positions of the classes `y`."""
        self.model.fit(X, np.searchsorted(self.classes_, y), **params)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, X: Any) -> Values:
        """Return the class of each row, shape (n,)."""
        return self.classes_[np.asarray(self.model.predict(X), dtype=np.intp)]

    @available_if(lambda self: hasattr(self.model, "predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class, shape (n, c)."""
        return np.asarray(self.model.predict_proba(X))


def n_rows(X: Any) -> int:
    """Return the number of rows of a matrix, frame, list or events."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(np.asarray(X))


def _as_array(returned: Any) -> Values:
    return np.asarray(returned.toarray() if sparse.issparse(returned) else returned)


def _positions(values: Values, classes: Values) -> NDArray[np.intp]:
    """Return the position of each value in sorted classes, or -1; 1.0 and True equal 1."""
    if values.dtype.kind == classes.dtype.kind and values.dtype.kind in "iubU":
        found = np.minimum(np.searchsorted(classes, values), len(classes) - 1)
        return np.where(classes[found] == values, found, -1)
    known = {label: position for position, label in enumerate(classes.tolist())}
    return np.array([known.get(value, -1) for value in values.tolist()], dtype=np.intp)


def _is_one_vs_one(model: Any) -> bool:
    """Return whether a model, or an inner model, returns decision values for pairs of classes."""
    parameters = model.get_params(deep=True) if hasattr(model, "get_params") else {}
    return any(
        name.rsplit("__", 1)[-1] == "decision_function_shape" and value == "ovo"
        for name, value in parameters.items()
    )
