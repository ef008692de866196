"""Where the store is, from what users write after `--store` and `--database`."""

from pathlib import Path

from prefect_tune.flows.home import home
from prefect_tune.storage.opening import StoreAddress
from prefect_tune.tasks.bad_input import BadInput

__all__ = ["store_address"]

_BLOCK = "block:"


def store_address(store: str | None, database: str | None) -> StoreAddress:
    """Return where the store is, by default below `PREFECT_TUNE_HOME`.

    Raises:
        BadInput: If a Prefect block is named and cannot be loaded.
    """
    if store is not None and store.startswith(_BLOCK):
        return _address_in_block(store.removeprefix(_BLOCK))
    if store is None:
        store = str(home() / "store")
    elif "://" not in store:  # workers may have another working folder
        store = str(Path(store).expanduser().absolute())
    return StoreAddress(store, database or "")


def _address_in_block(name: str) -> StoreAddress:
    from prefect_tune.storage.blocks import ArtifactStoreBlock  # noqa: PLC0415 - only if named

    try:
        block = ArtifactStoreBlock.load(name)
    except ValueError as error:
        raise BadInput(str(error), option="store", value=f"{_BLOCK}{name}") from error
    assert isinstance(block, ArtifactStoreBlock)  # noqa: S101 - a coroutine only in async code
    return block.address
