"""The options that name a store, `--store` and `--database`. Light to import."""

import os
from typing import TYPE_CHECKING

from prefect_tune.flows.home import home
from prefect_tune.storage.privacy.masking import masked

if TYPE_CHECKING:
    from prefect_tune.storage.opening import StoreAddress

__all__ = ["BLOCK", "DATABASE_VARIABLE", "default_store", "store_options"]

BLOCK = "block:"
"""What `--store` begins with where it names a Prefect block."""
DATABASE_VARIABLE = "PREFECT_TUNE_DATABASE"
"""Environment variable of the flow's process that names the database where no parameter does."""


def default_store() -> str:
    """Return the folder of the store that is meant where none is named."""
    return str(home() / "store")


def store_options(address: "StoreAddress") -> list[str]:
    """Return the words by which a command finds a store; none for the default one.

    Passwords are stars, except that a database with one is not named where the environment names
    it: no command takes it.
    """
    words = [] if address.url == default_store() else ["--store", masked(address.url)]
    shown = masked(address.database)
    is_secret = shown != address.database
    if shown and not (is_secret and address.database == os.environ.get(DATABASE_VARIABLE)):
        words += ["--database", shown]
    return words
