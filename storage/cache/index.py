from prefect_tune.storage.index import ArtifactIndex, Pins, pinned_keys  # noqa
