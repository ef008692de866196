"""Readiness of a worker: it can read the store, has the flow's versions and has loaded data."""

from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import sklearn

from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.storage.codec import key_fingerprint
from prefect_tune.storage.processes import machine
from prefect_tune.storage.waiting import Stopwatch
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.spaces import algorithms_of, missing_libraries
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import load_split
from prefect_tune.tasks.fitting.recipe import imported
from prefect_tune.tasks.problem import StudyContext, check_plugins, open_store
from prefect_tune.tasks.sandbox.child import loading
from prefect_tune.tasks.threads import one_thread
from prefect_tune.tasks.user_code import installed_version

_LIBRARIES = "the libraries of the space's algorithms:"
"""Optional libraries that algorithms of the space need, with their versions."""

INDEX_MACHINE = "machine of the index"
"""Machine on which processes that share the index must run; None for any."""


def load(context: StudyContext, algorithms: Iterable[Algorithm]) -> float:
    """Load a study's data and libraries before a trial's clock starts; return the seconds taken.

    A library that cannot be imported later fails the step that needs it.

    Raises:
        StoreRefused, RecordDamaged, OSError: If the store or the data cannot be read.
    """
    stopwatch = Stopwatch()
    with loading(), one_thread():
        store, problem = open_store(context.store), context.problem
        load_dataset(store, problem.dataset)
        load_split(store, problem.split)
        for algorithm in algorithms:
            for path in (algorithm.import_path, algorithm.sparse_estimator):
                if path:
                    with suppress(Exception):
                        imported(path)
    return stopwatch.seconds()


def worker_environment(context: StudyContext) -> dict[str, Any]:
    """Return facts that must be equal in the flow and on each worker.

    Raises:
        StoreRefused, RecordDamaged, OSError: If store, database or data set cannot be read here.
        BadInput: If a plugin of the study differs here, or a library that the space needs cannot be
            used; the message has the remedy.
    """
    check_plugins(context.problem.running_plugins)
    store = open_store(context.store)
    with one_thread():  # otherwise libraries loaded here would keep all their threads
        load_dataset(store, context.problem.dataset)
        space = context.problem.find_space()
    algorithms = algorithms_of(space)
    if missing := missing_libraries(algorithms):
        raise BadInput("; ".join(map(str, missing)))
    packages = sorted({package for algorithm in algorithms for package in algorithm.requires})
    return {
        "store": store.id,
        _LIBRARIES: ", ".join(f"{p} {installed_version(p)}" for p in packages) or "none",
        "space": space.digest,
        "scikit-learn": sklearn.__version__,
        "prefect-tune": version("prefect-tune"),
        "signing key with the fingerprint": key_fingerprint(),
        INDEX_MACHINE: machine() if store.database.is_of_one_machine else None,
    }
