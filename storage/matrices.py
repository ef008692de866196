"""Canonical form of matrices, vectors and frames, and their Parquet files.

Any Parquet reader can read the files. A dense matrix is one column `values` of fixed-size lists, a
sparse matrix has column `indices` and `values` per row, a vector is one plain column `values`, and
a frame has its own columns. The schema's metadata holds shape, type and origin.
"""

import json
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse

METADATA = b"prefect_tune"
_PIECE = 1_000_000


def canonical(value: Any) -> Any:
    """Return the canonical form of a value, the same for new and stored values.

    Arrays are read-only and in C order. Sparse matrices are CSR with sorted int32 indices and no
    explicit zeros. Frames have a plain range index, and columns other than numbers and times are
    categorical texts.
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
        columns = {str(name): _canonical_column(value[name]) for name in value.columns}
        return pd.DataFrame(columns, pd.RangeIndex(len(value) if columns else 0), copy=False)
    return value


def _canonical_column(column: pd.Series) -> NDArray[Any] | pd.Categorical:
    """Return a canonical column; a canonical one is not copied, because it may be long."""
    if _is_plain(column):
        values = np.ascontiguousarray(column.to_numpy()).view()
        values.flags.writeable = False
        return values
    if isinstance(column.dtype, pd.CategoricalDtype) and _has_sorted_categories(column):
        return column.array
    return _sorted_categorical(_texts(column))


def _is_plain(column: pd.Series) -> bool:
    return isinstance(column.dtype, np.dtype) and column.dtype.kind in "biufM"


def _has_sorted_categories(column: pd.Series) -> bool:
    categories, codes = column.cat.categories, column.cat.codes.to_numpy()
    names = categories.tolist()
    if categories.dtype != object or not all(type(name) is str for name in names):
        return False
    if not all(map(operator.lt, names, names[1:])):
        return False
    occurs = np.zeros(len(names) + 1, dtype=bool)  # the last entry is for gaps
    for start in range(0, len(codes), _PIECE):  # indexing converts each code to eight bytes
        occurs[codes[start : start + _PIECE]] = True
    return bool(occurs[:-1].all())


def matrix_layout(value: Any) -> str | None:
    """Return dense, vector, sparse or frame; None for other values."""
    if sparse.issparse(value):
        return "sparse"
    if isinstance(value, np.ndarray) and value.dtype != object and value.ndim in (1, 2):
        return "dense" if value.ndim == 2 else "vector"
    return "frame" if isinstance(value, pd.DataFrame) else None


def frozen_bytes(value: Any) -> int | None:
    """Return the number of bytes of a matrix with read-only arrays; None for other values."""
    if isinstance(value, np.ndarray):
        arrays = [value]
    elif sparse.issparse(value):
        arrays = [value.data, value.indices, value.indptr]
    else:
        return None
    return None if any(a.flags.writeable for a in arrays) else sum(a.nbytes for a in arrays)


def to_parquet(value: Any, layout: str, about: Mapping[str, Any]) -> memoryview:
    """Return a canonical matrix or frame, with its layout and origin, as a Parquet file's bytes."""
    match layout:
        case "dense":
            flat = pa.array(value.reshape(-1))
            table = pa.table({"values": pa.FixedSizeListArray.from_arrays(flat, value.shape[1])})
        case "vector":
            table = pa.table({"values": pa.array(value)})
        case "sparse":
            offsets = pa.array(value.indptr, pa.int32())
            indices = pa.ListArray.from_arrays(offsets, pa.array(value.indices, pa.int32()))
            values = pa.ListArray.from_arrays(offsets, pa.array(value.data))
            table = pa.table({"indices": indices, "values": values})
        case _:
            table = _frame_to_table(value)
    description: dict[str, Any] = {"layout": layout, "shape": list(value.shape), **about}
    if layout != "frame":
        description["dtype"] = str(value.dtype)
    return _write_parquet(table, description)


def from_parquet(layout: str, data: bytes | memoryview) -> Any:
    """Return the canonical value that `to_parquet` was given; ValueError for a bad layout."""
    table = pq.read_table(pa.BufferReader(data), use_threads=False)
    if layout == "frame":
        return _frame_from_table(table)
    description = json.loads(table.schema.metadata[METADATA])
    dtype = np.dtype(description["dtype"])
    values = table.column("values").combine_chunks()
    match layout:
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
    raise ValueError(f"unknown codec {layout!r}")


def _write_parquet(table: pa.Table, description: dict[str, Any]) -> memoryview:
    metadata = {**(table.schema.metadata or {}), METADATA: json.dumps(description).encode()}
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
        if _is_plain(column):
            columns[str(name)] = pa.array(column.to_numpy())
        else:
            columns[str(name)] = _texts(column)
    return pa.table(columns)


def _texts(column: pd.Series) -> pa.DictionaryArray:
    if isinstance(column.dtype, pd.CategoricalDtype | pd.StringDtype):
        # Each distinct value is converted once. In other columns, 1, 1.0 and True would be equal.
        positions, values = pd.factorize(column)
        texts = pa.array([str(value) for value in values], pa.string()).dictionary_encode()
        order = pa.array(positions, mask=positions < 0)
        return pa.DictionaryArray.from_arrays(texts.indices.take(order), texts.dictionary)
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
    """Return a categorical with sorted categories, because readers differ in their order."""
    texts = column.dictionary.to_pylist()
    order = sorted(range(len(texts)), key=texts.__getitem__)
    rank = np.full(len(texts) + 1, -1, dtype=np.int32)  # the last entry is for gaps
    rank[order] = np.arange(len(texts), dtype=np.int32)
    codes = rank[column.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)]
    categories = pd.Index([texts[i] for i in order], dtype=object)
    return pd.Categorical.from_codes(codes, categories=categories)
