"""Storage of artifacts, records and studies, independent of estimators and mostly of Prefect.

`key` names artifacts and records. `codec` turns values into bytes: `matrices` have one canonical
form, pickles are signed, and `arrow_files` can be memory-mapped. `files` publishes folders of bytes
under a URL, `mapped_files` reads mapped ones, and `local_files` writes files that users name.
`store` is the artifact store: `writer` fills its bounded `cache`, `journal` lists unfinished
writes, `inspection` serves the commands, and `opening` ties folder and database together. `records`
are never evicted. `ledger` stores the studies, `series` logs series of studies, and `lease` records
which process makes or runs what. `schema` declares the tables of the one `database`, and
`migrations` upgrade them. `masking` hides passwords, `waiting` waits for unreachable stores, and
`notices` are warnings to the user. Only `blocks` and the signing key of `codec` use Prefect. Names
are imported on first use, because SQLAlchemy would delay every command.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefect_tune.storage.key import canonical_json, content_digest, prefix_key
    from prefect_tune.storage.ledger import Ledger, StoredStudy
    from prefect_tune.storage.records import RecordDamaged, Records
    from prefect_tune.storage.store import ArtifactStore, Made, StoreAddress, StoreRefused
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
    "key": ("canonical_json", "content_digest", "prefix_key"),
    "ledger": ("Ledger", "StoredStudy"),
    "records": ("RecordDamaged", "Records"),
    "store": ("ArtifactStore", "Made", "StoreAddress", "StoreRefused"),
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
