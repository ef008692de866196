"""Readiness of a worker: it reads the store, has the flow's versions, and has loaded the data."""

from importlib.metadata import version
from typing import Any

import sklearn

from prefect_tune.storage.holder import Machine
from prefect_tune.storage.privacy.signing import key_fingerprint
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.fitting.recipe import imported
from prefect_tune.tasks.study_context import StudyContext, open_store

__all__ = ["INDEX_MACHINE", "make_ready", "worker_environment"]

INDEX_MACHINE = "machine of the index"
"""Where processes must run that share the index of the store; None for anywhere."""


def make_ready(context: StudyContext) -> None:
    """Load what the first trials of a study would load: its data, and the code of its space."""
    load_dataset(open_store(context.store), context.problem.dataset)
    for step in context.problem.find_space().steps:
        for algorithm in step.algorithms:
            for path in (algorithm.import_path, algorithm.sparse_estimator):
                if path:
                    imported(path)


def worker_environment(context: StudyContext) -> dict[str, Any]:
    """Return what must be the same in the flow and on each of its workers.

    Raises:
        StoreRefused, RecordDamaged, OSError: If store, database or data set cannot be read here.
    """
    store = open_store(context.store)
    load_dataset(store, context.problem.dataset)
    return {
        "store": store.id,
        "space": context.problem.find_space().digest,
        "scikit-learn": sklearn.__version__,
        "prefect-tune": version("prefect-tune"),
        "signing key with the fingerprint": key_fingerprint(),
        INDEX_MACHINE: Machine.this_one() if store.database.is_of_one_machine else None,
    }
