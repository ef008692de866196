"""Removing a study, and the records that only it used."""

from prefect_tune.flows.study.lease import held_study, study_lease
from prefect_tune.flows.study.lookup import find_study
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.store import ArtifactStore

__all__ = ["remove_study"]


def remove_study(store: ArtifactStore, name: str) -> list[str]:
    """Remove a study, and return the ids of the records that went with it.

    Raises:
        UnknownName: If there is no such study.
        BadInput: If another process runs it.
    """
    find_study(store, name)
    with held_study(store, name):
        lease = study_lease(name)
        gone = store.records.release(name, lease=lease)  # first: what is left is found by its study
        Ledger(store.database, lease).delete_study(name)
        return gone
