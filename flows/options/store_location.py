"""Location of the store: the home folder, and the options `--store` and `--database`.

Prefect shows the parameters of a flow run to anyone who can see the run, so no parameter may
contain a password. The module is cheap to import.
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
    """Return `PREFECT_TUNE_HOME` or, if unset, a user data folder. May raise `BadInput`."""
    if named := os.environ.get("PREFECT_TUNE_HOME"):
        return Path(named).expanduser().resolve()
    if os.path.expanduser("~") == "~":  # noqa: PTH111 - pathlib raises
        remedy = "set PREFECT_TUNE_HOME to a folder for studies"
        raise BadInput("the user of this process has no home folder", remedy=remedy)
    return user_data_path("prefect-tune")


BLOCK = "block:"
"""Prefix of a `--store` that names a Prefect block."""
DATABASE_VARIABLE = "PREFECT_TUNE_DATABASE"
"""Environment variable of the flow's process that names the default database."""


def default_store() -> str:
    """Return the path of the default store."""
    return str(home() / "store")


def store_options(address: "StoreAddress") -> list[str]:
    """Return the command-line options that select a store; empty for the default store.

    Passwords are masked. A database URL with a password is omitted if it comes from the
    environment, because no command accepts passwords.
    """
    words = [] if address.url == default_store() else ["--store", masked(address.url)]
    shown = masked(address.database)
    is_secret = shown != address.database
    if shown and not (is_secret and address.database == os.environ.get(DATABASE_VARIABLE)):
        words += ["--database", shown]
    return words


def store_address(given: "str | os.PathLike[str] | None", database: str | None) -> "StoreAddress":
    """Return the address of a store, by default in `PREFECT_TUNE_HOME`.

    Raises `BadInput` if a named Prefect block cannot be loaded, or if a URL contains a password.
    """
    store = None if given is None else os.fspath(given)
    check_no_password("store", store)
    from prefect_tune.storage.database import without_password  # noqa: PLC0415 - heavy
    from prefect_tune.storage.opening import StoreAddress  # noqa: PLC0415 - heavy

    if database and (shown := without_password(database)) != database:
        raise BadInput(
            "Prefect would show the password in the URL with the run",
            option="database",
            value=shown,
            remedy=f"set {DATABASE_VARIABLE} to this URL instead, or store it in a block and use "
            "--store block:NAME",
        )
    if store is not None and store.startswith(BLOCK):
        from prefect_tune.storage.blocks import ArtifactStoreBlock  # noqa: PLC0415 - only if named

        try:
            block = ArtifactStoreBlock.load(store.removeprefix(BLOCK))
        except ValueError as error:
            raise BadInput(str(error), option="store", value=store) from error
        assert isinstance(block, ArtifactStoreBlock)  # noqa: S101 - a coroutine only in async code
        return block.address
    if store is None:
        store = default_store()
    elif "://" not in store:  # workers may run in another folder
        store = str(Path(os.path.expanduser(store)).absolute())  # noqa: PTH111 - as in home
    return StoreAddress(store, database or os.environ.get(DATABASE_VARIABLE, ""))


def existing_store(given: "str | os.PathLike[str] | None", database: str | None) -> "StoreAddress":
    """Return the address of a store; raise `BadInput` if the store does not exist."""
    from prefect_tune.storage.artifacts import ArtifactStore  # noqa: PLC0415 - heavy

    address = store_address(given, database)
    if not ArtifactStore.exists(address):
        raise BadInput(f"there is no store at {address.url}; the first study creates one")
    return address


def check_no_password(option: str, url: str | None) -> None:
    """Raise `BadInput` if the URL given for an option contains a password or key."""
    if url and has_password(url):
        raise BadInput(
            "Prefect would show the password in the URL with the run",
            option=option,
            value=url,
            remedy="set the password in the environment instead, as AWS_SECRET_ACCESS_KEY for "
            "s3:// or as FSSPEC_PROTOCOL_OPTION for any filesystem",
        )
