"""Values as bytes and back: matrices and frames as Parquet, documents as JSON, the rest as pickle.

Any Parquet reader reads the files. A dense matrix is one column `values` of fixed-size lists, a
sparse matrix has per row its column `indices` and `values`, a vector is one plain column `values`,
a frame has its own columns. The schema's metadata says shape and type, and all that made it.

A pickle is of protocol 5 with its large buffers beside it: a count, the length of each piece, then
the pieces, so that reading copies nothing.
"""

import json
import pickle
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

__all__ = ["Encoded", "canonical", "decode", "encode", "layout"]

_METADATA = b"prefect_tune"


@dataclass(frozen=True, slots=True)
class Encoded:
    """A value as bytes.

    Attributes:
        codec: Name of the rule that reads the bytes back.
        suffix: Ending of the file's name.
        data: The bytes.
    """

    codec: str
    suffix: str
    data: bytes | memoryview


def canonical(value: Any) -> Any:
    """The one form in which a value is handed on, whether it was just made or read back.

    Arrays are in C order and read-only; sparse matrices are CSR with sorted int32 indices and no
    explicit zeros; frames have a plain range index, and columns that are neither numbers nor times
    are categorical texts.
    """
    if sparse.issparse(value):
        matrix = sparse.csr_array(value)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        matrix.sort_indices()
        parts = (
            np.ascontiguousarray(matrix.data),
            matrix.indices.astype(np.int32),
            matrix.indptr.astype(np.int32),
        )
        frozen = sparse.csr_array(parts, shape=matrix.shape)
        for part in (frozen.data, frozen.indices, frozen.indptr):
            part.flags.writeable = False
        return frozen
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value)
        if array is value and array.flags.writeable:
            array = array.view()
        array.flags.writeable = False
        return array
    if isinstance(value, pd.DataFrame):
        return _frame_from_table(_frame_to_table(value))
    return value


def layout(value: Any) -> str:
    """How a value is laid out: dense, vector, sparse, frame, json or pickle; its codec's name."""
    if sparse.issparse(value):
        return "sparse"
    if isinstance(value, np.ndarray) and value.dtype != object and value.ndim in (1, 2):
        return "dense" if value.ndim == 2 else "vector"
    if isinstance(value, pd.DataFrame):
        return "frame"
    return "json" if _is_document(value) else "pickle"


def encode(value: Any, about: Mapping[str, Any] = MappingProxyType({})) -> Encoded:
    """A value as bytes.

    Args:
        value: The value; matrices and frames must be canonical.
        about: What made it, as JSON values, for the metadata of a Parquet file.
    """
    codec = layout(value)
    match codec:
        case "dense":
            flat = pa.array(value.reshape(-1))
            column = pa.FixedSizeListArray.from_arrays(flat, value.shape[1])
            table = pa.table({"values": column})
        case "vector":
            table = pa.table({"values": pa.array(value)})
        case "sparse":
            offsets = pa.array(value.indptr, pa.int32())
            indices = pa.ListArray.from_arrays(offsets, pa.array(value.indices, pa.int32()))
            values = pa.ListArray.from_arrays(offsets, pa.array(value.data))
            table = pa.table({"indices": indices, "values": values})
        case "frame":
            table = _frame_to_table(value)
        case "json":
            return Encoded(codec, ".json", json.dumps(value, allow_nan=False).encode())
        case _:
            return Encoded(codec, ".pkl", _pickled(value))
    description: dict[str, Any] = {"layout": codec, "shape": list(value.shape), **about}
    if codec != "frame":
        description["dtype"] = str(value.dtype)
    return Encoded(codec, ".parquet", _write_parquet(table, description))


