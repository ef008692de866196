"""The Prefect secret block that may hold the signing key."""

from prefect.blocks.system import Secret


def secret(name: str) -> str:
    """Return the value of a Prefect secret block.

    Raises:
        ValueError: If there is no such block.
    """
    block = Secret.load(name)
    assert isinstance(block, Secret)  # noqa: S101 - a coroutine only in async code
    return str(block.get())
