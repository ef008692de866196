"""Storage of artifacts, records and studies, independent of estimators and mostly of Prefect.

Bytes:
    `keys`: Names of artifacts and records.
    `code_digest`: Hashes of Python sources.
    `codec`: Values as bytes; pickles are signed.
    `matrices`: The canonical form of matrices.
    `arrow_files`: Matrices that can be memory-mapped.
    `host_copies`: Mapped files, and copies of a remote store's data on this host.
    `local_files`: Files that users name.
    `files`: Folders of bytes under a URL.
Artifacts:
    `artifacts`: The artifact store.
    `eviction`: Room within the byte budget.
    `index`: Entries of artifacts, and their pins.
    `entry`: One row of the index.
    `usage`: Counts of hits, misses and reads.
    `preview`: The contents of an artifact.
    `journal`: Unfinished writes.
    `inspection`: What the commands on artifacts show.
    `records`: Files that are never evicted.
    `blocks`: The Prefect block of a store.
Database:
    `schema`: All tables.
    `database`: Connections to SQLite or PostgreSQL.
    `opening`: The claim that ties folder and database together, and upgrades.
    `ledger`: Studies and their events.
    `series`: Series of studies.
    `lease`: Which process makes or runs what.
    `processes`: Identities of processes.
Faults:
    `masking`: Hiding of passwords.
    `waiting`: Waiting for unreachable stores, and deferred signals.
    `notices`: Warnings to the user.

Only `blocks` and the signing key of `codec` use Prefect. Names are imported on first use, because
SQLAlchemy would delay every command.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefect_tune.storage.artifacts import ArtifactStore, Made, StoreAddress, StoreRefused
    from prefect_tune.storage.keys import canonical_json, content_digest, prefix_key
    from prefect_tune.storage.ledger import Ledger, StoredStudy
    from prefect_tune.storage.records import RecordDamaged, Records
    from prefect_tune.storage.waiting import StoreLost

__all__ = [
    "ArtifactStore",
    "Ledger",
    "Made",
    "RecordDamaged",
    "Records",
    "StoreAddress",
    "StoreLost",
    "StoreRefused",
    "StoredStudy",
    "canonical_json",
    "content_digest",
    "prefix_key",
]

_NAMES = {
    "artifacts": ("ArtifactStore", "Made", "StoreAddress", "StoreRefused"),
    "keys": ("canonical_json", "content_digest", "prefix_key"),
    "ledger": ("Ledger", "StoredStudy"),
    "records": ("RecordDamaged", "Records"),
    "waiting": ("StoreLost",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
"""Module of each name."""


if not TYPE_CHECKING:  # a type checker reads the imports above and reports unknown names

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
