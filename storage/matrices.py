"""Canonical form of matrices, vectors and data frames, and their Parquet and Arrow files.

Any Parquet reader can read the files. A dense matrix is one column `values` of fixed-size lists. A
sparse matrix has two columns, `indices` and `values`, with one list per row. A vector is one plain
column `values`. A frame is stored with its own columns. The metadata of the schema holds shape,
type and origin.

Frames and vectors can also be stored as uncompressed Arrow files, which processes memory-map
instead of copying. In an Arrow file, columns of the same type are adjacent, so that pandas can use
them as one matrix without copying. A categorical column is stored as codes (-1 for a missing value)
and a list of its distinct strings. Sparse matrices can be stored as compressed Arrow files, which
are read ten times as fast as Parquet files.
"""

import json
import operator
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pandas.api.internals import create_dataframe_from_blocks
from scipy import sparse

METADATA = b"prefect_tune"
"""Key of the description of a value in the metadata of Parquet and Arrow files."""


def canonical(value: Any) -> Any:
    """Return the canonical form of a value, which is the same for new and stored values.

    Arrays are read-only and in C order. Sparse matrices are CSR with sorted int32 indices and no
    explicit zeros. Frames have a range index, and columns other than numbers and times are
    categorical strings. Other values are returned unchanged.
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
        columns: dict[str, NDArray[Any] | pd.Categorical] = {}
        for name, column in value.items():  # canonical columns may be long and stay uncopied
            if _is_plain(column):
                values = np.ascontiguousarray(column.to_numpy()).view()
                values.flags.writeable = False
                columns[str(name)] = values
            elif isinstance(column.dtype, pd.CategoricalDtype) and _has_sorted_categories(column):
                columns[str(name)] = column.array
            else:
                columns[str(name)] = _sorted_categorical(_texts(column))
        return pd.DataFrame(columns, pd.RangeIndex(len(value) if columns else 0), copy=False)
    return value


def _is_plain(column: pd.Series) -> bool:
    return isinstance(column.dtype, np.dtype) and column.dtype.kind in "biufM"


def _has_sorted_categories(column: pd.Series) -> bool:
    categories, codes = column.cat.categories, column.cat.codes.to_numpy()
    names = categories.tolist()
    if categories.dtype != object or not all(type(name) is str for name in names):
        return False
    if not all(map(operator.lt, names, names[1:])):
        return False
    return set(range(len(names))) <= set(pd.unique(codes).tolist())


def matrix_layout(value: Any) -> str | None:
    """Return the layout of a matrix: dense, vector, sparse or frame; None for other values."""
    if sparse.issparse(value):
        return "sparse"
    if isinstance(value, np.ndarray) and value.dtype != object and value.ndim in (1, 2):
        return "dense" if value.ndim == 2 else "vector"
    return "frame" if isinstance(value, pd.DataFrame) else None


def frozen_bytes(value: Any) -> int | None:
    """Return the number of bytes of a read-only array or sparse matrix; None for other values."""
    if isinstance(value, np.ndarray):
        arrays = [value]
    elif sparse.issparse(value):
        arrays = [value.data, value.indices, value.indptr]
    else:
        return None
    return None if any(a.flags.writeable for a in arrays) else sum(a.nbytes for a in arrays)


def to_parquet(value: Any, layout: str, about: Mapping[str, Any]) -> memoryview:
    """Return the bytes of a Parquet file that holds a canonical matrix or frame.

    `layout` comes from `matrix_layout`, and `about` is the value's origin, as JSON values.
    """
    match layout:
        case "dense":
            flat = pa.array(value.reshape(-1))
            table = pa.table({"values": pa.FixedSizeListArray.from_arrays(flat, value.shape[1])})
        case "vector":
            table = pa.table({"values": pa.array(value)})
        case "sparse":
            table = pa.table(dict(zip(("indices", "values"), _sparse_columns(value), strict=True)))
        case _:
            columns = {
                str(name): pa.array(column.to_numpy()) if _is_plain(column) else _texts(column)
                for name, column in value.items()
            }
            table = pa.table(columns)
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata(_metadata(value, layout, about)),
        sink,
        compression="lz4",
        use_dictionary=[f.name for f in table.schema if pa.types.is_dictionary(f.type)],
        write_statistics=False,
        row_group_size=max(table.num_rows, 1),
    )
    return memoryview(sink.getvalue())


def _metadata(value: Any, layout: str, about: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Return the metadata of a file that holds a value: layout, shape, type and origin."""
    description = {"layout": layout, "shape": list(value.shape), **about}
    if layout != "frame":
        description["dtype"] = str(value.dtype)
    return {METADATA: json.dumps(description).encode()}


