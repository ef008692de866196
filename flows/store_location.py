"""Where the store is: our folder on a machine, and the options `--store` and `--database`.

Prefect shows parameters of a flow run to anyone who may see the run, so none has a password. Light
to import.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_data_path

from prefect_tune.storage.masking import has_password, masked
from prefect_tune.tasks.bad_input import BadInput

if TYPE_CHECKING:
    from prefect_tune.storage.opening import StoreAddress


def home() -> Path:
    """`PREFECT_TUNE_HOME`, or the user's data folder."""
    named = os.environ.get("PREFECT_TUNE_HOME")
    return Path(named).expanduser().resolve() if named else user_data_path("prefect-tune")


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


def store_address(store: str | None, database: str | None) -> "StoreAddress":
    """Return where the store is, by default below `PREFECT_TUNE_HOME`.

    Raises:
        BadInput: If a Prefect block is named and cannot be loaded, or a URL has a password in it.
    """
    check_no_password("store", store)
    from prefect_tune.storage.database import without_password  # noqa: PLC0415 - heavy
    from prefect_tune.storage.opening import StoreAddress  # noqa: PLC0415 - heavy

    if database and (shown := without_password(database)) != database:
        raise BadInput(
            "Prefect would show its password with the run",
            option="database",
            value=shown,
            remedy=f"set {DATABASE_VARIABLE} to this URL instead, or name a block that holds it "
            "with --store block:NAME",
        )
    if store is not None and store.startswith(BLOCK):
        return _address_in_block(store.removeprefix(BLOCK))
    if store is None:
        store = default_store()
    elif "://" not in store:  # workers may have another working folder
        store = str(Path(store).expanduser().absolute())
    return StoreAddress(store, database or os.environ.get(DATABASE_VARIABLE, ""))


def check_no_password(option: str, url: str | None) -> None:
    """Check that a URL names no password or key.

    Raises:
        BadInput: If it does.
    """
    if url and has_password(url):
        raise BadInput(
            "Prefect would show its password with the run",
            option=option,
            value=url,
            remedy="give it in the environment instead, as AWS_SECRET_ACCESS_KEY for s3:// or as "
            "FSSPEC_PROTOCOL_OPTION for any filesystem",
        )


def _address_in_block(name: str) -> "StoreAddress":
    from prefect_tune.storage.blocks import ArtifactStoreBlock  # noqa: PLC0415 - only if named

    try:
        block = ArtifactStoreBlock.load(name)
    except ValueError as error:
        raise BadInput(str(error), option="store", value=f"{BLOCK}{name}") from error
    assert isinstance(block, ArtifactStoreBlock)  # noqa: S101 - a coroutine only in async code
    return block.address
