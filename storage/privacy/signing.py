"""Signatures of pickles: who can write to a store's files must not thereby run code on workers.

Unpickling runs what the bytes say. The index holds the digest of every file, so changed files are
never read; but who can write to the index too could enter what they like. With a signing key each
pickle carries an HMAC-SHA256, and without the right one it is never loaded.
"""

import hmac
import os
from functools import cache

KEY_VARIABLE = "PREFECT_TUNE_SIGNING_KEY"
"""Environment variable of the key, for the flow and for every worker."""
KEY_BLOCK_VARIABLE = "PREFECT_TUNE_SIGNING_KEY_BLOCK"
"""Environment variable that names a Prefect secret block with the signing key."""


@cache
def signing_key() -> bytes | None:
    """Return the key of this process; None when pickles are not signed."""
    if key := os.environ.get(KEY_VARIABLE):
        return key.encode()
    if name := os.environ.get(KEY_BLOCK_VARIABLE):
        from prefect.blocks.system import Secret  # noqa: PLC0415 - only for who keeps it there

        block = Secret.load(name)
        assert isinstance(block, Secret)  # noqa: S101 - a coroutine only in async code
        return str(block.get()).encode()
    return None


def key_fingerprint() -> str:
    """Return a fingerprint that tells keys apart without revealing them; empty without a key."""
    key = signing_key()
    return sign(key, "fingerprint", b"") if key else ""


def sign(key: bytes, where: str, data: bytes | memoryview) -> str:
    """Return the HMAC-SHA256 of a file's bytes, 64 hexadecimal digits.

    Args:
        key: The signing key.
        where: Folder and name of the file: a signature does not hold for another artifact.
        data: The bytes.
    """
    signature = hmac.new(key, f"prefect-tune pickle\n{where}\n".encode(), "sha256")
    signature.update(data)
    return signature.hexdigest()
