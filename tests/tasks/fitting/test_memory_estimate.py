import numpy as np
import pytest
from scipy import sparse
from sklearn.preprocessing import PolynomialFeatures

from prefect_tune.optimizers import Choice
from prefect_tune.tasks.catalogue.classification import K_NEAREST
from prefect_tune.tasks.catalogue.preprocessing import KERNEL_PCA, NYSTROEM, POLYNOMIAL
from prefect_tune.tasks.fitting.fitting import FoldData, fit_transformer
from prefect_tune.tasks.fitting.memory_estimate import (
    MEMORY_RULES,
    MatrixSummary,
    WillNotFit,
    check_memory,
)
from prefect_tune.tasks.fitting.recipe import recipe


def estimated(algorithm, summary: MatrixSummary, **values: object) -> float:
    how = recipe(algorithm, Choice(algorithm.id, tuple(values.items())), summary, balanced=False)
    return how.memory(how.arguments, summary).size_bytes if how.memory else 0.0


@pytest.mark.parametrize("degree", [2, 3])
@pytest.mark.parametrize("interaction_only", [0, 1])
@pytest.mark.parametrize("p", [1, 2, 7])
def test_a_polynomial_is_estimated_to_the_column(degree, interaction_only, p) -> None:
    made = PolynomialFeatures(
        degree, interaction_only=bool(interaction_only), include_bias=False
    ).fit_transform(np.ones((5, p)))
    summary = MatrixSummary(5, p, "dense", "float64")
    needed = estimated(POLYNOMIAL, summary, degree=degree, interaction_only=interaction_only)
    assert needed == made.nbytes


def test_a_sparse_polynomial_is_estimated_by_what_is_stored() -> None:
    X = sparse.random_array((200, 50), density=0.1, rng=np.random.default_rng(0), format="csr")
    made = PolynomialFeatures(2, include_bias=False).fit_transform(X)
    needed = estimated(POLYNOMIAL, MatrixSummary.of(X), degree=2, interaction_only=0)
    assert 0.5 * made.nnz * 12 < needed <= made.nnz * 12


def test_a_kernel_matrix_grows_with_the_square_of_the_rows() -> None:
    few, many = (
        estimated(KERNEL_PCA, MatrixSummary(n, 5, "dense"), n_components=10) for n in (100, 200)
    )
    assert (few, many) == (2 * 8 * 100**2, 2 * 8 * 200**2)


def test_components_count_as_far_as_there_are_rows() -> None:
    summary = MatrixSummary(100, 5, "dense")
    all_rows, more = (estimated(NYSTROEM, summary, n_components=m) for m in (100, 10_000))
    assert all_rows == more


def test_of_an_estimator_that_is_not_known_nothing_is_estimated() -> None:
    assert estimated(K_NEAREST, MatrixSummary(10**9, 10**6, "dense"), n_neighbors=3) == 0


def test_what_will_not_fit_is_refused_with_the_figures_before_it_starts() -> None:
    X = np.ones((30, 40))
    summary = MatrixSummary.of(X)
    choice = Choice("polynomial", (("degree", 3), ("interaction_only", 0)))
    how = recipe(POLYNOMIAL, choice, summary, balanced=False)
    y = np.array(["a", "b"] * 15)
    data = FoldData(X, X, y, np.unique(y), memory_limit_bytes=1_000_000)
    with pytest.raises(WillNotFit, match=r"degree 3 with 12,340 columns for 30 rows .* 0\.0 GB"):
        fit_transformer(how, 0, data)


def test_the_limit_is_the_machines_memory_when_none_is_given() -> None:
    summary = MatrixSummary(10**7, 10, "dense")
    with pytest.raises(WillNotFit, match=r"10,000,000 x 10,000,000 rows .* 1,600,000\.0 GB"):
        check_memory("KernelPCA", MEMORY_RULES["kernel_matrix"], {}, summary)


def test_writing_out_a_sparse_matrix_counts() -> None:
    summary = MatrixSummary(10**6, 10**6, "sparse", "float64", 1e-6)
    check_memory("SVC", None, {}, summary)
    with pytest.raises(WillNotFit, match="a dense matrix of 1,000,000 rows and 1,000,000 columns"):
        check_memory("SVC", None, {}, summary, repairs=["write_out"])
