"""Keys, bytes and records: what steps made and what studies did; no estimators, no Prefect.

`key` names things, `codec` turns values into bytes (`matrices` in one form, pickles signed),
`files` publishes folders of them under a URL; `atomic` does so for single files. `store` is the
artifact store: `writer` fills its bounded `cache`, `journal` says what is being written,
`inspection` looks into it, `opening` ties folder and database together. `records` must never go.
`ledger` has the studies. `lease` says who is making what, `holder` tells processes apart. All
tables are in one `database`, which `migrations` bring up to date. What others may not read or forge
is in `privacy` and in a `private_folder`; `waiting` is for a store that is away; `notices` are
warnings for the user, and `sqlite_file` tells whether a database was moved.
`blocks` and a block of secrets there alone know Prefect.
"""

from prefect_tune.storage.key import canonical_json, content_digest, prefix_key
from prefect_tune.storage.ledger import Ledger, StoredStudy
from prefect_tune.storage.records import RecordDamaged, Records
from prefect_tune.storage.store import ArtifactStore, Made, StoreAddress, StoreRefused
from prefect_tune.storage.waiting.outage import StoreLost

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
