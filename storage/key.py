"""Keys (how a thing was made), digests (its content) and record ids (its location).

Every hash begins with a tag, so hashes of different kinds never collide. Record ids are paths below
`records/`; the first two digits of a key form a folder, so no folder grows too large.
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
"""Number of the artifact format, part of every key.

Raise it if the same lineage must no longer find artifacts of earlier versions, for example after a
codec change. Our own steps enter lineages by `code_digest`.
"""

_PIECE_BYTES = 1 << 16

_READS_TEXT = re.compile("__doc__|getdoc|getsource")
"""Ways for code to read docstrings or sources, which then affect results."""


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces: equal values give equal text.

    Raises ValueError for numbers that are not finite, and TypeError for values that JSON lacks.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def prefix_key(lineage: Mapping[str, Any]) -> str:
    """Return the SHA-256 of an artifact's lineage (JSON values), 64 hexadecimal digits."""
    tagged = f"prefect-tune prefix {ARTIFACT_FORMAT}\n{canonical_json(lineage)}"
    return hashlib.sha256(tagged.encode()).hexdigest()


def artifact_folder(key: str) -> str:
    """Return the folder of an artifact, below the store's root."""
    return f"cache/{key[:2]}/{key}"


def digest(data: bytes | memoryview) -> str:
    """Return the BLAKE3 of bytes, 64 hexadecimal digits."""
    return blake3(data).hexdigest()


def file_digest(file: FileIO) -> str:
    """Return the `digest` of a file, read in pieces."""
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
    """Return the digest of Python sources without comments, docstrings and layout.

    A text that Python cannot parse, or that reads docstrings or sources, is hashed unchanged.
    """
    return content_digest(tag, (_meaning(text).encode() for text in texts))


def parsed(text: str) -> ast.Module:
    """Return the syntax tree of a Python source, one thread at a time.

    Before 3.11.8, parsing in two threads at once may raise SystemError (gh-106905).
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

    Unlike `ast.dump`, the result is the same for all versions of Python, and needs no recursion.
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
    """A separator between parts of a tree, distinct from the strings in the tree."""

    __slots__ = ()


def _does_nothing(part: object) -> bool:
    value = part.value if isinstance(part, ast.Expr) else None
    is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
    return is_text or isinstance(part, ast.Pass)


PREDICTIONS = "predictions/"
"""Prefix of the ids of held-out predictions."""


DATA = "data/"
"""Prefix of the ids of data sets."""


def dataset_record(digest: str) -> str:
    """Return the record id of a data set."""
    return f"{DATA}{digest}"


def split_record(digest: str) -> str:
    """Return the record id of a split."""
    return f"splits/{digest}"


def predictions_record(key: str) -> str:
    """Return the record id of a model's held-out predictions."""
    return f"{PREDICTIONS}{key[:2]}/{key}"


def quantity_record(key: str, quantity: str) -> str:
    """Return the record id of a measured quantity, given by its digest, of a model."""
    return f"quantities/{key[:2]}/{key}/{quantity[:16]}"


def model_record(study: str) -> str:
    """Return the record id of a study's final model."""
    return f"models/{study}"


ARTIFACTS = "artifacts"
"""Name, in the description of a final model, of the keys of the artifacts behind it."""


def champion_record(series: str, study: str, digest: str) -> str:
    """Return the record id of a champion's model, given the digest of the model."""
    return f"champions/{series}/{study}/{digest[:16]}"


def output_record(study: str, number: int) -> str:
    """Return the record id of a trial's printed output."""
    return f"output/{study}/{number}"
