"""The folder of everything that is ours on a machine: default store, database, embedded server."""

import os
from pathlib import Path

from platformdirs import user_data_path

__all__ = ["home"]


def home() -> Path:
    """`PREFECT_TUNE_HOME`, or the user's data folder."""
    named = os.environ.get("PREFECT_TUNE_HOME")
    return Path(named).expanduser().resolve() if named else user_data_path("prefect-tune")
