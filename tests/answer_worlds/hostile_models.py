"""Classifiers and regressors that return predictions in unusual forms.

Each model wraps a plain logistic or linear regression. The text of this file is also the text of a
user's space: `space_text` adds a space with one of the models.
"""

from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.linear_model import LinearRegression, LogisticRegression


class Plain(ClassifierMixin, BaseEstimator):
    """Reference classifier, which all other classifiers should equal."""

    def fit(self, X, y):
        self.inner_ = LogisticRegression().fit(X, y)
        self.classes_ = self.inner_.classes_
        return self

    def predict(self, X):
        return self.inner_.predict(X)

    def predict_proba(self, X):
        return self.inner_.predict_proba(X)


class Number(RegressorMixin, BaseEstimator):
    """Reference regressor, which all other regressors should equal."""

    def fit(self, X, y):
        self.inner_ = LinearRegression().fit(X, y)
        return self

    def predict(self, X):
        return self.inner_.predict(X)


class ReversedClasses(Plain):
    """Classes and columns in reverse order."""

    def fit(self, X, y):
        super().fit(X, y)
        self.classes_ = self.classes_[::-1]
        return self

    def predict_proba(self, X):
        return super().predict_proba(X)[:, ::-1]


def odd(name, base=Plain, **changes):
    """Derive a model from another model by changing the results of some methods."""

    def changed(method, change):
        return lambda self, X: change(getattr(super(made, self), method)(X))

    made = type(name, (base,), {method: changed(method, c) for method, c in changes.items()})
    return made


def put(value, at, dtype=None):
    """Return a function that replaces the value at a position."""

    def changed(answer):
        answer = np.array(answer, dtype)
        answer[at] = value
        return answer

    return changed


def column(answer):
    return answer.reshape(-1, 1)


Column = odd("Column", predict=column)  # as CatBoost returns those of several classes
Abstains = odd("Abstains", predict=put(-1, slice(3), object))
NanScores = odd("NanScores", predict_proba=put(np.nan, (3, 1)))
NumberNan = odd("NumberNan", Number, predict=put(np.nan, 2))


def space_text(model, target="classification"):
    """Return the text of a user's file that defines a space with a model of this file."""
    return Path(__file__).read_text() + (
        "\n\nfrom prefect_tune import Algorithm, Space, Step\n"
        "from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE\n"
        f"model = Step('fit model', (Algorithm(id='own', estimator={model}),))\n"
        f"space = Space('own', (IMPUTE, ENCODE, model), target={target!r})\n"
    )
