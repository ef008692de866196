"""What every acquisition promises, whatever it seeks."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import getmembers, isclass, isfunction

import numpy as np
import pytest
from source_tree import modules

from prefect_tune.optimizers.acquisitions.entropy import (
    Minimiser,
    divergence_from_uniform,
    information_gain,
    whitened_normals,
)
from prefect_tune.optimizers.acquisitions.expected_improvement import (
    AugmentedImprovement,
    JointImprovement,
    expected_improvement,
    log_expected_improvement,
    log_normal_improvement,
    sobol_normals,
)
from prefect_tune.optimizers.surrogates.fidelity_kernel import Latents
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess
from prefect_tune.optimizers.surrogates.kernel import Constant
from prefect_tune.optimizers.surrogates.stationary import Matern52

MEAN = np.array([0.3, -0.4, 0.1, -0.2, 1.5, -0.3, 4.0])
DEVIATION = np.array([0.5, 0.1, 0.9, 0.3, 0.4, 1e-6, 0.2])
"""Of candidates: likely and unlikely to improve, sure that they do, and without a hope."""
BEST = -0.25
NORMALS = np.random.default_rng(0).normal(size=(200_000, 1))
DRAWS = MEAN + DEVIATION * NORMALS
Rows = np.ndarray


@dataclass(frozen=True)
class Acquisition:
    """One for candidates in any order.

    Attributes:
        what: The function or class that is one.
        of: Its values for some of the candidates.
        drawn: What it is the mean of, by draw and candidate; None where that is not known.
        least: No value is below it.
    """

    what: Callable[..., object]
    of: Callable[[Rows], np.ndarray]
    drawn: np.ndarray | None = None
    least: float = 0.0


def joint(rows: Rows) -> np.ndarray:
    covariance = np.diag(DEVIATION[rows] ** 2)
    normals = sobol_normals(256, 4, np.random.default_rng(0))
    scores = -MEAN[rows], np.diag(covariance), lambda j: covariance[j]
    return JointImprovement(*scores, -BEST, normals).gains()


MINIMISER = Minimiser.of(
    np.array([0.0, 0.1]), np.eye(2), whitened_normals(2, 4096, np.random.default_rng(0))
)


def information(rows: Rows) -> np.ndarray:
    """Of candidates that vary with two representers as much as they deviate."""
    size = DEVIATION[rows][:, None, None]
    latents = Latents(MEAN[rows][:, None], size**2, size * np.array([[[0.7, -0.7]]]))
    return information_gain(MINIMISER, latents, np.ones((1, 1)), np.array([0.01]))[:, 0]


def augmented(rows: Rows) -> np.ndarray:
    inputs = np.random.default_rng(0).random((12, 2))
    theta = np.log([1.0, 0.4, 0.7, 0.01])
    process = GaussianProcess.given(Constant() * Matern52(range(2)), theta, inputs, inputs[:, :1])
    at = np.random.default_rng(1).random((len(MEAN), 2))[rows]
    return AugmentedImprovement(process, 0.2).score(at, np.zeros(len(rows)))


ACQUISITIONS: dict[str, Acquisition] = {
    "expected improvement": Acquisition(
        expected_improvement,
        lambda rows: expected_improvement(MEAN[rows], DEVIATION[rows], BEST),
        np.maximum(BEST - DRAWS, 0),
    ),
    "expected improvement by its logarithm": Acquisition(
        log_expected_improvement,
        lambda rows: np.exp(log_expected_improvement(MEAN[rows], DEVIATION[rows], BEST)),
        np.maximum(BEST - DRAWS, 0),
    ),
    "improvement of logarithms": Acquisition(
        log_normal_improvement,
        lambda rows: np.exp(log_normal_improvement(MEAN[rows], DEVIATION[rows], BEST)),
        np.maximum(np.exp(BEST) - np.exp(DRAWS), 0),
    ),
    "joint improvement": Acquisition(JointImprovement, joint, np.maximum(BEST - DRAWS, 0)),
    "augmented improvement": Acquisition(AugmentedImprovement, augmented, least=-np.inf),
    "information": Acquisition(information_gain, information, least=-1e-3),
    "divergence": Acquisition(
        divergence_from_uniform,
        lambda rows: divergence_from_uniform(MINIMISER, information(rows)),
        least=-1e-3,
    ),
}
OF_PARTS = {
    "expected_squared_excess", "log_expected_improvement_gradient", "log_standard_improvement",
    "log_standard_improvement_slope", "choose_representers", "Minimiser", "sobol_normals",
    "whitened_normals",
}  # fmt: skip
"""Terms, gradients and draws of acquisitions; the tests beside this one look at each."""


def test_each_acquisition_is_looked_at() -> None:
    written = {
        name
        for module in modules("optimizers/acquisitions")
        for name, one in getmembers(module, lambda one: isfunction(one) or isclass(one))
        if one.__module__ == module.__name__ and not name.startswith("_")
    }
    proposing = {"Fitted", "GaussianSearch", "maximise", "pool_around", "drawn_evenly", "moved"}
    looked_at = {acquisition.what.__name__ for acquisition in ACQUISITIONS.values()}
    assert looked_at | OF_PARTS | proposing == written


@pytest.mark.parametrize("name", ACQUISITIONS)
def test_each_candidate_has_a_value_of_its_own_whatever_stands_beside_it(name: str) -> None:
    acquisition, rows = ACQUISITIONS[name], np.arange(len(MEAN))
    values = acquisition.of(rows)
    assert values.shape == (len(MEAN),)
    assert np.isfinite(values).all()
    assert values.min() >= acquisition.least
    order = np.random.default_rng(0).permutation(rows)
    assert acquisition.of(order) == pytest.approx(values[order], rel=1e-9, abs=1e-12)
    assert acquisition.of(rows[:1]) == pytest.approx(values[:1], rel=1e-9)


@pytest.mark.parametrize("name", [name for name, a in ACQUISITIONS.items() if a.drawn is not None])
def test_a_value_is_the_mean_over_outcomes(name: str) -> None:
    drawn = ACQUISITIONS[name].drawn
    assert drawn is not None
    error = 5 * drawn.std(axis=0).max() / np.sqrt(len(drawn))
    assert ACQUISITIONS[name].of(np.arange(len(MEAN))) == pytest.approx(
        drawn.mean(axis=0), abs=error
    )