def _sparse_columns(matrix: Any) -> list[pa.Array]:
    """Return the indices and the values of a sparse matrix, as two columns of lists."""
    offsets = pa.array(matrix.indptr, pa.int32())
    indices, values = pa.array(matrix.indices, pa.int32()), pa.array(matrix.data)
    return [pa.ListArray.from_arrays(offsets, part) for part in (indices, values)]


def _sparse_matrix(
    columns: Sequence[pa.ListArray], description: Mapping[str, Any]
) -> sparse.csr_array:
    """Return the canonical sparse matrix that `_sparse_columns` has split into `columns`."""
    indices, values = columns
    parts = (
        _read_only(values.flatten(), np.dtype(description["dtype"])),
        _read_only(indices.flatten(), np.dtype(np.int32)),
        _read_only(indices.offsets, np.dtype(np.int32)),
    )
    matrix = sparse.csr_array(parts, shape=tuple(description["shape"]))
    matrix.has_canonical_format = True
    return matrix


def from_parquet(layout: str, data: bytes | memoryview) -> Any:
    """Return the canonical value that `to_parquet` encoded; raises ValueError for a bad layout."""
    table = pq.read_table(pa.BufferReader(data), use_threads=False)
    if layout == "frame":
        frame: dict[str, Any] = {}
        for name in table.column_names:
            column = table.column(name).unify_dictionaries().combine_chunks()
            is_text = pa.types.is_dictionary(column.type)
            plain = None if is_text else column.to_numpy(zero_copy_only=False)
            frame[name] = _sorted_categorical(column) if is_text else plain
        return pd.DataFrame(frame, index=pd.RangeIndex(table.num_rows), copy=False)
    description = json.loads(table.schema.metadata[METADATA])
    columns = [column.combine_chunks() for column in table.columns]
    match layout:
        case "vector":
            return _read_only(columns[0], np.dtype(description["dtype"]))
        case "dense":
            flat = _read_only(columns[0].flatten(), np.dtype(description["dtype"]))
            return flat.reshape(description["shape"])
        case "sparse":
            return _sparse_matrix(columns, description)
    raise ValueError(f"unknown codec {layout!r}")


def _read_only(array: pa.Array, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    values: np.ndarray[Any, Any] = array.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
    values.flags.writeable = False
    return values


def _texts(column: pd.Series) -> pa.DictionaryArray:
    if isinstance(column.dtype, pd.CategoricalDtype | pd.StringDtype):
        # Each distinct value is converted once. In other columns, 1, 1.0 and True would be equal.
        positions, values = pd.factorize(column)
        texts = pa.array([str(value) for value in values], pa.string()).dictionary_encode()
        order = pa.array(positions, mask=positions < 0)
        return pa.DictionaryArray.from_arrays(texts.indices.take(order), texts.dictionary)
    every = [None if pd.isna(text) else str(text) for text in column]
    return pa.array(every, pa.string()).dictionary_encode()


def _sorted_categorical(column: pa.DictionaryArray) -> pd.Categorical:
    """Return a categorical with sorted categories, because Parquet does not keep their order."""
    texts = column.dictionary.to_pylist()
    order = sorted(range(len(texts)), key=texts.__getitem__)
    rank = np.full(len(texts) + 1, -1, dtype=np.int32)  # the last entry is for missing values
    rank[order] = np.arange(len(texts), dtype=np.int32)
    codes = rank[column.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)]
    categories = pd.Index([texts[i] for i in order], dtype=object)
    return pd.Categorical.from_codes(codes, categories=categories)


