"""Studies whose models train in epochs, on small tables."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from inputs import table

from prefect_tune.optimizers import Query
from prefect_tune.storage import StoreAddress
from prefect_tune.tasks.data.dataset import import_dataset
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.split import import_split, make_split
from prefect_tune.tasks.problem import Problem, algorithm_ids
from prefect_tune.tasks.study_context import StudyContext, open_store
from prefect_tune.tasks.user_space import load_user_space

EPOCHS = 10
SPACE = """
from ConfigSpace import Categorical, ConfigurationSpace, Integer

from prefect_tune import Algorithm, Flags, Space, Step
from prefect_tune.tasks.catalogue.rescaling import RESCALE
from prefect_tune.tasks.catalogue.table_preparation import ENCODE, IMPUTE


def seeded(id, estimator, **fixed):
    return Algorithm(id=id, estimator=estimator, fixed=fixed, flags=Flags(stochastic=True))


NETWORK = "sklearn.neural_network.MLPRegressor"
GROWING = {"solver": "sgd", "momentum": 0.0, "activation": "identity"}
CLASSES = (
    seeded("mlp", "sklearn.neural_network.MLPClassifier", hidden_layer_sizes=[4]),
    seeded("lbfgs", "sklearn.neural_network.MLPClassifier", solver="lbfgs", max_iter=3),
    seeded("sgd", "sklearn.linear_model.SGDClassifier", loss="log_loss"),
    seeded("boosting", "sklearn.ensemble.GradientBoostingClassifier", n_estimators=20),
    seeded("histograms", "sklearn.ensemble.HistGradientBoostingClassifier", max_iter=10),
    seeded("forest", "sklearn.ensemble.RandomForestClassifier", n_estimators=15),
    Algorithm(id="neighbours", estimator="sklearn.neighbors.KNeighborsClassifier"),
)
NUMBERS = (
    seeded("growing", NETWORK, learning_rate_init=1.0, batch_size=1000, **GROWING),
    seeded("hopeless", NETWORK, learning_rate_init=1e9, batch_size=5, **GROWING),
)
rescale = Step("rescale", tuple(a for a in RESCALE.algorithms if a.id in ("none", "standardize")))
classes = Space("classes", (IMPUTE, ENCODE, rescale, Step("fit model", CLASSES)))
numbers = Space("numbers", (IMPUTE, ENCODE, rescale, Step("fit model", NUMBERS)))
"""


def epoch_context(
    folder: Path, *, numbers: bool = False, epochs: int | None = EPOCHS, **changes: object
) -> StudyContext:
    """A study of a table of 150 rows in three folds, `EPOCHS` epochs in a full training."""
    address = StoreAddress(str(folder / "store"))
    store = open_store(address)
    frame = table()
    if numbers:
        noise = np.random.default_rng(1).normal(size=len(frame))
        frame["target"] = frame["a"] * 30 + noise
    path = folder / ("numbers.csv" if numbers else "classes.csv")
    pd.DataFrame(frame).to_csv(path, index=False)
    dataset = read_source(Source(str(path), target="target"))
    name = f"space.py:{'numbers' if numbers else 'classes'}"
    space = load_user_space(SPACE, name)
    problem = Problem(
        dataset=import_dataset(dataset, store),
        split=import_split(make_split(dataset, 3, 0.2, 0), store),
        space=name,
        space_digest=space.digest,
        space_code=SPACE,
        algorithms=algorithm_ids(space),
        metric="neg_mean_squared_error" if numbers else "error",
        seed=0,
    )
    context = StudyContext("test", problem, address, epochs=epochs)
    return replace(context, **changes)  # type: ignore[arg-type]


def to_epoch(query: Query, epochs: int | None, folds: int | None = None) -> Query:
    return replace(query, epochs=epochs, folds=folds)
