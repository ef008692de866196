"""Keys say how a thing was made, digests what it contains, record ids where it lies.

All hashing is here. Every hash begins with a tag, so hashes of different kinds are never equal by
accident. Ids of records are paths below `records/`; keys stand below their first two digits there,
so no folder holds all of them.
"""

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from io import FileIO
from typing import Any

from blake3 import blake3

ARTIFACT_FORMAT = 1
"""Number of the format of artifacts; part of every key.

Raise it when the same lineage must no longer find what an earlier version wrote, as when a codec
writes other bytes. Steps of ours enter lineages by `code_digest`.
"""

_PIECE_BYTES = 1 << 16

_READS_TEXT = re.compile("__doc__|getdoc|getsource")
"""How code reads docstrings or sources, which then decide what it does."""


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces: equal values give equal text.

    Raises:
        ValueError: For numbers that are not finite, which JSON does not know.
        TypeError: For values that are not JSON's.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def prefix_key(lineage: Mapping[str, Any]) -> str:
    """Return the SHA-256 of all that made an artifact, 64 hexadecimal digits.

    Args:
        lineage: Data set, split, fold, subset and the steps up to this one, as JSON values.
    """
    tagged = f"prefect-tune prefix {ARTIFACT_FORMAT}\n{canonical_json(lineage)}"
    return hashlib.sha256(tagged.encode()).hexdigest()


def artifact_folder(key: str) -> str:
    """Return the folder of an artifact, below the store's root."""
    return f"cache/{key[:2]}/{key}"


def digest(data: bytes | memoryview) -> str:
    """Return the BLAKE3 of bytes, 64 hexadecimal digits."""
    return blake3(data).hexdigest()


def file_digest(file: FileIO) -> str:
    """Return the `digest` of the bytes of a file, read piece by piece."""
    hasher, piece = blake3(), memoryview(bytearray(_PIECE_BYTES))
    while n_read := file.readinto(piece):
        hasher.update(piece[:n_read])
    return hasher.hexdigest()


def content_digest(tag: str, parts: Iterable[bytes | memoryview]) -> str:
    """Return the BLAKE3 of a tagged sequence of byte strings; their boundaries count."""
    hasher = blake3(f"prefect-tune {tag}\n".encode())
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.hexdigest()


def code_digest(tag: str, texts: Iterable[str]) -> str:
    """Return the digest of Python sources by their meaning: comments, docstrings and layout aside.

    A text that Python cannot parse, or that reads docstrings or sources, counts as it is written.
    """
    return content_digest(tag, (_meaning(text).encode() for text in texts))


def parsed(text: str) -> ast.Module:
    """Return the syntax tree of a Python source, whatever other threads parse meanwhile.

    Before 3.11.8, Python may raise SystemError if two threads parse at once (gh-106905).
    """
    for _ in range(20):
        with suppress(SystemError):
            return ast.parse(text)
    return ast.parse(text)


def _meaning(text: str) -> str:
    if _READS_TEXT.search(text):
        return text
    try:
        return " ".join(_tokens(parsed(text)))
    except (SyntaxError, ValueError, RecursionError):
        return text


def _tokens(tree: ast.AST) -> Iterator[str]:
    """Yield a syntax tree without positions, empty fields and statements that do nothing.

    Versions of Python differ in the empty fields of a node, so `ast.dump` would differ as well. It
    needs no recursion, which would fail for long chains where the caller's stack is deep.
    """
    waiting: list[object] = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.AST):
            waiting.append(_Mark(")"))
            for name, value in reversed([*ast.iter_fields(part)]):
                if value is not None and value != []:
                    waiting += (value, _Mark(f"{name}="))
            yield f"{type(part).__name__}("
        elif isinstance(part, list):
            for item in reversed(part):
                if not _does_nothing(item):
                    waiting += (_Mark(","), item)
        else:
            yield part if isinstance(part, _Mark) else ascii(part)


class _Mark(str):
    """A text between the parts of a tree; not one of its strings."""

    __slots__ = ()


def _does_nothing(part: object) -> bool:
    """Return whether a part is a docstring, another string as a statement, or `pass`."""
    value = part.value if isinstance(part, ast.Expr) else None
    is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
    return is_text or isinstance(part, ast.Pass)


PREDICTIONS = "predictions/"
"""How the ids of held-out predictions begin."""


DATA = "data/"
"""How the ids of data sets begin."""


def dataset_record(digest: str) -> str:
    """Return the id of the record that holds a data set."""
    return f"{DATA}{digest}"


def split_record(digest: str) -> str:
    """Return the id of the record that holds a split."""
    return f"splits/{digest}"


def predictions_record(key: str) -> str:
    """Return the id of the record that holds the held-out predictions of a model."""
    return f"{PREDICTIONS}{key[:2]}/{key}"


def quantity_record(key: str, quantity: str) -> str:
    """Return the id of the record that holds a quantity measured of a model.

    Args:
        key: Prefix key of the model.
        quantity: Digest of the quantity.
    """
    return f"quantities/{key[:2]}/{key}/{quantity[:16]}"


def model_record(study: str) -> str:
    """Return the id of the record that holds a study's final model."""
    return f"models/{study}"


def output_record(study: str, number: int) -> str:
    """Return the id of the record that holds what a trial printed."""
    return f"output/{study}/{number}"