def decode(codec: str, data: bytes | memoryview) -> Any:
    """The value that `encode` was given, in canonical form.

    Unpickles when the codec says so: check the digest of the bytes before.

    Raises:
        ValueError: If no codec bears that name.
    """
    if codec == "pickle":
        return _unpickled(memoryview(data))
    if codec == "json":
        return json.loads(bytes(data))
    table = pq.read_table(pa.BufferReader(data), use_threads=False)
    if codec == "frame":
        return _frame_from_table(table)
    description = json.loads(table.schema.metadata[_METADATA])
    dtype = np.dtype(description["dtype"])
    values = table.column("values").combine_chunks()
    match codec:
        case "vector":
            return _read_only(values, dtype)
        case "dense":
            return _read_only(values.flatten(), dtype).reshape(description["shape"])
        case "sparse":
            indices = table.column("indices").combine_chunks()
            matrix = sparse.csr_array(
                (
                    _read_only(values.flatten(), dtype),
                    _read_only(indices.flatten(), np.dtype(np.int32)),
                    _read_only(indices.offsets, np.dtype(np.int32)),
                ),
                shape=tuple(description["shape"]),
            )
            matrix.has_sorted_indices = True
            return matrix
    raise ValueError(f"no codec is called {codec!r}")


def _is_document(value: Any) -> bool:
    """Whether JSON gives the value back as it is."""
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is_document(v) for k, v in value.items())
    if isinstance(value, list):
        return all(map(_is_document, value))
    return (
        value is None
        or type(value) in {str, int, bool}
        or (type(value) is float and np.isfinite(value))
    )


def _pickled(value: Any) -> bytes:
    buffers: list[pickle.PickleBuffer] = []
    stem = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    pieces = [memoryview(stem), *(buffer.raw() for buffer in buffers)]
    lengths = [len(piece) for piece in pieces]
    return b"".join([struct.pack(f"<{1 + len(pieces)}Q", len(pieces), *lengths), *pieces])


def _unpickled(data: memoryview) -> Any:
    (count,) = struct.unpack_from("<Q", data)
    lengths = struct.unpack_from(f"<{count}Q", data, 8)
    pieces, start = [], 8 * (1 + count)
    for length in lengths:
        pieces.append(data[start : start + length])
        start += length
    return pickle.loads(pieces[0], buffers=pieces[1:])


def _write_parquet(table: pa.Table, description: dict[str, Any]) -> memoryview:
    metadata = {**(table.schema.metadata or {}), _METADATA: json.dumps(description).encode()}
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata(metadata),
        sink,
        compression="lz4",
        use_dictionary=[
            n for n in table.column_names if pa.types.is_dictionary(table.field(n).type)
        ],
        write_statistics=False,
        row_group_size=max(table.num_rows, 1),
    )
    return memoryview(sink.getvalue())


def _read_only(array: pa.Array, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    values: np.ndarray[Any, Any] = array.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
    values.flags.writeable = False
    return values


def _frame_to_table(frame: pd.DataFrame) -> pa.Table:
    columns: dict[str, pa.Array] = {}
    for name in frame.columns:
        column = frame[name]
        if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biufM":
            columns[str(name)] = pa.array(column.to_numpy())
        else:
            columns[str(name)] = _texts(column)
    return pa.table(columns)


def _texts(column: pd.Series) -> pa.DictionaryArray:
    """A column as texts; what is the same text comes once, in the order of appearance."""
    if isinstance(column.dtype, pd.CategoricalDtype | pd.StringDtype):
        # Each different value is made a text once. Of other columns 1, 1.0 and True would be one.
        positions, values = pd.factorize(column)
        texts = pa.array([str(value) for value in values], pa.string()).dictionary_encode()
        place = pa.array(positions, mask=positions < 0)
        return pa.DictionaryArray.from_arrays(texts.indices.take(place), texts.dictionary)
    every = [None if pd.isna(text) else str(text) for text in column]
    return pa.array(every, pa.string()).dictionary_encode()


def _frame_from_table(table: pa.Table) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = table.column(name).unify_dictionaries().combine_chunks()
        if pa.types.is_dictionary(column.type):
            columns[name] = _sorted_categorical(column)
        else:
            columns[name] = column.to_numpy(zero_copy_only=False)
    return pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows), copy=False)


def _sorted_categorical(column: pa.DictionaryArray) -> pd.Categorical:
    """Readers differ in the order of a dictionary; ours is that of the texts."""
    texts = column.dictionary.to_pylist()
    order = sorted(range(len(texts)), key=texts.__getitem__)
    rank = np.full(len(texts) + 1, -1, dtype=np.int32)  # the last place stands for a gap
    rank[order] = np.arange(len(texts), dtype=np.int32)
    codes = rank[column.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)]
    categories = pd.Index([texts[i] for i in order], dtype=object)
    return pd.Categorical.from_codes(codes, categories=categories)
