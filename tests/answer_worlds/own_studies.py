"""Studies of a single model with unusual predictions."""

from dataclasses import replace

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


def own_context(folder, model: str, n_classes: int, metric: str):
    """Return a study of a hostile model on 120 rows; with `n_classes=0`, the target is numeric."""
    rng = np.random.default_rng(n_classes)
    X = np.abs(rng.normal(size=(120, 4)))
    y = X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(0, 0.3, 120)
    if n_classes:
        borders = np.quantile(y, np.arange(1, n_classes) / n_classes)
        y = LABELS[n_classes][np.digitize(y, borders)]
    data = folder / "own.csv"
    pd.DataFrame(X, columns=list("abcd")).assign(y=y).to_csv(data, index=False)
    target = "classification" if n_classes else "regression"
    text, argument = space_text(model, target), "own.py:space"
    plain = context_of(folder)
    source = Source(str(data), target="y", predicts=target)
    problem = problem_of(
        source, store_of(plain), load_user_space(text, argument),
        space=argument, space_code=text, metric=metric,
    )  # fmt: skip
    return replace(plain, problem=problem)


def own_outcome(context):
    space = context.problem.find_space()
    return outcome(context, Query(sample_configuration(space, np.random.default_rng(0))))
