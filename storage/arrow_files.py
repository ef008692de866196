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

from prefect_tune.storage.matrices import METADATA, metadata, sparse_columns, sparse_matrix


def to_arrow(value: Any, layout: str, about: Mapping[str, Any]) -> memoryview:
    """Return a canonical frame or vector, with its layout and origin, as an Arrow file's bytes."""
    about, compression = dict(about), "lz4" if layout == "sparse" else None
    if layout == "sparse":
        names, columns = ["indices", "values"], sparse_columns(value)
    elif layout == "frame":
        by_type: dict[str, list[int]] = {}
        for position, dtype in enumerate(value.dtypes):
            by_type.setdefault(str(dtype), []).append(position)
        about["order"] = order = [position for some in by_type.values() for position in some]
        names = [str(value.columns[position]) for position in order]
        columns = [_column(value.iloc[:, position]) for position in order]
    else:
        is_bool = value.dtype == np.bool_  # Arrow packs them as bits
        names, columns = ["values"], [_plain(value.view(np.uint8) if is_bool else value)]
    batch = pa.RecordBatch.from_arrays(columns, names)
    batch = batch.replace_schema_metadata(metadata(value, layout, about))
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)

    def write(sink: Any) -> None:
        with pa.ipc.new_file(sink, batch.schema, options=options) as writer:
            writer.write_batch(batch)

    write(counted := pa.MockOutputStream())
    made = pa.allocate_buffer(counted.size())  # a growing buffer would copy itself
    write(pa.FixedSizeBufferWriter(made))
    return memoryview(made).toreadonly()


def from_arrow(layout: str, data: bytes | memoryview) -> Any:
    """Return the value that `to_arrow` encoded, as views of the data; may raise ValueError."""
    data = memoryview(data).toreadonly()
    reader = pa.ipc.open_file(pa.py_buffer(data))
    description = json.loads(reader.schema.metadata[METADATA])
    columns = reader.get_batch(0).columns
    if layout == "sparse":
        return sparse_matrix(columns, description)
    if layout == "vector":
        return _matrix(columns, data, np.dtype(description["dtype"]))[0]
    if layout != "frame":
        raise ValueError(f"unknown codec {layout!r}")
    order, names = np.array(description["order"], dtype=np.intp), reader.schema.names
    blocks: list[tuple[Any, NDArray[np.intp]]] = []

    def block_of(i: int) -> object:  # equal for columns that share a block
        return i if pa.types.is_dictionary(columns[i].type) else columns[i].type

    for _, group in groupby(range(len(columns)), block_of):
        positions = list(group)
        blocks.append((_block([columns[i] for i in positions], data), order[positions]))
    in_order = [name for _, name in sorted(zip(order, names, strict=True))]
    index = pd.RangeIndex(description["shape"][0])
    return create_dataframe_from_blocks(blocks, index=index, columns=pd.Index(in_order))


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