def to_arrow(value: Any, layout: str, about: Mapping[str, Any]) -> memoryview:
    """Return the bytes of an Arrow file that holds a canonical frame, vector or sparse matrix.

    `layout` comes from `matrix_layout`, and `about` is the value's origin, as JSON values.
    """
    about, compression = dict(about), "lz4" if layout == "sparse" else None
    if layout == "sparse":
        names, columns = ["indices", "values"], _sparse_columns(value)
    elif layout == "frame":
        by_type: dict[str, list[int]] = {}
        for position, dtype in enumerate(value.dtypes):
            by_type.setdefault(str(dtype), []).append(position)
        about["order"] = order = [position for some in by_type.values() for position in some]
        names = [str(value.columns[position]) for position in order]
        columns = [_arrow_column(value.iloc[:, position]) for position in order]
    else:
        is_bool = value.dtype == np.bool_  # Arrow would pack booleans as bits
        names, columns = ["values"], [_plain(value.view(np.uint8) if is_bool else value)]
    batch = pa.RecordBatch.from_arrays(columns, names)
    batch = batch.replace_schema_metadata(_metadata(value, layout, about))
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)

    def write(sink: Any) -> None:
        with pa.ipc.new_file(sink, batch.schema, options=options) as writer:
            writer.write_batch(batch)

    write(counted := pa.MockOutputStream())
    made = pa.allocate_buffer(counted.size())  # a growing buffer would be copied
    write(pa.FixedSizeBufferWriter(made))
    return memoryview(made).toreadonly()


def from_arrow(layout: str, data: bytes | memoryview) -> Any:
    """Return the value that `to_arrow` encoded. Frames and vectors are views of `data`.

    Raises ValueError for an unknown layout.
    """
    data = memoryview(data).toreadonly()
    reader = pa.ipc.open_file(pa.py_buffer(data))
    description = json.loads(reader.schema.metadata[METADATA])
    columns = reader.get_batch(0).columns
    if layout == "sparse":
        return _sparse_matrix(columns, description)
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
        of_type, first = [columns[i] for i in positions], columns[positions[0]]
        block: Any
        if pa.types.is_dictionary(first.type):
            (codes,) = _matrix([first.indices], data)
            dtype = pd.CategoricalDtype(pd.Index(first.dictionary.to_pylist(), dtype=object))
            block = pd.Categorical.from_codes(codes, dtype=dtype, validate=False)
        elif pa.types.is_boolean(first.type):
            block = np.array([column.to_numpy(zero_copy_only=False) for column in of_type])
        else:
            block = _matrix(of_type, data)
        blocks.append((block, order[positions]))
    in_order = [name for _, name in sorted(zip(order, names, strict=True))]
    index = pd.RangeIndex(description["shape"][0])
    return create_dataframe_from_blocks(blocks, index=index, columns=pd.Index(in_order))


def _arrow_column(column: pd.Series) -> pa.Array:
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy()
        texts = pa.array(list(column.cat.categories), pa.string())
        return pa.DictionaryArray.from_arrays(_plain(codes, codes < 0), texts, safe=False)
    values = column.to_numpy()
    if values.dtype == np.bool_:
        return pa.array(values)
    return _plain(values, np.isnat(values) if values.dtype.kind == "M" else None)


def _plain(values: NDArray[Any], is_gap: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return an Arrow array that keeps all bytes of the values, even of missing values."""
    has_gap = is_gap is not None and is_gap.any()
    validity = pa.array(~is_gap).buffers()[1] if is_gap is not None and has_gap else None
    raw = pa.py_buffer(np.ascontiguousarray(values).view(np.uint8))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [validity, raw])


def _matrix(
    columns: Sequence[pa.Array], data: memoryview, dtype: np.dtype[Any] | None = None
) -> NDArray[Any]:
    """Return columns of the same type as an array of shape (n_columns, n_rows).

    The array is a read-only view of the file, or a copy if the columns are not evenly spaced.
    """
    if dtype is None:
        dtype = np.dtype(columns[0].type.to_pandas_dtype())
    n = len(columns[0])
    if n == 0:
        return np.empty((len(columns), 0), dtype)
    start = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    places = [column.buffers()[1].address - start for column in columns]
    steps = {after - before for before, after in pairwise(places)}
    if len(steps) > 1:  # validity bitmaps lie between columns with missing values
        views = [_matrix([column], data, dtype) for column in columns]
        return np.concatenate(views)
    strides = (steps.pop() if steps else n * dtype.itemsize, dtype.itemsize)
    shape = (len(columns), n)
    return np.ndarray(shape, dtype, buffer=data, offset=places[0], strides=strides)
