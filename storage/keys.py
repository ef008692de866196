"""Keys (how a thing was made), digests (its content) and record ids (its location).

Every hash begins with a tag, so hashes of different kinds never collide. Record ids are paths below
`records/`; the first two digits of a key form a folder, so no folder grows too large.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from io import FileIO
from typing import Any

from blake3 import blake3

ARTIFACT_FORMAT = 1
"""Number of the artifact format, part of every key.

Raise it if the same lineage must no longer find artifacts of earlier versions, for example after a
codec change. Our own steps enter lineages by `code_digest`.
"""

_PIECE_BYTES = 1 << 16


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


def champion_record(series: str, study: str, digest: str) -> str:
    """Return the record id of a champion's model, given the digest of the model."""
    return f"champions/{series}/{study}/{digest[:16]}"


def output_record(study: str, number: int) -> str:
    """Return the record id of a trial's printed output."""
    return f"output/{study}/{number}"
