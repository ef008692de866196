"""Keys, bytes and records: what steps made and what studies did; no estimators, no Prefect.

`key` names things, `codec` turns values into bytes (`matrices` in one form, pickles signed,
`arrow_files` for data that processes map), `files` publishes folders of them under a URL, and
`mapped_files` reads what is mapped; `local_files` are what users name. `store` is the
artifact store: `writer` fills its bounded `cache`, `journal` says what is being written,
`inspection` looks into it, `opening` ties folder and database together. `records` must never go.
`ledger` has the studies. `lease` says who is making what, and tells processes apart. `schema`
declares all tables of the one `database`, which `migrations` bring up to date. `masking` hides
passwords; `waiting` is for a store that is away; `notices` are warnings for the user. Prefect is
known to `blocks` alone, and to a signing key of `codec` that is in a secret block.
Everything here is loaded when first touched: SQLAlchemy would hold up each command.
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
"""By name, the module below this one."""


if not TYPE_CHECKING:  # a type checker knows all names from the imports above, and no others

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
