"""Gaussian processes: fits, predictions, several targets, noise, and curves over sizes."""

from typing import Any

import numpy as np
import pytest
from ConfigSpace import Categorical
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import algorithm, mixed_space

from prefect_tune.optimizers import Configuration, Space, Step
from prefect_tune.optimizers.methods.fabolas.subsets import COST, FULL, LOG_LOSS, PAPER_LOSS, TASKS
from prefect_tune.optimizers.models.fidelity_kernel import Basis, FidelityKernel, latents_of
from prefect_tune.optimizers.models.gaussian_process import GaussianProcess
from prefect_tune.optimizers.models.inputs import KernelKind, PipelineInputs, Priors
from prefect_tune.optimizers.models.kernels import (
    NOISE,
    Constant,
    FallingNoise,
    Kernel,
    Matern52,
    Noise,
    Parameter,
    Product,
)
from prefect_tune.optimizers.models.log_posterior import log_posterior, log_posterior_value
from prefect_tune.optimizers.search.maximize import GaussianSearch
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.space.vectors import Candidates, CandidateSpace


def scaled_matern(d: int) -> Kernel:
    return Product([Constant(), Matern52(range(d))])


def data(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.random((n, d))
    return X, np.sin(4 * X[:, 0]) + X[:, -1] ** 2 + 0.05 * rng.normal(size=n)


def fidelity_kernel(basis: Basis) -> FidelityKernel:
    """Return a kernel of two numbers followed by a size."""
    return FidelityKernel(Matern52([0, 1]), 2, basis)


def test_joint_fit_of_several_targets_equals_separate_processes() -> None:
    X, y = data(25, 2)
    targets = np.column_stack([y, -3 * y**2, np.full(25, 4.0)])
    kernel, new = scaled_matern(2), np.random.default_rng(2).random((7, 2))
    theta = np.log([1.3, 0.4, 0.8, 0.02])
    together = GaussianProcess.given(kernel, theta, X, targets)
    for number in range(3):
        alone = GaussianProcess.given(kernel, theta, X, targets[:, [number]])
        one = together.of_targets([number])
        for mine, theirs, several in zip(
            one.predict(new), alone.predict(new), together.predict(new), strict=True
        ):
            assert mine == pytest.approx(theirs, rel=1e-9, abs=1e-12)
            assert np.allclose(mine, several[:, [number]], rtol=1e-12)


def test_process_agrees_with_scikit_learn_for_given_hyperparameters() -> None:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern

    X, y = data(40, 3)
    lengths = np.array([0.3, 1.0, 0.7])
    theirs = GaussianProcessRegressor(
        ConstantKernel(2.0) * Matern(lengths, nu=2.5), alpha=0.01, optimizer=None
    )
    centered = (y - y.mean()) / y.std()
    theirs.fit(X, centered)
    theta = np.log([2.0, *lengths, 0.01])
    ours = GaussianProcess.given(scaled_matern(3), theta, X, centered, mean=0.0)
    new = np.random.default_rng(1).random((20, 3))
    expected_mean, expected_deviation = theirs.predict(new, return_std=True)
    mean, deviation = ours.predict(new)
    assert mean == pytest.approx(expected_mean, abs=1e-10)
    assert deviation == pytest.approx(expected_deviation, abs=1e-9)


def test_imagined_results_keep_the_mean_and_remove_the_deviation() -> None:
    """Each row has its own noise, which falls with the size."""
    X, y = data(15, 3)
    noise = FallingNoise(2)
    theta = np.append(np.log([0.4, 0.8, 0.9]), [-0.3, np.log(0.5), np.log(0.01), np.log(0.4)])
    process = GaussianProcess.given(fidelity_kernel(PAPER_LOSS), theta, X, y, mean=0.0, noise=noise)
    pending = np.array([[0.1, 0.9, 0.1], [0.8, 0.2, 1.0]])
    imagined = process.imagining(pending)
    assert imagined.predict(X)[0] == pytest.approx(process.predict(X)[0], abs=1e-8)
    assert (imagined.predict(pending)[1] < process.predict(pending)[1]).all()
    rows, losses = np.vstack([X, pending]), np.append(y, process.predict(pending)[0])
    told = GaussianProcess.given(
        process.kernel, theta, rows, losses, mean=0.0, noise=noise, scale=process.scale[0]
    )
    assert imagined.predict(pending)[1] == pytest.approx(told.predict(pending)[1], abs=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_inputs_and_targets_are_refused(bad: float) -> None:
    X, y = data(6, 2)
    for inputs, targets in ((X, np.where(y == y[3], bad, y)), (np.where(X[2] == X, bad, X), y)):
        with pytest.raises(ValueError, match="must be finite"):
            GaussianProcess.given(scaled_matern(2), np.zeros(4), inputs, targets)


def test_most_likely_of_several_fits_is_kept() -> None:
    """A fit of one iteration that starts at a high noise level stays near the start."""
    X, y = data(20, 2)
    kernel, rng = scaled_matern(2), np.random.default_rng
    bad = np.array([*(p.lower for p in kernel.parameters), NOISE.upper])
    likelihoods = []
    for n in range(3):
        fitted = GaussianProcess.fit(
            kernel, X, y, rng=rng(0), warm_start=bad, n_restarts=n, max_iterations=1
        )
        value, _ = log_posterior(kernel, fitted.theta, X, fitted.standardized, noise=Noise())
        likelihoods.append(value)
    assert likelihoods == sorted(likelihoods)
    assert likelihoods[0] < likelihoods[-1]


@pytest.mark.parametrize("mean", [None, 2.0, lambda rows: rows[:, 0]])
def test_joint_moments_equal_the_predicted_moments(mean: Any) -> None:
    X, y = data(8, 2)
    theta = np.log([1.0, 0.3, 0.5, 0.01])
    process = GaussianProcess.given(scaled_matern(2), theta, X, y, mean=mean)
    new = np.random.default_rng(3).random((4, 2))
    joint, covariance = process.joint(new)
    expected, deviation = process.predict(new)
    assert process.scale * joint[:, 0] == pytest.approx(expected)
    assert process.scale * np.sqrt(np.diag(covariance)) == pytest.approx(deviation)


def test_fit_avoids_parameters_with_a_singular_covariance(monkeypatch) -> None:
    """The covariance is singular for half of the lengthscales, which includes the best ones."""
    X, y = data(25, 2)
    kernel, theta = scaled_matern(2), np.log([1.0, 0.05, 0.05, 0.02])
    best = GaussianProcess.fit(kernel, X, y, rng=np.random.default_rng(0), warm_start=theta)
    limit = (theta[1] + best.theta[1]) / 2

    def posterior(kernel: Kernel, theta: np.ndarray, *data: Any, **more: Any) -> Any:
        if theta[1] > limit:
            raise ValueError("not positive definite")
        return log_posterior(kernel, theta, *data, **more)

    module = "prefect_tune.optimizers.models.gaussian_process"
    monkeypatch.setattr(f"{module}.log_posterior", posterior)
    found = GaussianProcess.fit(kernel, X, y, rng=np.random.default_rng(0), warm_start=theta)
    assert theta[1] <= found.theta[1] <= limit


def test_targets_are_divided_by_the_given_scale() -> None:
    X, y = data(8, 2)
    theta = np.log([1.0, 0.3, 0.5, 0.01])
    process = GaussianProcess.given(scaled_matern(2), theta, X, 40 * y, mean=2.0, scale=10.0)
    assert process.scale.tolist() == [10.0]
    assert process.standardized[:, 0] == pytest.approx(4 * y - 0.2)
    equal = GaussianProcess.given(scaled_matern(2), theta, X, np.full(8, 5.0), mean=2.0)
    assert equal.standardized[:, 0] == pytest.approx(3.0)


def data_over_sizes(n: int = 14, t: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    inputs = rng.random((n, 3))
    inputs[::3, 2] = 1.0
    return inputs, rng.normal(size=(n, t))


@pytest.mark.parametrize(
    ("basis", "noise", "t", "has_constant"),
    [
        (FULL, Noise(), 1, True),
        (PAPER_LOSS, FallingNoise(2), 3, False),
        (COST, Noise(), 3, True),
        (LOG_LOSS, FallingNoise(2), 1, True),
        (TASKS, Noise(), 1, False),
    ],
)
def test_gradient_of_the_posterior_agrees_with_central_differences(
    basis: Basis, noise: Noise, t: int, *, has_constant: bool
) -> None:
    kernel, (inputs, targets) = fidelity_kernel(basis), data_over_sizes(t=t)
    rng, parameters = np.random.default_rng(1), (*kernel.parameters, *noise.parameters)
    theta = np.array([np.clip(rng.normal(-1, 0.6), p.lower, p.upper) for p in parameters])

    def value(at: np.ndarray) -> float:
        return log_posterior_value(
            kernel, at, inputs, targets, noise=noise, has_constant=has_constant
        )

    both, gradient = log_posterior(
        kernel, theta, inputs, targets, noise=noise, has_constant=has_constant
    )
    assert value(theta) == pytest.approx(both, rel=1e-10)
    steps = 1e-5 * np.eye(len(theta))
    expected = [(value(theta + e) - value(theta - e)) / 2e-5 for e in steps]
    assert gradient == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("end", "sign"), [("lower", -1), ("upper", 1)])
def test_density_is_zero_outside_the_bounds(end: str, sign: int) -> None:
    kernel, noise = fidelity_kernel(LOG_LOSS), FallingNoise(2)
    inputs, targets = data_over_sizes()
    parameters = (*kernel.parameters, *noise.parameters)

    def value(at: np.ndarray) -> float:
        return log_posterior_value(kernel, at, inputs, targets, noise=noise, has_constant=False)

    for i, parameter in enumerate(parameters):
        theta = np.array([p.start for p in parameters])
        theta[i] = getattr(parameter, end)
        assert np.isfinite(value(theta))
        theta[i] += sign * 1e-9
        assert value(theta) == -np.inf


@pytest.mark.parametrize("basis", [LOG_LOSS, PAPER_LOSS, COST, FULL])
@settings(max_examples=8)
@given(n=st.integers(2, 12), s=st.floats(0, 1), seed=st.integers(0, 1000))
def test_latent_curves_equal_the_predictions_at_all_sizes(basis, n, s, seed) -> None:
    rng = np.random.default_rng(seed)
    kernel, targets = fidelity_kernel(basis), rng.normal(size=n)
    theta = np.append(rng.normal(-0.4, 0.4, len(kernel.parameters)), np.log([0.01, 0.05]))
    learned = GaussianProcess.given(
        kernel, theta, rng.random((n, 3)), targets / targets.std(), mean=0.0, noise=FallingNoise(2)
    )
    rows, representers = rng.random((4, 3)), rng.random((5, 3))
    rows[:, 2], representers[:, 2] = s, 1.0
    latents = latents_of(learned, rows, representers)
    phi = basis.functions(np.array([s]))[0]
    mean, deviation = learned.predict(rows)
    assert latents.mean @ phi == pytest.approx(mean, abs=1e-9)
    assert latents.covariance @ phi @ phi == pytest.approx(deviation**2, abs=1e-9)
    covariance = np.einsum("car,a->cr", latents.cross, phi)
    _, together = learned.joint(np.vstack([rows, representers]))
    assert covariance == pytest.approx(together[:4, 4:], abs=1e-9)


KINDS: tuple[KernelKind, ...] = ("one_hot", "conditional")


def drawn(space: Space, n: int) -> list[Configuration]:
    rng = np.random.default_rng(0)
    return [sample_configuration(space, rng) for _ in range(n)]


@pytest.mark.parametrize("kind", KINDS)
def test_inactive_hyperparameters_do_not_change_the_inputs(kind: KernelKind) -> None:
    candidates = CandidateSpace(mixed_space())
    inputs = PipelineInputs(candidates, kind)
    configurations = drawn(mixed_space(), 50)
    encoded = inputs.encode(configurations)
    active = candidates.active(encoded)
    noise = np.random.default_rng(1).random(encoded.units.shape)
    moved = Candidates(encoded.algorithms, np.where(active, encoded.units, noise))
    assert inputs.of(moved) == pytest.approx(inputs.of(encoded))
    distinct = np.unique(np.round(inputs.of(encoded), 9), axis=0)
    assert len(distinct) == len(set(configurations))


def test_unordered_categories_are_as_far_apart_as_two_paths() -> None:
    one = algorithm("one", Categorical("kind", ["a", "b", "c"], default="a"))
    space = Space("kinds", (Step("model", (one, algorithm("two"))),))
    search = GaussianSearch(space)
    kinds = [Configuration.of(space, ("one",), [{"kind": kind}]) for kind in "abc"]
    other = Configuration.of(space, ("two",), [{}])
    rows = search.inputs.of(search.inputs.encode([*kinds, other]))
    distances = np.linalg.norm(rows[:3, None] - rows[None], axis=-1)
    assert distances[:, :3] == pytest.approx(1 - np.eye(3))
    assert distances[0, 3] == pytest.approx(1.0)


def test_subset_size_is_the_last_input() -> None:
    inputs = PipelineInputs(CandidateSpace(mixed_space()), "conditional")
    candidates = inputs.encode(drawn(mixed_space(), 4))
    each = inputs.at(candidates, np.array([0.0, 0.2, 0.5, 1.0]))
    assert each[:, -1].tolist() == [0.0, 0.2, 0.5, 1.0]
    assert (each[:, :-1] == inputs.of(candidates)).all()
    assert inputs.at(candidates, 0.7)[:, -1].tolist() == [0.7] * 4


@pytest.mark.parametrize("kind", KINDS)
def test_inner_kernel_lacks_only_the_amplitude(kind: KernelKind) -> None:
    inputs = PipelineInputs(CandidateSpace(mixed_space()), kind)
    rows = inputs.of(inputs.encode(drawn(mixed_space(), 9)))
    theta = np.array([p.start for p in inputs.within.parameters])
    within = inputs.within.covariance(theta, rows, rows)
    assert np.diag(within) == pytest.approx(1.0)
    amplified = inputs.kernel.covariance(np.append(np.log(3.0), theta), rows, rows)
    assert amplified == pytest.approx(3 * within)


def test_custom_priors_are_used() -> None:
    priors = Priors(
        lambda name, n: Parameter(f"my {name} of {n}", 0.25, -1.0, 1.0, (0.25, 1.0)),
        lambda step: Parameter(f"of {step}", -2.0, -5.0, 5.0, (-2.0, 1.0)),
    )
    inputs = PipelineInputs(CandidateSpace(mixed_space()), "conditional", priors)
    names = {p.name for p in inputs.within.parameters}
    lengthscales = {f"my lengthscale {i} of {len(names) - 2}" for i in range(len(names) - 2)}
    assert names == {"of scale", "of model"} | lengthscales
