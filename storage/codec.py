"""Encoding of values: matrices and frames as Parquet, documents as JSON, the rest as pickle.

With `mappable`, frames and vectors become uncompressed Arrow files, which can be memory-mapped, and
sparse matrices become compressed Arrow files, which are faster to read than Parquet.

A pickle uses protocol 5 with out-of-band buffers. The file holds the number of buffers, their
lengths, and the buffers, so that readers need no copy. Values that pickle refuses, such as an
estimator with a lambda in an attribute, are written by cloudpickle and read like other pickles.

Unpickling executes code, so write access to a store's files must not suffice to run code on
workers. The index holds the digest of every file, and changed files are never read. To stop
attackers who can write to the index, a signing key adds an HMAC-SHA256 to each pickle.
"""

import hmac
import json
import math
import os
import pickle
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any


class NotPicklable(ValueError):  # noqa: N818 - the name states the fault
    """Neither pickle nor cloudpickle can write a value. The message gives the reason."""


_ARROW = "arrow-"
"""Prefix of the codecs for Arrow files."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A value as bytes, with the name of the codec that decodes the bytes, and the file suffix."""

    codec: str
    suffix: str
    data: bytes | memoryview


def layout(value: Any) -> str:
    """Return the name of a value's codec: dense, vector, sparse, frame, json or pickle."""
    from prefect_tune.storage.matrices import matrix_layout

    return matrix_layout(value) or ("json" if _is_document(value) else "pickle")


def is_mapped(codec: str) -> bool:
    """Return whether values of a codec are memory-mapped rather than copied."""
    return codec.startswith(_ARROW)


def encode(
    value: Any, about: Mapping[str, Any] = MappingProxyType({}), *, mappable: bool = False
) -> Encoded:
    """Return a value as bytes. Matrices and frames must be in canonical form.

    Args:
        value: The value to encode.
        about: Origin of the value, as JSON values for the metadata of Parquet and Arrow files.
        mappable: Whether to write frames, vectors and sparse matrices as Arrow files, so that
            frames and vectors can be memory-mapped, and sparse matrices are read faster.

    Raises:
        NotPicklable: If no codec can encode the value.
    """
    from prefect_tune.storage.matrices import to_parquet

    codec = layout(value)
    if codec == "json":
        return Encoded(codec, ".json", json.dumps(value, allow_nan=False).encode())
    if codec == "pickle":
        buffers: list[pickle.PickleBuffer] = []
        try:
            stem = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        except Exception:  # any class: objects define their own reduction
            import cloudpickle

            buffers.clear()
            try:  # functions by value
                stem = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}".split("\n", 1)[0]
                raise NotPicklable(f"{type(value).__name__} cannot be pickled: {reason}") from error
        pieces = [memoryview(stem), *(buffer.raw() for buffer in buffers)]
        head = struct.pack(f"<{1 + len(pieces)}Q", len(pieces), *map(len, pieces))
        return Encoded(codec, ".pkl", b"".join([head, *pieces]))
    if mappable and codec in ("frame", "vector", "sparse"):
        from prefect_tune.storage.matrices import to_arrow

        return Encoded(_ARROW + codec, ".arrow", to_arrow(value, codec, about))
    return Encoded(codec, ".parquet", to_parquet(value, codec, about))


def decode(codec: str, data: bytes | memoryview) -> Any:
    """Return the value that `encode` encoded; raises ValueError for an unknown codec.

    Callers must check the digest of `data` first, because `decode` may unpickle the data.
    """
    if codec == "pickle":
        data = memoryview(data)
        (count,) = struct.unpack_from("<Q", data)
        pieces, start = [], 8 * (1 + count)
        for length in struct.unpack_from(f"<{count}Q", data, 8):
            pieces.append(data[start : start + length])
            start += length
        return pickle.loads(pieces[0], buffers=pieces[1:])
    if codec == "json":
        return json.loads(bytes(data))
    if is_mapped(codec):
        from prefect_tune.storage.matrices import from_arrow

        return from_arrow(codec.removeprefix(_ARROW), data)
    from prefect_tune.storage.matrices import from_parquet

    return from_parquet(codec, data)


def _is_document(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is_document(v) for k, v in value.items())
    if isinstance(value, list):
        return all(map(_is_document, value))
    return (
        value is None
        or type(value) in {str, int, bool}
        or (type(value) is float and math.isfinite(value))
    )


KEY_VARIABLE = "PREFECT_TUNE_SIGNING_KEY"
"""Environment variable with the signing key, for the flow and every worker."""
KEY_BLOCK_VARIABLE = "PREFECT_TUNE_SIGNING_KEY_BLOCK"
"""Environment variable with the name of the Prefect secret block that holds the signing key."""


@cache
def signing_key() -> bytes | None:
    """Return the key by which this process signs pickles; None if pickles are not signed."""
    if key := os.environ.get(KEY_VARIABLE):
        return key.encode()
    if name := os.environ.get(KEY_BLOCK_VARIABLE):
        from prefect.blocks.system import Secret  # imported only if a block holds the key

        block = Secret.load(name)
        assert isinstance(block, Secret)  # noqa: S101 - a coroutine only in async code
        return str(block.get()).encode()
    return None


def key_fingerprint() -> str:
    """Return a fingerprint that identifies the signing key; empty if no key is set."""
    key = signing_key()
    return sign(key, "fingerprint", b"") if key else ""


def sign(key: bytes, where: str, data: bytes | memoryview) -> str:
    """Return the HMAC-SHA256 of a file's bytes as 64 hexadecimal digits.

    `where` is the folder and name of the file, so that a signature is valid for one file only.
    """
    signature = hmac.new(key, f"prefect-tune pickle\n{where}\n".encode(), "sha256")
    signature.update(data)
    return signature.hexdigest()
