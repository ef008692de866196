"""Classifiers and regressors that return something else than scikit-learn's do.

All of them are a plain logistic or linear regression inside. The text of this file is also that of
a user's space: `space_text` adds a space of one of them.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import SVC


class Plain(ClassifierMixin, BaseEstimator):
    """The classifier that all others should come to."""

    def fit(self, X, y):
        self.inner_ = LogisticRegression().fit(X, y)
        self.classes_ = self.inner_.classes_
        return self

    def predict(self, X):
        return self.inner_.predict(X)

    def predict_proba(self, X):
        return self.inner_.predict_proba(X)


class Number(RegressorMixin, BaseEstimator):
    """The regressor that all others should come to."""

    def fit(self, X, y):
        self.inner_ = LinearRegression().fit(X, y)
        return self

    def predict(self, X):
        return self.inner_.predict(X)


class ReversedClasses(Plain):
    """Classes and columns from the last to the first."""

    def fit(self, X, y):
        super().fit(X, y)
        self.classes_ = self.classes_[::-1]
        return self

    def predict_proba(self, X):
        return super().predict_proba(X)[:, ::-1]


class NoClasses(Plain):
    """Columns in sorted order, and no `classes_`."""

    def fit(self, X, y):
        super().fit(X, y)
        del self.classes_
        return self


class EncodedClasses(Plain):
    """Columns in sorted order; `classes_` are the codes of an encoder inside."""

    def fit(self, X, y):
        super().fit(X, y)
        self.classes_ = np.arange(len(self.classes_)) + 100
        return self


class Decides(Plain):
    """Decision values, and no probabilities."""

    predict_proba = property()

    def decision_function(self, X):
        return self.inner_.decision_function(X)


class ReversedDecision(Decides):
    """Decision values of classes from the last to the first."""

    def fit(self, X, y):
        super().fit(X, y)
        self.classes_ = self.classes_[::-1]
        return self

    def decision_function(self, X):
        decision = super().decision_function(X)
        return -decision if decision.ndim == 1 else decision[:, ::-1]


class OneVsOne(Decides):
    """Decision values of pairs of classes."""

    def __init__(self, decision_function_shape="ovo"):
        self.decision_function_shape = decision_function_shape

    def fit(self, X, y):
        super().fit(X, y)
        self.svc_ = SVC(decision_function_shape=self.decision_function_shape).fit(X, y)
        return self

    def decision_function(self, X):
        return self.svc_.decision_function(X)


def odd(name, base=Plain, **changes):
    """A model that changes what some methods of another one return."""

    def changed(method, change):
        return lambda self, X: change(getattr(super(made, self), method)(X))

    made = type(name, (base,), {method: changed(method, c) for method, c in changes.items()})
    return made


def put(value, at, dtype=None):
    """Changes what is at a place."""

    def changed(answer):
        answer = pd.Series(answer).astype(dtype) if value is pd.NA else np.array(answer, dtype)
        answer[at] = value
        return answer

    return changed


def column(answer):
    return answer.reshape(-1, 1)


def twice(answer):
    return np.column_stack([answer] * 2)


def as_text(answer):
    return answer.astype(str)


def short(answer):
    return answer[:-1]


def indexed(label):
    """A Series of objects with an index of its own."""
    return pd.Series(list(label), index=range(1000, 1000 + len(label)), dtype=object)


def floats(label):
    """Whole numbers for labels of whole or truth values."""
    return label if label.dtype.kind == "U" else label.astype(np.float64)


Column = odd("Column", predict=column)  # as CatBoost returns those of several classes
SeriesOfLabels = odd("SeriesOfLabels", predict=indexed, predict_proba=pd.DataFrame)
FrameOfLabels = odd("FrameOfLabels", predict=lambda label: pd.DataFrame({"label": label}))
FloatLabels = odd("FloatLabels", predict=floats)
Abstains = odd("Abstains", predict=put(-1, slice(3), object))
Codes = odd("Codes", predict=lambda label: 7 + np.unique(label, return_inverse=True)[1])
Short = odd("Short", predict=short)
NotANumber = odd("NotANumber", predict=put(float("nan"), 5, object))
Missing = odd("Missing", predict=put(pd.NA, 5, object))
TwoColumns = odd("TwoColumns", predict=twice)
NanScores = odd("NanScores", predict_proba=put(np.nan, (3, 1)))
InfiniteDecision = odd("InfiniteDecision", Decides, decision_function=put(-np.inf, 4))
OneProbabilityColumn = odd("OneProbabilityColumn", predict_proba=lambda score: score[:, -1:])
ShortScores = odd("ShortScores", predict_proba=short)
TextScores = odd("TextScores", predict_proba=as_text)
NumberColumn = odd("NumberColumn", Number, predict=column)
NumberList = odd("NumberList", Number, predict=np.ndarray.tolist)
NumberSeries = odd("NumberSeries", Number, predict=lambda found: pd.Series(found, dtype="Float64"))
NumberNan = odd("NumberNan", Number, predict=put(np.nan, 2))
NumberMissing = odd("NumberMissing", Number, predict=put(pd.NA, 2, "Float64"))
NumberText = odd("NumberText", Number, predict=as_text)
NumberColumns = odd("NumberColumns", Number, predict=twice)


def space_text(model, target="classes"):
    """Return the text of a user's file with a space of one of these models."""
    return Path(__file__).read_text() + (
        "\n\nfrom prefect_tune import Algorithm, Space, Step\n"
        "from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE\n"
        f"model = Step('fit model', (Algorithm(id='own', estimator={model}),))\n"
        f"space = Space('own', (IMPUTE, ENCODE, model), target={target!r})\n"
    )
