"""Keys, bytes and records: what steps made and what studies did; no estimators, no Prefect.

`key` names things, `codec` turns values into bytes, `files` publishes folders of them under a URL.
`store` is the bounded cache of artifacts with its `index`, `records` what must never go, `ledger`
the studies. `lease` says who is making what. All tables are in one `database`.
"""

from prefect_tune.storage.database import StoreLost
from prefect_tune.storage.key import canonical_json, content_digest, prefix_key
from prefect_tune.storage.ledger import Ledger, StoredStudy
from prefect_tune.storage.records import RecordDamaged, Records
from prefect_tune.storage.store import ArtifactStore, Made, StoreAddress, StoreRefused

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
