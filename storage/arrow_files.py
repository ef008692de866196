"""Frames and vectors as uncompressed Arrow files, which processes read in place from a memory map.

Sparse matrices are compressed Arrow files, which are read ten times as fast as Parquet.

Columns of one type are adjacent, so that pandas gets them as one matrix without copying. A
categorical column is stored as codes (-1 for a gap) and a list of its distinct texts. The schema's
metadata holds shape, type and column order.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pandas.api.internals import create_dataframe_from_blocks
from scipy import sparse

from prefect_tune.storage.matrices import METADATA


def to_arrow(value: Any, layout: str, about: Mapping[str, Any]) -> memoryview:
    """Return a canonical frame or vector, with its layout and origin, as an Arrow file's bytes."""
    description: dict[str, Any] = {"layout": layout, "shape": list(value.shape), **about}
    compression = "lz4" if layout == "sparse" else None
    if layout == "sparse":
        description["dtype"] = str(value.dtype)
        names = ["indices", "values"]
        columns = [_lists(value, value.indices), _lists(value, value.data)]
    elif layout == "frame":
        description["order"] = order = _file_order(value)
        names = [str(value.columns[position]) for position in order]
        columns = [_column(value.iloc[:, position]) for position in order]
    else:
        description["dtype"] = str(value.dtype)
        is_bool = value.dtype == np.bool_  # Arrow packs them as bits
        names, columns = ["values"], [_plain(value.view(np.uint8) if is_bool else value)]
    batch = pa.RecordBatch.from_arrays(columns, names)
    batch = batch.replace_schema_metadata({METADATA: json.dumps(description).encode()})
    counted = pa.MockOutputStream()
    _write(counted, batch, compression)
    made = pa.allocate_buffer(counted.size())  # a growing buffer would copy itself
    _write(pa.FixedSizeBufferWriter(made), batch, compression)
    return memoryview(made).toreadonly()


def _write(sink: Any, batch: pa.RecordBatch, compression: str | None) -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_file(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)


def _lists(matrix: Any, values: NDArray[Any]) -> pa.Array:
    """Return the indices or the data of a sparse matrix, row by row."""
    return pa.ListArray.from_arrays(pa.array(matrix.indptr), pa.array(values))


def from_arrow(layout: str, data: bytes | memoryview) -> Any:
    """Return the value that `to_arrow` encoded, as views of the data; may raise ValueError."""
    data = memoryview(data).toreadonly()
    reader = pa.ipc.open_file(pa.py_buffer(data))
    description = json.loads(reader.schema.metadata[METADATA])
    columns = reader.get_batch(0).columns
    if layout == "sparse":
        return _sparse(columns, description)
    if layout == "vector":
        return _matrix(columns, data, np.dtype(description["dtype"]))[0]
    if layout != "frame":
        raise ValueError(f"unknown codec {layout!r}")
    order, names = np.array(description["order"], dtype=np.intp), reader.schema.names
    blocks: list[tuple[Any, NDArray[np.intp]]] = []
    for _, group in groupby(range(len(columns)), lambda i: _block_of(columns[i], i)):
        positions = list(group)
        blocks.append((_block([columns[i] for i in positions], data), order[positions]))
    in_order = [name for _, name in sorted(zip(order, names, strict=True))]
    index = pd.RangeIndex(description["shape"][0])
    return create_dataframe_from_blocks(blocks, index=index, columns=pd.Index(in_order))


def _sparse(columns: Sequence[pa.Array], description: Mapping[str, Any]) -> sparse.csr_array:
    indices, data = (column.flatten().to_numpy() for column in columns)
    data = data.astype(description["dtype"], copy=False)
    parts = data, indices, columns[0].offsets.to_numpy()
    for part in parts:
        part.flags.writeable = False
    matrix = sparse.csr_array(parts, shape=tuple(description["shape"]))
    matrix.has_canonical_format = True
    return matrix


def _file_order(frame: pd.DataFrame) -> list[int]:
    by_type: dict[str, list[int]] = {}
    for position, dtype in enumerate(frame.dtypes):
        by_type.setdefault(str(dtype), []).append(position)
    return [position for positions in by_type.values() for position in positions]


def _column(column: pd.Series) -> pa.Array:
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy()
        texts = pa.array(list(column.cat.categories), pa.string())
        return pa.DictionaryArray.from_arrays(_plain(codes, codes < 0), texts, safe=False)
    values = column.to_numpy()
    if values.dtype == np.bool_:
        return pa.array(values)
    return _plain(values, np.isnat(values) if values.dtype.kind == "M" else None)


def _plain(values: NDArray[Any], is_gap: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return an array with exactly the bytes of the values, gaps included."""
    has_gap = is_gap is not None and is_gap.any()
    validity = pa.array(~is_gap).buffers()[1] if is_gap is not None and has_gap else None
    raw = pa.py_buffer(np.ascontiguousarray(values).view(np.uint8))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [validity, raw])


def _block_of(column: pa.Array, position: int) -> object:
    """Return a grouping value: equal for columns that share a block."""
    return position if pa.types.is_dictionary(column.type) else column.type


def _block(columns: Sequence[pa.Array], data: memoryview) -> Any:
    """Return columns of one type as a pandas block: shape (columns, n), or a categorical."""
    first = columns[0]
    if pa.types.is_dictionary(first.type):
        (codes,) = _matrix([first.indices], data)
        dtype = pd.CategoricalDtype(pd.Index(first.dictionary.to_pylist(), dtype=object))
        return pd.Categorical.from_codes(codes, dtype=dtype, validate=False)
    if pa.types.is_boolean(first.type):
        return np.array([column.to_numpy(zero_copy_only=False) for column in columns])
    return _matrix(columns, data)


def _matrix(
    columns: Sequence[pa.Array], data: memoryview, dtype: np.dtype[Any] | None = None
) -> NDArray[Any]:
    """Return columns of one type as a read-only view of the file, shape (columns, n)."""
    if dtype is None:
        dtype = np.dtype(columns[0].type.to_pandas_dtype())
    n = len(columns[0])
    if n == 0:
        return np.empty((len(columns), 0), dtype)
    start = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    places = [column.buffers()[1].address - start for column in columns]
    steps = {after - before for before, after in pairwise(places)}
    if len(steps) > 1:  # validity bitmaps of columns with gaps lie between the values
        views = [_matrix([column], data, dtype) for column in columns]
        return np.concatenate(views)
    strides = (steps.pop() if steps else n * dtype.itemsize, dtype.itemsize)
    shape = (len(columns), n)
    return np.ndarray(shape, dtype, buffer=data, offset=places[0], strides=strides)
