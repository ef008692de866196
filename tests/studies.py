"""Stores with an imported problem, ready to evaluate queries without Prefect or Dask."""

from pathlib import Path

import numpy as np
from inputs import write_meds, write_table

from prefect_tune.optimizers import Configuration, Evaluation, Failure, Query
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.storage import ArtifactStore, StoreAddress
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.data.dataset import import_dataset
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.split import import_split, make_split
from prefect_tune.tasks.evaluate import evaluate_query
from prefect_tune.tasks.problem import Problem, algorithm_ids
from prefect_tune.tasks.study_context import StudyContext, open_store


def context_of(
    folder: Path,
    *,
    events: bool = False,
    data: Path | None = None,
    use_cache: bool = True,
    address: StoreAddress | None = None,
) -> StudyContext:
    """A study of the test table (space small) or the test events (space healthcare)."""
    address = address or StoreAddress(str(folder / "store"))
    store = open_store(address)
    if events:
        meds = folder / "meds"
        meds = meds if meds.exists() else write_meds(meds)
        source = Source(str(meds), labels="labels/task")
    else:
        source = Source(str(data or write_table(folder)), target="target")
    dataset = read_source(source)
    space = space_named("healthcare" if events else "small")
    problem = Problem(
        dataset=import_dataset(dataset, store),
        split=import_split(make_split(dataset, 3, 0.2, 0), store),
        space=space.name,
        space_digest=space.digest,
        algorithms=algorithm_ids(space),
        metric="error",
        seed=0,
    )
    return StudyContext("test", problem, address, use_cache)


def store_of(context: StudyContext) -> ArtifactStore:
    return open_store(context.store)


def draw(context: StudyContext, seed: int, path: tuple[str, ...] | None = None) -> Query:
    space = context.problem.find_space()
    return Query(sample_configuration(space, np.random.default_rng(seed), path))


def configured(context: StudyContext, **choices: object) -> Query:
    """A query by step name, `_` for spaces: an algorithm, or (algorithm, values)."""
    document = {}
    for step in context.problem.find_space().searched:
        chosen = choices[step.name.replace(" ", "_")]
        algorithm, values = chosen if isinstance(chosen, tuple) else (chosen, {})
        document[step.name] = {"algorithm": algorithm, "hyperparameters": values}
    return Query(Configuration.from_json(document, context.problem.find_space()))


def outcome(context: StudyContext, query: Query) -> Evaluation | Failure:
    return evaluate_query(context, query, lambda path_run, position, _: path_run.run(position))


def evaluate(context: StudyContext, query: Query) -> Evaluation:
    came = outcome(context, query)
    assert isinstance(came, Evaluation), came.traceback
    return came
