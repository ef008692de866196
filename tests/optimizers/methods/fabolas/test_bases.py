import numpy as np
import pytest

from prefect_tune.optimizers.methods.fabolas.sizes import (
    COST,
    FULL,
    LOG_LOSS,
    PAPER_LOSS,
    RAW_LOSS,
    TASKS,
    log_size,
)
from prefect_tune.optimizers.surrogates.fidelity_kernel import Basis

BASES = {"log": LOG_LOSS, "raw": RAW_LOSS, "paper": PAPER_LOSS, "cost": COST, "full": FULL}
ONE = np.array([1.0])


def test_worked_values_of_the_paper() -> None:
    """Fabolas sheet, T1."""
    phi = PAPER_LOSS.functions(log_size(np.array([3125.0]), 100, 50_000))
    assert phi[0] == pytest.approx([1.0, 0.1990413971], abs=1e-10)


@pytest.mark.parametrize("name", BASES)
def test_slopes_agree_with_central_differences(name: str) -> None:
    basis, s = BASES[name], np.linspace(0.1, 0.9, 5)
    expected = (basis.functions(s + 1e-6) - basis.functions(s - 1e-6)) / 2e-6
    assert basis.slopes(s) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("basis", [*BASES.values(), TASKS])
def test_each_function_has_a_part_in_the_common_curve(basis: Basis) -> None:
    s = np.array([0.0, 0.4, 1.0])
    assert basis.functions(s).shape == basis.slopes(s).shape == (3, len(basis.trend))


def test_on_the_full_data_a_loss_is_the_first_function_and_what_only_large_subsets_tell() -> None:
    for basis in (LOG_LOSS, RAW_LOSS):
        assert basis.functions(ONE)[0].tolist() == [1.0, 0.0, 1.0]
    assert PAPER_LOSS.functions(ONE)[0].tolist() == [1.0, 0.0]


def test_a_power_law_of_the_rows_is_linear_where_logarithms_are_learned() -> None:
    rows = np.array([100.0, 400.0, 3_000.0, 50_000.0])
    s = log_size(rows, 100, 50_000)
    for basis, power in ((LOG_LOSS, -0.4), (COST, 1.8)):
        phi, target = basis.functions(s)[:, :2], np.log(3.0 * rows**power)
        weights = np.linalg.lstsq(phi, target)[0]
        assert phi @ weights == pytest.approx(target, abs=1e-9)
    exponent = weights[1] / np.log(500)
    assert exponent == pytest.approx(1.8)


def test_two_tasks_are_told_apart_and_the_full_data_is_the_first() -> None:
    assert TASKS.functions(np.array([0.0, 0.6, 1.0])).tolist() == [[0, 1], [0, 1], [1, 0]]


def test_the_paper_has_no_common_curve() -> None:
    assert not any(PAPER_LOSS.trend)
    assert all(LOG_LOSS.trend)
    assert all(COST.trend)
