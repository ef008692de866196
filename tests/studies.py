"""Stores with an imported problem, ready to evaluate queries without Prefect or Dask."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from inputs import table, write_meds, write_table

from prefect_tune.optimizers import Configuration, Evaluation, Failure, Query
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.data.dataset import import_dataset
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.split import import_split, make_split
from prefect_tune.tasks.problem import Problem, StudyContext, algorithm_ids, open_store
from prefect_tune.tasks.trial.evaluate import evaluate_query
from prefect_tune.tasks.trial.path_run import PathRun
from prefect_tune.tasks.user_space import load_user_space


def context_of(
    folder: Path,
    *,
    events: bool = False,
    data: Path | None = None,
    use_cache: bool = True,
    address: StoreAddress | None = None,
) -> StudyContext:
    """Return a study of the test table (space small) or the test events (space healthcare)."""
    address = address or StoreAddress(str(folder / "store"))
    store = open_store(address)
    if events:
        meds = folder / "meds"
        meds = meds if meds.exists() else write_meds(meds)
        source = Source(str(meds), labels="labels/task")
    else:
        source = Source(str(data or write_table(folder)), target="target")
    problem = problem_of(source, store, space_named("healthcare" if events else "small"))
    return StudyContext("test", problem, address, use_cache)


def problem_of(source: Source, store: ArtifactStore, space: Space, /, **changes: object) -> Problem:
    """Import a problem with three folds and a fifth of the rows as test rows."""
    dataset = read_source(source)
    problem = Problem(
        dataset=import_dataset(dataset, store),
        split=import_split(make_split(dataset, 3, 0.2, 0), store),
        space=space.name,
        space_digest=space.digest,
        algorithms=algorithm_ids(space),
        metric="error",
        seed=0,
    )
    return replace(problem, **changes)  # type: ignore[arg-type]


def with_space(
    context: StudyContext, code: str, name: str = "space.py:space", **changes: object
) -> StudyContext:
    """Return the same study with the space of a user's file."""
    space = load_user_space(code, name)
    problem = replace(
        context.problem, space=name, space_digest=space.digest, space_code=code,
        algorithms=algorithm_ids(space),
    )  # fmt: skip
    return replace(context, problem=replace(problem, **changes))  # type: ignore[arg-type]


def store_of(context: StudyContext) -> ArtifactStore:
    return open_store(context.store)


def trials_in(store: Path | str, study: str) -> list[Any]:
    """Return the trials of a study in the ledger of a store."""
    opened = ArtifactStore(StoreAddress(str(store)))
    found: list[Any] = Ledger(opened.database).trials(study)
    opened.close()
    return found


def draw(context: StudyContext, seed: int, path: tuple[str, ...] | None = None) -> Query:
    space = context.problem.find_space()
    return Query(sample_configuration(space, np.random.default_rng(seed), path))


def configured(context: StudyContext, **choices: object) -> Query:
    """Return a query of these algorithms or pairs (algorithm, values), as in `fit_model="svm"`."""
    document = {}
    for step in context.problem.find_space().searched:
        chosen = choices[step.name.replace(" ", "_")]
        algorithm, values = chosen if isinstance(chosen, tuple) else (chosen, {})
        document[step.name] = {"algorithm": algorithm, "hyperparameters": values}
    return Query(Configuration.from_json(document, context.problem.find_space()))


def run_all(context: StudyContext, query: Query, folds: Sequence[int] | None = None) -> PathRun:
    """Return the run of a query after all steps."""
    path_run = PathRun(context, query, folds)
    path_run.run_all()
    return path_run


def outcome(context: StudyContext, query: Query) -> Evaluation | Failure:
    return evaluate_query(context, query)


def evaluate(context: StudyContext, query: Query) -> Evaluation:
    came = outcome(context, query)
    assert isinstance(came, Evaluation), came.traceback
    return came


EPOCHS = 10
"""Epochs of a full training run."""
ITERATIVE_SPACES = """
from prefect_tune import Algorithm, Flags, Space, Step
from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE, RESCALE


def seeded(id, estimator, **fixed):
    return Algorithm(id=id, estimator=estimator, fixed=fixed, flags=Flags(stochastic=True))


BOOSTING = "prefect_tune.tasks.catalogue.boosting"
NETWORK = "sklearn.neural_network.MLPRegressor"
GROWING = {"solver": "sgd", "momentum": 0.0, "activation": "identity"}
CLASSES = (
    seeded("mlp", "sklearn.neural_network.MLPClassifier", hidden_layer_sizes=[4]),
    seeded("lbfgs", "sklearn.neural_network.MLPClassifier", solver="lbfgs", max_iter=3),
    seeded("sgd", "sklearn.linear_model.SGDClassifier", loss="log_loss"),
    seeded("boosting", "sklearn.ensemble.GradientBoostingClassifier", n_estimators=20),
    seeded("histograms", "sklearn.ensemble.HistGradientBoostingClassifier", max_iter=10),
    seeded("forest", "sklearn.ensemble.RandomForestClassifier", n_estimators=15),
    seeded("lightgbm", f"{BOOSTING}.light_gbm.classifier", n_estimators=20, colsample_bytree=0.5),
    seeded("xgboost", f"{BOOSTING}.xg_boost.classifier", n_estimators=20, colsample_bytree=0.5),
    seeded("catboost", f"{BOOSTING}.cat_boost.classifier", iterations=20, learning_rate=0.3),
    Algorithm(id="neighbors", estimator="sklearn.neighbors.KNeighborsClassifier"),
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
    """Return a study of a table of 150 rows in three folds, with `EPOCHS` epochs."""
    frame = table()
    if numbers:
        noise = np.random.default_rng(1).normal(size=len(frame))
        frame["target"] = frame["a"] * 30 + noise
    name = "numbers" if numbers else "classes"
    frame.to_csv(folder / f"{name}.csv", index=False)
    metric = "neg_mean_squared_error" if numbers else "error"
    context = context_of(folder, data=folder / f"{name}.csv")
    context = with_space(context, ITERATIVE_SPACES, f"space.py:{name}", metric=metric)
    return replace(context, epochs=epochs, **changes)  # type: ignore[arg-type]


def to_epoch(query: Query, epochs: int | None, folds: int | None = None) -> Query:
    return replace(query, epochs=epochs, folds=folds)
