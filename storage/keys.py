"""Keys, digests and record ids.

A key is a hash of the way an artifact was made, and a digest is a hash of bytes. Keys and content
digests also hash a tag, so that hashes of different kinds never collide. A record id is a path
inside `records/`. Artifacts are grouped by the first two digits of the key, so that no folder grows
too large.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from io import FileIO
from typing import Any

from blake3 import blake3

ARTIFACT_FORMAT = 1
"""Number of the artifact format, which is part of every key.

Raise this number if artifacts of earlier versions must no longer be used, for example after a
change of a codec. A change of a step needs no new number, because keys include its `code_digest`.
"""

_PIECE_BYTES = 1 << 16


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces, so that equal values give equal text.

    Raises ValueError for numbers that are not finite, and TypeError for values without a JSON form.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def prefix_key(lineage: Mapping[str, Any]) -> str:
    """Return the SHA-256 hash of an artifact's lineage (JSON values) as 64 hexadecimal digits."""
    tagged = f"prefect-tune prefix {ARTIFACT_FORMAT}\n{canonical_json(lineage)}"
    return hashlib.sha256(tagged.encode()).hexdigest()


def artifact_folder(key: str) -> str:
    """Return the folder of an artifact, relative to the store's root."""
    return f"cache/{key[:2]}/{key}"


def digest(data: bytes | memoryview) -> str:
    """Return the BLAKE3 hash of bytes as 64 hexadecimal digits."""
    return blake3(data).hexdigest()


def file_digest(file: FileIO) -> str:
    """Return the `digest` of a file, which is read in chunks."""
    hasher, piece = blake3(), memoryview(bytearray(_PIECE_BYTES))
    while n_read := file.readinto(piece):
        hasher.update(piece[:n_read])
    return hasher.hexdigest()


def content_digest(tag: str, parts: Iterable[bytes | memoryview]) -> str:
    """Return the BLAKE3 hash of a tag and a sequence of byte strings, as 64 hexadecimal digits.

    Sequences that split the same bytes differently have different hashes.
    """
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
    """Return the record id of a measured quantity of a model.

    `key` is the model's prefix key, and `quantity` is the digest that identifies the quantity.
    """
    return f"quantities/{key[:2]}/{key}/{quantity[:16]}"


def model_record(study: str) -> str:
    """Return the record id of a study's final model."""
    return f"models/{study}"


def champion_record(series: str, study: str, digest: str) -> str:
    """Return the record id of a champion's model. `digest` is the digest of the model."""
    return f"champions/{series}/{study}/{digest[:16]}"


def output_record(study: str, number: int) -> str:
    """Return the record id of a trial's printed output."""
    return f"output/{study}/{number}"
