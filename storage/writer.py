from prefect_tune.storage.artifacts import MemoryTier  # noqa
