"""Storage of artifacts, records and studies, independent of estimators and mostly of Prefect.

Bytes:
    `keys`: Names of artifacts and records.
    `code_digest`: Hashes of Python sources.
    `codec`: Values as bytes, with optional signatures of pickles.
    `matrices`: The canonical form of matrices, as Parquet or as files that can be memory-mapped.
    `host_copies`: Mapped files, and copies of a remote store's data on this host.
    `local_files`: Local files that are written atomically or are private to their owner.
    `files`: Folders of bytes under a URL.
Artifacts:
    `artifacts`: The artifact store.
    `eviction`: Eviction of artifacts to stay within the byte budget.
    `index`: Entries of artifacts, their pins, and unfinished writes.
    `usage`: Counts of hits, misses and reads.
    `inspection`: Descriptions and checks of artifacts for the command line.
    `records`: Files that are never evicted.
    `blocks`: The Prefect block of a store.
Database:
    `schema`: All tables.
    `database`: Connections to SQLite or PostgreSQL.
    `opening`: The claim that ties folder and database together, and upgrades.
    `ledger`: Studies and their events.
    `series`: Series of studies.
    `lease`: Locks on artifacts, studies and series, held by one process at a time.
    `processes`: Identities of processes.
Faults:
    `masking`: Hiding of passwords.
    `waiting`: Waiting for unreachable stores, and deferred signals.
    `notices`: Warnings to the user.

Only `blocks` and the signing key of `codec` use Prefect.
"""
