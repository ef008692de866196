from prefect_tune.storage.entry import Entry  # noqa
