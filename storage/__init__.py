"""Storage of artifacts, records and studies.

Bytes:
    `keys`: Names of artifacts and records.
    `code_digest`: Hashes of Python sources.
    `codec`: Encoding of values as bytes, with optional signatures of pickles.
    `matrices`: The canonical form of matrices, as Parquet or as files that can be memory-mapped.
    `host_copies`: Memory-mapped files, and local copies of a remote store's data.
    `local_files`: Local files written atomically, or readable by their owner only.
    `files`: Folders of encoded files under a URL.
Artifacts:
    `artifacts`: The artifact store.
    `eviction`: Eviction of artifacts to stay within the byte budget.
    `index`: Entries and pins of artifacts, and unfinished writes.
    `usage`: Counts of cache hits, misses and reads.
    `inspection`: Descriptions and checks of artifacts for the command line.
    `records`: Files that are never evicted.
    `blocks`: The Prefect block that holds a store's address.
Database:
    `schema`: All tables.
    `database`: Connections to SQLite or PostgreSQL.
    `opening`: The claim that ties a store's folder to its database, and upgrades of tables.
    `ledger`: Studies and their events.
    `series`: Series of studies.
    `lease`: Locks on artifacts, studies and series, held by one process at a time.
    `processes`: Identities of processes.
Faults:
    `masking`: Masking of passwords.
    `waiting`: Waiting for unreachable stores, and deferred signals.
    `notices`: Warnings to the user.

Only `blocks` and the signing key of `codec` use Prefect.
"""
