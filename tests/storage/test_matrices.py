import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from scipy import sparse

from prefect_tune.storage.codec import decode, encode
from prefect_tune.storage.matrices import canonical

DTYPES = [np.float64, np.float32, np.int64, np.int32, np.int8, np.bool_]


def again(value):
    encoded = encode(value)
    return decode(encoded.codec, encoded.data)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_dense_matrices_and_vectors_come_back_bit_by_bit(dtype, data) -> None:
    shapes = st_numpy.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=7)
    value = canonical(data.draw(st_numpy.arrays(dtype, shapes)))
    back = again(value)
    assert back.dtype == value.dtype
    assert back.tobytes() == value.tobytes()
    assert back.shape == value.shape
    assert back.flags.c_contiguous
    assert not back.flags.writeable


@given(
    st_numpy.arrays(
        np.float64,
        st.tuples(st.integers(1, 6), st.integers(1, 6)),
        elements=st.sampled_from([0, 1.5, -2]),
    )
)
def test_sparse_matrices_come_back_as_sorted_csr(dense) -> None:
    value = canonical(sparse.csc_array(dense))
    back = again(value)
    for matrix in (value, back):
        assert matrix.format == "csr"
        assert matrix.indices.dtype == matrix.indptr.dtype == np.int32
        assert matrix.has_sorted_indices
        assert not matrix.data.flags.writeable
        assert (matrix.toarray() == dense).all()
    assert back.indices.tobytes() == value.indices.tobytes()
    assert back.indptr.tobytes() == value.indptr.tobytes()
    assert back.data.tobytes() == value.data.tobytes()


def test_duplicates_and_explicit_zeros_leave_a_sparse_matrix() -> None:
    coordinates = ([0, 0, 1], [2, 2, 0])
    value = canonical(sparse.coo_array(([1.0, 2.0, 0.0], coordinates), shape=(2, 3)))
    assert value.nnz == 1
    assert value.toarray()[0, 2] == 3.0


def test_frames_come_back_with_numbers_times_and_sorted_categories() -> None:
    value = canonical(
        pd.DataFrame(
            {
                "number": [1.5, np.nan, -2.0],
                "id": np.array([2**60 + 1, 2, 3]),
                "text": ["b", None, "a"],
                "time": pd.to_datetime(
                    ["2020-01-01T00:00:00", None, "2020-01-02T03:04:05.000006"], format="ISO8601"
                ),
            },
            index=[7, 8, 9],
        )
    )
    back = again(value)
    pd.testing.assert_frame_equal(back, value)
    assert back["id"].iloc[0] == 2**60 + 1
    assert list(back["text"].cat.categories) == ["a", "b"]
    assert list(back.index) == [0, 1, 2]


def test_a_canonical_frame_stays_what_it_is() -> None:
    value = canonical(pd.DataFrame({"x": [1.0, 2.0], "c": ["q", "p"]}))
    pd.testing.assert_frame_equal(canonical(value), value)


def test_canonical_leaves_the_callers_array_writeable() -> None:
    array = np.zeros((2, 2))
    canonical(array)[...]
    array[0, 0] = 1.0


def test_any_parquet_reader_reads_a_dense_matrix(tmp_path) -> None:
    path = tmp_path / "matrix.parquet"
    path.write_bytes(encode(canonical(np.arange(6.0).reshape(3, 2))).data)
    assert pq.read_table(path).column("values").to_pylist() == [[0, 1], [2, 3], [4, 5]]
    assert pd.read_parquet(path)["values"].iloc[1].tolist() == [2, 3]
