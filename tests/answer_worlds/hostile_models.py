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


class Column(Plain):
    """Labels as a column, as CatBoost returns those of several classes."""

    def predict(self, X):
        return super().predict(X).reshape(-1, 1)


class ListOfLabels(Plain):
    """Labels as a list, probabilities as lists."""

    def predict(self, X):
        return super().predict(X).tolist()

    def predict_proba(self, X):
        return super().predict_proba(X).tolist()


class SeriesOfLabels(Plain):
    """Labels as a Series with an index of its own, probabilities as a frame."""

    def predict(self, X):
        return pd.Series(super().predict(X), index=range(1000, 1000 + len(X)))

    def predict_proba(self, X):
        return pd.DataFrame(super().predict_proba(X), columns=self.classes_)


class FrameOfLabels(Plain):
    """Labels as a frame of one column."""

    def predict(self, X):
        return pd.DataFrame({"label": super().predict(X)})


class ObjectLabels(Plain):
    """Labels as numpy scalars in an array of objects."""

    def predict(self, X):
        label = np.empty(len(X), dtype=object)
        label[:] = list(super().predict(X))
        return label


class FloatLabels(Plain):
    """Whole numbers as labels of whole or truth values, as floats."""

    def predict(self, X):
        label = super().predict(X)
        return label if label.dtype.kind == "U" else label.astype(np.float64)


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


class DuckTyped:
    """A classifier that knows nothing of scikit-learn."""

    def fit(self, X, y):
        self.inner_ = LogisticRegression().fit(X, y)
        return self

    def predict(self, X):
        return self.inner_.predict(X)


class Abstains(Plain):
    """Labels that are -1 in three rows."""

    def predict(self, X):
        label = super().predict(X).astype(object)
        label[:3] = -1
        return label


class Codes(Plain):
    """Positions of the classes instead of the classes, plus 7."""

    def predict(self, X):
        return 7 + np.searchsorted(self.inner_.classes_, super().predict(X))


class Short(Plain):
    """One label less than rows."""

    def predict(self, X):
        return super().predict(X)[:-1]


class NotANumber(Plain):
    """A label that is nan."""

    def predict(self, X):
        label = super().predict(X).astype(object)
        label[5] = float("nan")
        return label


class Missing(Plain):
    """A label that pandas knows as missing."""

    def predict(self, X):
        label = pd.Series(super().predict(X)).astype(object)
        label[5] = pd.NA
        return label


class TwoColumns(Plain):
    """Two targets."""

    def predict(self, X):
        return np.column_stack([super().predict(X)] * 2)


class ProbabilitiesAsLabels(Plain):
    """Probabilities where labels belong."""

    def predict(self, X):
        return super().predict_proba(X)


class Reordered(Plain):
    """Labels as a Series, sorted by label."""

    def predict(self, X):
        return pd.Series(super().predict(X)).sort_values()


class OnlyOne(Plain):
    """The same label for all rows together."""

    def predict(self, X):
        return super().predict(X)[0]


class NanScores(Plain):
    """A probability that is nan."""

    def predict_proba(self, X):
        score = super().predict_proba(X)
        score[3, 1] = np.nan
        return score


class InfiniteDecision(Decides):
    """A decision value that is infinite."""

    def decision_function(self, X):
        decision = super().decision_function(X).copy()
        decision[4] = -np.inf
        return decision


class OneProbability(Plain):
    """The probability of the last class alone."""

    def predict_proba(self, X):
        return super().predict_proba(X)[:, -1]


class OneProbabilityColumn(Plain):
    """The same, as a column."""

    def predict_proba(self, X):
        return super().predict_proba(X)[:, -1:]


class ShortScores(Plain):
    """One row of probabilities less than rows."""

    def predict_proba(self, X):
        return super().predict_proba(X)[:-1]


class MoreColumns(Plain):
    """A column more than there are classes."""

    def predict_proba(self, X):
        score = super().predict_proba(X)
        return np.column_stack([score, np.zeros(len(score))])


class TextScores(Plain):
    """Probabilities as text."""

    def predict_proba(self, X):
        return super().predict_proba(X).astype(str)


class ReversedWithoutClasses(NoClasses):
    """Columns from the last class to the first, and no `classes_` to say so."""

    def predict_proba(self, X):
        return super().predict_proba(X)[:, ::-1]


class Number(RegressorMixin, BaseEstimator):
    """The regressor that all others should come to."""

    def fit(self, X, y):
        self.inner_ = LinearRegression().fit(X, y)
        return self

    def predict(self, X):
        return self.inner_.predict(X)


class NumberColumn(Number):
    """Numbers as a column."""

    def predict(self, X):
        return super().predict(X).reshape(-1, 1)


class NumberList(Number):
    """Numbers as a list."""

    def predict(self, X):
        return super().predict(X).tolist()


class NumberSeries(Number):
    """Numbers as pandas' nullable type."""

    def predict(self, X):
        return pd.Series(super().predict(X)).astype("Float64")


class NumberNan(Number):
    """A number that is nan."""

    def predict(self, X):
        found = super().predict(X)
        found[2] = np.nan
        return found


class NumberInfinite(Number):
    """A number that is infinite."""

    def predict(self, X):
        found = super().predict(X)
        found[2] = np.inf
        return found


class NumberMissing(Number):
    """A number that pandas knows as missing."""

    def predict(self, X):
        found = pd.Series(super().predict(X)).astype("Float64")
        found[2] = pd.NA
        return found


class NumberText(Number):
    """Numbers as text."""

    def predict(self, X):
        return super().predict(X).astype(str)


class NumberColumns(Number):
    """Two numbers for each row."""

    def predict(self, X):
        return np.column_stack([super().predict(X)] * 2)


def space_text(model, target="classes"):
    """Return the text of a user's file with a space of one of these models."""
    return Path(__file__).read_text() + (
        "\n\nfrom prefect_tune import Algorithm, Space, Step\n"
        "from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE\n"
        f"model = Step('fit model', (Algorithm(id='own', estimator={model}),))\n"
        f"space = Space('own', (IMPUTE, ENCODE, model), target={target!r})\n"
    )
