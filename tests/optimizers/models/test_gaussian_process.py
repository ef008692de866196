"""Gaussian processes: fits, predictions, several targets, falling noise, and curves over sizes."""

from typing import Any

import numpy as np
import pytest
from ConfigSpace import Categorical, ConfigurationSpace
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from worlds import mixed_space

from prefect_tune.optimizers import Algorithm, Configuration, Space, Step
from prefect_tune.optimizers.methods.fabolas.subsets import COST, FULL, LOG_LOSS, PAPER_LOSS, TASKS
from prefect_tune.optimizers.models.fidelity_kernel import (
    Basis,
    FidelityKernel,
    latents_of,
)
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
from prefect_tune.optimizers.search.maximise import GaussianSearch
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.space.vectors import Candidates, CandidateSpace


def scaled_matern(d: int) -> Kernel:
    return Product([Constant(), Matern52(range(d))])


def data(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    return X, np.sin(4 * X[:, 0]) + X[:, -1] ** 2 + 0.05 * rng.normal(size=n)


def test_one_of_several_targets_is_a_process_of_its_own() -> None:
    X, y = data(25, 2)
    targets = np.column_stack([y, -3 * y**2, np.full(25, 4.0)])
    kernel, new = scaled_matern(2), np.random.default_rng(2).random((7, 2))
    theta = np.log([1.3, 0.4, 0.8, 0.02])
    together = GaussianProcess.given(kernel, theta, X, targets)
    pending = np.random.default_rng(3).random((2, 2))
    for number in range(3):
        alone = GaussianProcess.given(kernel, theta, X, targets[:, [number]])
        one = together.of_target(number)
        for mine, theirs in ((one, alone), (one.imagining(pending), alone.imagining(pending))):
            for a, b in zip(
                mine.predict_with_gradient(new), theirs.predict_with_gradient(new), strict=True
            ):
                assert a == pytest.approx(b, rel=1e-9, abs=1e-12)
        everything = [values[:, [number]] for values in together.predict(new)]
        assert np.allclose(one.predict(new), everything, rtol=1e-12)


def test_it_agrees_with_scikit_learn_for_given_hyperparameters() -> None:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern

    X, y = data(40, 3)
    lengths = np.array([0.3, 1.0, 0.7])
    theirs = GaussianProcessRegressor(
        ConstantKernel(2.0) * Matern(lengths, nu=2.5), alpha=0.01, optimizer=None
    )
    centred = (y - y.mean()) / y.std()
    theirs.fit(X, centred)
    theta = np.log([2.0, *lengths, 0.01])
    ours = GaussianProcess.given(scaled_matern(3), theta, X, centred, mean=0.0)
    new = np.random.default_rng(1).random((20, 3))
    expected_mean, expected_deviation = theirs.predict(new, return_std=True)
    mean, deviation = ours.predict(new)
    assert mean == pytest.approx(expected_mean, abs=1e-10)
    assert deviation == pytest.approx(expected_deviation, abs=1e-9)


def test_a_given_mean_is_what_is_far_away() -> None:
    X, y = data(12, 2)
    process = GaussianProcess.fit(
        scaled_matern(2), X, y, rng=np.random.default_rng(0), mean=lambda rows: 3 * rows[:, 0]
    )
    assert process.predict(np.array([[900.0, 0.0]]))[0][0] == pytest.approx(2700.0)


def test_imagining_keeps_the_mean_and_takes_the_deviation_away() -> None:
    X, y = data(15, 2)
    process = GaussianProcess.fit(scaled_matern(2), X, y, rng=np.random.default_rng(0))
    pending = np.array([[0.1, 0.9], [0.8, 0.2]])
    imagined = process.imagining(pending)
    assert imagined.predict(X)[0] == pytest.approx(process.predict(X)[0], abs=1e-8)
    assert (imagined.predict(pending)[1] < process.predict(pending)[1]).all()
    rows, losses = np.vstack([X, pending]), np.append(y, process.predict(pending)[0])
    told = GaussianProcess.given(
        process.kernel, process.theta, rows, losses, scale=process.scale[0]
    )
    assert imagined.predict(pending)[1] == pytest.approx(told.predict(pending)[1], abs=1e-6)


def test_gradients_of_predictions_agree_with_differences() -> None:
    X, y = data(15, 3)
    kernel = scaled_matern(3)
    theta = np.append(np.linspace(-0.9, 0.4, len(kernel.parameters)), np.log(0.02))
    process = GaussianProcess.given(kernel, theta, X, np.column_stack([y, y**2]))
    at = np.array([[0.3, 0.6, 0.2], [0.9, 0.1, 0.5]])
    mean, deviation, mean_gradient, deviation_gradient = process.predict_with_gradient(at)
    expected_mean, expected_deviation = process.predict(at)
    assert mean == pytest.approx(expected_mean)
    assert deviation == pytest.approx(expected_deviation)
    for row in range(2):
        for target in range(2):
            for which, gradient in ((0, mean_gradient), (1, deviation_gradient)):

                def value(x: np.ndarray, target: int = target, which: int = which) -> float:
                    return float(process.predict(x[None])[which][0, target])

                expected = approx_fprime(at[row], value, 1e-7)
                assert gradient[row, target] == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_equal_inputs_without_noise_are_saved_by_jitter() -> None:
    X = np.zeros((5, 2))
    theta = np.array([0.0, 0.0, 0.0, -80.0])
    process = GaussianProcess.given(scaled_matern(2), theta, X, np.arange(5.0))
    assert process.predict(X[:1])[0][0] == pytest.approx(2.0, abs=1e-3)


@pytest.mark.parametrize("level", [0.0, 7.0, -1e9])
def test_constant_targets_leave_theta_at_its_start_and_predict_the_constant(level: float) -> None:
    X, _ = data(6, 2)
    kernel = scaled_matern(2)
    process = GaussianProcess.fit(kernel, X, np.full(6, level), rng=np.random.default_rng(0))
    assert process.theta == pytest.approx([p.start for p in (*kernel.parameters, NOISE)])
    mean, deviation = process.predict(X)
    assert mean == pytest.approx(level)
    assert (deviation > 0).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(bad: float) -> None:
    X, y = data(6, 2)
    for inputs, targets in ((X, np.where(y == y[3], bad, y)), (np.where(X[2] == X, bad, X), y)):
        with pytest.raises(ValueError, match="not finite"):
            GaussianProcess.given(scaled_matern(2), np.zeros(4), inputs, targets)


def test_of_several_starts_the_likeliest_end_is_kept() -> None:
    """Started where all is noise, the process stays there."""
    X, y = data(20, 2)
    kernel = scaled_matern(2)
    good = GaussianProcess.fit(kernel, X, y, rng=np.random.default_rng(0)).theta
    lower = [p.lower for p in kernel.parameters]
    bad = np.array([*lower, NOISE.upper])
    fitted = GaussianProcess.fit(
        kernel, X, y, rng=np.random.default_rng(0), warm_start=bad, n_restarts=2
    )
    assert fitted.theta == pytest.approx(good, abs=0.1)


PAPER_THETA = np.append(np.log([0.4, 0.8, 0.9]), [-0.3, np.log(0.5), np.log(0.01), -80.0])
"""Fabolas sheet, T2 to T4; the noise does not fall."""


def over_sizes(theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> GaussianProcess:
    """A process over two numbers and a size, with noise that may fall with the size."""
    kernel = FidelityKernel(Matern52([0, 1]), 2, PAPER_LOSS)
    return GaussianProcess.given(kernel, theta, X, y, mean=0.0, noise=FallingNoise(2))


@pytest.mark.parametrize("mean", [None, 0.0, 2.0, lambda rows: rows[:, 0]])
def test_joint_moments_equal_the_predicted_ones(mean: Any) -> None:
    X, y = data(8, 2)
    theta = np.log([1.0, 0.3, 0.5, 0.01])
    process = GaussianProcess.given(scaled_matern(2), theta, X, y, mean=mean)
    new = np.random.default_rng(3).random((4, 2))
    joint, covariance = process.joint(new)
    expected, deviation = process.predict(new)
    assert process.scale * joint[:, 0] == pytest.approx(expected)
    assert process.scale * np.sqrt(np.diag(covariance)) == pytest.approx(deviation)


def test_targets_are_divided_by_the_scale_that_is_given() -> None:
    X, y = data(8, 2)
    theta = np.log([1.0, 0.3, 0.5, 0.01])
    process = GaussianProcess.given(scaled_matern(2), theta, X, 40 * y, mean=2.0, scale=10.0)
    assert process.scale.tolist() == [10.0]
    assert process.standardised[:, 0] == pytest.approx(4 * y - 0.2)


BASES = {"one": FULL, "two": PAPER_LOSS, "cost": COST, "three": LOG_LOSS, "tasks": TASKS}
NOISES: dict[str, Noise] = {"constant": Noise(), "falling": FallingNoise(2)}


def data_over_sizes(n: int = 14, t: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    inputs = rng.random((n, 3))
    inputs[::3, 2] = 1.0
    return inputs, rng.normal(size=(n, t))


def kernel_of(basis: Basis) -> FidelityKernel:
    return FidelityKernel(Matern52([0, 1]), 2, basis)


def some_theta(kernel: FidelityKernel, noise: Noise, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    parameters = (*kernel.parameters, *noise.parameters)
    return np.array([np.clip(rng.normal(-1, 0.6), p.lower, p.upper) for p in parameters])


@pytest.mark.parametrize("has_constant", [True, False])
@pytest.mark.parametrize("t", [1, 3])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("basis", BASES)
def test_the_gradient_agrees_with_central_differences_and_the_value_alone_is_the_value(
    basis: str, noise: str, t: int, *, has_constant: bool
) -> None:
    kernel, around = kernel_of(BASES[basis]), NOISES[noise]
    inputs, targets = data_over_sizes(t=t)
    theta = some_theta(kernel, around, 1)

    def value(at: np.ndarray) -> float:
        return log_posterior_value(
            kernel, at, inputs, targets, noise=around, has_constant=has_constant
        )

    both, gradient = log_posterior(
        kernel, theta, inputs, targets, noise=around, has_constant=has_constant
    )
    assert value(theta) == pytest.approx(both, rel=1e-10)
    steps = 1e-5 * np.eye(len(theta))
    expected = [(value(theta + e) - value(theta - e)) / 2e-5 for e in steps]
    assert gradient == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("end", ["lower", "upper"])
def test_there_is_no_density_outside_of_the_bounds(end: str) -> None:
    kernel, noise = kernel_of(LOG_LOSS), NOISES["falling"]
    inputs, targets = data_over_sizes()
    parameters = (*kernel.parameters, *noise.parameters)
    theta = np.array([p.start for p in parameters])
    sign = 1 if end == "upper" else -1
    for i, parameter in enumerate(parameters):
        on, beyond = theta.copy(), theta.copy()
        on[i] = getattr(parameter, end)
        beyond[i] = on[i] + sign * 1e-9
        for at, is_inside in ((on, True), (beyond, False)):
            value = log_posterior_value(
                kernel, at, inputs, targets, noise=noise, has_constant=False
            )
            assert np.isfinite(value) == is_inside
            assert is_inside or value == -np.inf


LATENT_BASES = {"log loss": LOG_LOSS, "paper": PAPER_LOSS, "cost": COST, "full": FULL}


def process(basis: Basis, n: int = 12, seed: int = 0) -> GaussianProcess:
    rng = np.random.default_rng(seed)
    kernel = FidelityKernel(Matern52([0, 1]), 2, basis)
    theta = np.append(rng.normal(-0.4, 0.4, len(kernel.parameters)), np.log([0.01, 0.05]))
    targets = rng.normal(size=n)
    return GaussianProcess.given(
        kernel, theta, rng.random((n, 3)), targets / targets.std(), mean=0.0, noise=FallingNoise(2)
    )


def at(inputs: np.ndarray, s: float) -> np.ndarray:
    return np.column_stack([inputs[:, :2], np.full(len(inputs), s)])


@pytest.mark.parametrize("name", LATENT_BASES)
@settings(max_examples=8)
@given(n=st.integers(2, 12), s=st.floats(0, 1), seed=st.integers(0, 1000))
def test_the_curves_are_the_predictions_at_all_sizes(name, n, s, seed) -> None:
    learned = process(LATENT_BASES[name], n, seed)
    rng = np.random.default_rng(seed + 1)
    candidates, representers = rng.random((4, 3)), at(rng.random((5, 3)), 1.0)
    latents = latents_of(learned, candidates, representers)
    phi = LATENT_BASES[name].functions(np.array([s]))[0]
    rows = at(candidates, s)
    mean, deviation = learned.predict(rows)
    assert latents.mean @ phi == pytest.approx(mean, abs=1e-9)
    assert latents.covariance @ phi @ phi == pytest.approx(deviation**2, abs=1e-9)
    covariance = np.einsum("car,a->cr", latents.cross, phi)
    _, together = learned.joint(np.vstack([rows, representers]))
    assert covariance == pytest.approx(together[:4, 4:], abs=1e-9)


def test_a_process_without_a_fidelity_has_no_curves() -> None:
    plain = GaussianProcess.given(
        Matern52([0]), np.log([0.5, 0.01]), np.zeros((1, 1)), np.ones(1), mean=0.0
    )
    with pytest.raises(TypeError, match="Matern52"):
        latents_of(plain, np.zeros((1, 1)), np.zeros((1, 1)))


KINDS: tuple[KernelKind, ...] = ("one_hot", "conditional")


def drawn(space: Space, n: int, seed: int = 0) -> list[Configuration]:
    rng = np.random.default_rng(seed)
    return [sample_configuration(space, rng) for _ in range(n)]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_inactive_does_not_change_the_inputs(kind: KernelKind) -> None:
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


def test_unordered_categories_are_as_far_from_one_another_as_two_paths() -> None:
    three = ConfigurationSpace(space=[Categorical("kind", ["a", "b", "c"], default="a")])
    algorithms = (
        Algorithm(id="one", estimator="x.One", hyperparameters=three),
        Algorithm(id="two", estimator="x.Two"),
    )
    space = Space("kinds", (Step("model", algorithms),))
    search = GaussianSearch(space)
    kinds = [Configuration.of(space, ("one",), [{"kind": kind}]) for kind in "abc"]
    rows = search.inputs.of(search.inputs.encode([*kinds, *drawn(space, 9)]))
    distances = np.linalg.norm(rows[:3, None] - rows[None, :3], axis=-1)
    assert distances == pytest.approx(1 - np.eye(3))
    other = Configuration.of(space, ("two",), [{}])
    apart = rows[0] - search.inputs.of(search.inputs.encode([other]))[0]
    assert np.linalg.norm(apart) == pytest.approx(1.0)


def test_the_size_stands_behind_the_inputs() -> None:
    inputs = PipelineInputs(CandidateSpace(mixed_space()), "conditional")
    candidates = inputs.encode(drawn(mixed_space(), 4))
    each = inputs.at(candidates, np.array([0.0, 0.2, 0.5, 1.0]))
    assert each.shape == (4, inputs.width + 1)
    assert each[:, -1].tolist() == [0.0, 0.2, 0.5, 1.0]
    assert (each[:, :-1] == inputs.of(candidates)).all()
    assert inputs.at(candidates, 0.7)[:, -1].tolist() == [0.7] * 4


@pytest.mark.parametrize("kind", KINDS)
def test_the_kernel_within_lacks_only_the_amplitude(kind: KernelKind) -> None:
    inputs = PipelineInputs(CandidateSpace(mixed_space()), kind)
    rows = inputs.of(inputs.encode(drawn(mixed_space(), 9)))
    theta = np.array([p.start for p in inputs.within.parameters])
    within = inputs.within.covariance(theta, rows, rows)
    assert np.diag(within) == pytest.approx(1.0)
    amplified = inputs.kernel.covariance(np.append(np.log(3.0), theta), rows, rows)
    assert amplified == pytest.approx(3 * within)


def test_priors_are_those_that_are_given() -> None:
    asked: list[tuple[str, int]] = []

    def lengthscale(name: str, n: int) -> Parameter:
        asked.append((name, n))
        return Parameter(f"my {name}", 0.25, -1.0, 1.0, (0.25, 1.0))

    priors = Priors(lengthscale, lambda step: Parameter(f"of {step}", -2.0, -5.0, 5.0, (-2.0, 1.0)))
    inputs = PipelineInputs(CandidateSpace(mixed_space()), "conditional", priors)
    names = [p.name for p in inputs.within.parameters]
    assert {"of scale", "of model"} < set(names)
    assert all(name.startswith(("of ", "my ")) for name in names)
    assert asked == [(f"lengthscale {i}", len(asked)) for i in range(len(asked))]
