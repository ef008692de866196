from prefect_tune.storage.artifacts import *  # noqa: F403
