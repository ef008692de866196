"""Studies of one model that answers oddly."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
from studies import context_of, outcome, problem_of, store_of

from answer_worlds.hostile_models import space_text
from prefect_tune.optimizers import Query
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.user_space import load_user_space

LABELS = {2: np.array([False, True]), 3: np.array(["hi", "lo", "mid"])}
"""Classes by their number."""


def rows(n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """A matrix that no model refuses, and what each row is."""
    rng = np.random.default_rng(n_classes)
    X = np.abs(rng.normal(size=(120, 4)))
    signal = X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(0, 0.3, 120)
    if not n_classes:
        return X, signal - signal.min() + 0.1
    borders = np.quantile(signal, np.arange(1, n_classes) / n_classes)
    return X, np.digitize(signal, borders)


@cache
def table_text(n_classes: int) -> str:
    X, y = rows(n_classes)
    frame = pd.DataFrame(X, columns=list("abcd"))
    return frame.assign(y=LABELS[n_classes][y] if n_classes else y).to_csv(index=False)


def own_context(folder, model: str, n_classes: int, metric: str):
    """A study of one model of `hostile_models`."""
    data = folder / "own.csv"
    data.write_text(table_text(n_classes))
    target = "classes" if n_classes else "numbers"
    text, argument = space_text(model, target), "own.py:space"
    space = load_user_space(text, argument)
    plain = context_of(folder)
    source = Source(str(data), target="y", predicts=target)
    problem = problem_of(source, store_of(plain), space, space=argument, space_code=text)
    return replace(plain, problem=replace(problem, metric=metric))


def own_outcome(context):
    space = context.problem.find_space()
    return outcome(context, Query(sample_configuration(space, np.random.default_rng(0))))
