"""Spaces of users, as texts of their files."""

__all__ = ["PRELUDE", "SLEEPING"]

PRELUDE = """
import ctypes
import os
import signal
import threading
from pathlib import Path
from time import monotonic, sleep

import numpy as np
from ConfigSpace import ConfigurationSpace, Float, Integer
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from prefect_tune import Algorithm, Flags, Space, Step
from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE, STANDARDIZE

SMOOTHING = Float("var_smoothing", (1e-9, 1.0), log=True)
DEPTH = Integer("max_depth", (2, 20), default=5)


def one(id, estimator, *space, seeded=False, **fixed):
    return Algorithm(
        id=id, estimator=estimator, fixed=fixed,
        hyperparameters=ConfigurationSpace(space=space), flags=Flags(stochastic=seeded),
    )


def models(*algorithms, before=()):
    return Space("own", (IMPUTE, ENCODE, *before, Step("fit model", algorithms)))
"""
"""What they begin with; the text of a space follows."""
SLEEPING = f"""{PRELUDE}

class Sleeps(GaussianNB):
    def fit(self, X, y):
        sleep({{seconds}})
        return super().fit(X, y)


space = models(one("sleeps", Sleeps, SMOOTHING))
"""
"""One whose model takes that many seconds for each fold."""
