"""The Gaussian process beside scikit-learn's: fits with the same starts, and one more observation.

    tests/benchmarks/run optimizers/gaussian_process

Ten inputs, 100 and 300 observations of a function of three of them with noise. Both fit amplitude,
ten lengthscales and noise from the same five starts within the same bounds, without priors. Times
are medians of interleaved rounds, in seconds of processor time, one thread.
"""

import warnings
from statistics import median
from time import process_time

import numpy as np
from machine import Goals, describe
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from threadpoolctl import threadpool_limits

from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess
from prefect_tune.optimizers.surrogates.kernel import Constant, Parameter
from prefect_tune.optimizers.surrogates.log_posterior import log_posterior
from prefect_tune.optimizers.surrogates.noise import ConstantNoise
from prefect_tune.optimizers.surrogates.stationary import Matern52

D = 10
ROUNDS = 3
LOW, HIGH = -6.0, 4.0


def data(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.random((n, D))
    y = np.sin(5 * X[:, 0]) + 2 * (X[:, 1] - 0.4) ** 2 + X[:, 2] + 0.1 * rng.normal(size=n)
    return X, (y - y.mean()) / y.std()


def their_fit(X: np.ndarray, y: np.ndarray, starts: np.ndarray) -> tuple[float, float]:
    """Seconds, and the log marginal likelihood reached."""
    low, high = np.exp([LOW, HIGH])
    first = np.exp(starts[0])
    kernel = ConstantKernel(first[0], (low, high)) * Matern(first[1:-1], (low, high), nu=2.5)
    kernel += WhiteKernel(first[-1], (low, high))
    # Its restarts are uniform draws of its random state; they are replaced by the given starts.
    drawn = iter(starts[1:])

    class Given(np.random.RandomState):
        def uniform(self, *_: object, **__: object) -> np.ndarray:  # type: ignore[override]
            return next(drawn)

    model = GaussianProcessRegressor(
        kernel, n_restarts_optimizer=len(starts) - 1, random_state=Given(0), alpha=0.0
    )
    started = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    return process_time() - started, float(model.log_marginal_likelihood_value_)


def our_fit(X: np.ndarray, y: np.ndarray, starts: np.ndarray) -> tuple[float, float]:
    """The same of ours."""
    flat = [Parameter("flat", 0.0, LOW, HIGH)] * (D + 2)
    kernel = Constant(flat[0]) * Matern52(range(D), parameters=flat[1:-1])
    started = process_time()
    process = GaussianProcess.fit(
        kernel,
        X,
        y,
        rng=np.random.default_rng(0),
        mean=0.0,
        noise=ConstantNoise(flat[-1]),
        starts=starts,
        max_iterations=15_000,
    )
    seconds = process_time() - started
    reached, _ = log_posterior(
        kernel, process.theta, X, y[:, None], noise=ConstantNoise(flat[-1]), has_constant=False
    )
    return seconds, reached


def appending_milliseconds(n: int) -> float:
    X, y = data(n + 1, 9)
    kernel = Constant() * Matern52(range(D))
    theta = np.array([0.0, *[-0.5] * D, -3.0])
    process = GaussianProcess.given(kernel, theta, X[:n], y[:n])
    times = []
    for _ in range(20):
        started = process_time()
        process.appended(X[n:], y[n:])
        times.append(1000 * (process_time() - started))
    return median(times)


def main() -> None:
    print(describe())
    goals = Goals()
    for n in (100, 300):
        theirs, ours, gains = [], [], []
        for seed in range(ROUNDS):
            X, y = data(n, seed)
            rng = np.random.default_rng(seed)
            drawn = rng.uniform(LOW, HIGH, (4, D + 2))
            starts = np.vstack([[0.0, *[0.0] * D, -2.0], drawn])
            their_seconds, their_likelihood = their_fit(X, y, starts)
            our_seconds, our_likelihood = our_fit(X, y, starts)
            theirs.append(their_seconds)
            ours.append(our_seconds)
            gains.append(our_likelihood - their_likelihood)
        print(f"n={n}: scikit-learn {median(theirs):.2f} s, ours {median(ours):.2f} s")
        print(f"  ln likelihood, ours - theirs: {', '.join(f'{g:+.4f}' for g in gains)}")
        goals.at_least(f"times faster, n={n}", median(theirs) / median(ours), 3)
        goals.at_least(f"least gain in ln likelihood, n={n}", min(gains), -1e-3)
    goals.at_most("one more observation at n=300, ms", appending_milliseconds(300), 5)
    print(describe())
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
