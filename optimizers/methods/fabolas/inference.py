"""The processes of losses and seconds, with parameters fitted or drawn by walkers (section 3.4).

A belief in losses is one Gaussian process. With many results, it has one process per model
algorithm, which divides the cost by the square of their number. The minimiser is sought over all.
Targets are standardised over all models, and the processes do not rescale them.

The stretch moves are emcee's (Foreman-Mackey et al. 2013). Walkers persist between asks, so a few
sweeps suffice where a new chain would need a burn-in. With many parameters, or few observations,
the most likely parameters are used.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from emcee import EnsembleSampler, State
from numpy.random import Generator
from numpy.typing import NDArray

from prefect_tune.optimizers.acquisitions.entropy import Minimiser, information_gain
from prefect_tune.optimizers.methods.fabolas.rules import RULES
from prefect_tune.optimizers.space.unit_interval import Array
from prefect_tune.optimizers.surrogates.fidelity_kernel import Basis, latents_of
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess
from prefect_tune.optimizers.surrogates.kernel import Kernel, Noise, Parameter
from prefect_tune.optimizers.surrogates.log_posterior import log_posterior_value
from prefect_tune.optimizers.surrogates.random_forest import LossMean

EVERYTHING = -1
"""Key of the one process of all pipelines."""


def model_keys(inputs: Array, column: int | None) -> NDArray[np.intp]:
    """Return the key of each row's process, shape (n,), from the input with the model, if any."""
    if column is None:
        return np.full(len(inputs), EVERYTHING, dtype=np.intp)
    return inputs[:, column].astype(np.intp)


@dataclass(frozen=True, slots=True)
class Posterior:
    """One hyperparameter sample of the belief: processes by key (see `model_keys`).

    `older_mean` is the mean of all processes by older observations, in standardised losses.
    """

    processes: Mapping[int, GaussianProcess]
    column: int | None = None
    older_mean: LossMean | None = None

    def knows(self, inputs: Array) -> NDArray[np.bool_]:
        """Return which rows have a process; models without observations have none."""
        return np.isin(model_keys(inputs, self.column), list(self.processes))

    def predict(self, inputs: Array) -> tuple[Array, Array]:
        """Return means and noise-free variances, shape (n,), of rows that have a process."""
        mean, variance = np.empty(len(inputs)), np.empty(len(inputs))
        for rows, process in self._parts(inputs):
            mean[rows], deviation = process.predict(inputs[rows])
            variance[rows] = deviation**2
        return mean + self._older(inputs), variance

    def noise(self, inputs: Array) -> Array:
        """Return the variance of outcomes around the function, shape (n,)."""
        noise = np.empty(len(inputs))
        for rows, process in self._parts(inputs):
            noise[rows] = process.noise_variance(inputs[rows])
        return noise

    def joint(self, inputs: Array) -> tuple[Array, Array]:
        """Return the joint means, (n,), and covariance, (n, n), of rows."""
        mean, covariance = np.empty(len(inputs)), np.zeros((len(inputs), len(inputs)))
        for rows, process in self._parts(inputs):
            own, block = process.joint(inputs[rows])
            mean[rows], covariance[np.ix_(rows, rows)] = own[:, 0], block
        return mean + self._older(inputs), covariance

    def _older(self, inputs: Array) -> Array | float:
        return 0.0 if self.older_mean is None else self.older_mean(inputs)

    def gains(
        self, minimiser: Minimiser, representers: Array, inputs: Array, basis: Basis, sizes: Array
    ) -> Array:
        """Return the information that C candidates give about the minimiser, shape (C, M), in nats.

        Representers are inputs at s = 1, shape (R, d); `sizes` has s of M sizes.
        """
        gains = np.empty((len(inputs), len(sizes)))
        keys, phi = model_keys(representers, self.column), basis.functions(sizes)
        for rows, process in self._parts(inputs):
            mine = keys == model_keys(inputs[rows[:1]], self.column)[0]
            latents = latents_of(process, inputs[rows], representers[mine])
            cross = np.zeros((len(rows), phi.shape[1], len(representers)))
            cross[:, :, mine] = latents.cross
            at_sizes = np.repeat(inputs[rows[:1]], len(sizes), axis=0)
            at_sizes[:, -1] = sizes
            noise = process.noise_variance(at_sizes)
            gains[rows] = information_gain(
                minimiser, replace(latents, cross=cross), phi, np.maximum(noise, 1e-9)
            )
        return gains

    def with_outcomes_drawn(self, inputs: Array, rng: Generator) -> "Posterior":
        """Return the posterior after outcomes of pending rows are drawn (Snoek et al. 2012)."""
        processes = dict(self.processes)
        for row in inputs:
            key = int(model_keys(row[None], self.column)[0])
            if key not in processes:
                continue
            process = processes[key]
            mean, deviation = process.predict(row[None])
            spread = np.sqrt(deviation**2 + process.noise_variance(row[None]))
            processes[key] = process.appended(row[None], mean + spread * rng.standard_normal(1))
        return replace(self, processes=processes)

    def _parts(self, inputs: Array) -> Iterator[tuple[NDArray[np.intp], GaussianProcess]]:
        keys = model_keys(inputs, self.column)
        for key in np.unique(keys):
            yield np.flatnonzero(keys == key), self.processes[int(key)]


def scattered(
    parameters: Sequence[Parameter], centre: Array, rng: Generator, n: int | None = None
) -> Array:
    """Return 2 (p + 1) or n walkers around a point, mixed with prior draws, shape (n, p)."""
    p = len(parameters)
    n = max(n or 0, 2 * (p + 1))
    drawn = np.array([[q.draw(rng) for q in parameters] for _ in range(n)]).reshape(n, p)
    near = rng.random((n, 1)) * (drawn - centre) + centre
    lower, upper = (np.array([getattr(q, at) for q in parameters]) for at in ("lower", "upper"))
    # Walkers that all lie on a bound could never leave it.
    margin = 1e-6 * (upper - lower) * (1 + rng.random((n, p)))
    return np.clip(near, lower + margin, upper - margin)


def advanced(
    walkers: Array, log_density: Callable[[Array], float], n_sweeps: int, rng: Generator
) -> Array:
    """Return the walkers, (n, p), after sweeps that move each once; `log_density` may be -inf."""
    n, p = walkers.shape
    sampler = EnsembleSampler(n, p, log_density)
    state = State(walkers, random_state=np.random.RandomState(rng.integers(2**32)).get_state())
    last = sampler.run_mcmc(state, n_sweeps, skip_initial_state_check=True, store=False)
    return last.coords


Inference = Literal["ensemble", "map"]


@dataclass(frozen=True, slots=True)
class Group:
    """The observations of one process: inputs, (n, d), and standardised targets, (n,)."""

    inputs: Array
    targets: Array

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True, slots=True)
class Regression:
    """Processes of one kernel and noise, with fitted parameters or `n_samples` drawn ones."""

    kernel: Kernel
    noise: Noise
    inference: Inference = "map"
    n_samples: int = 1

    def learned(
        self, groups: Mapping[int, Group], kept: Mapping[str, Mapping[str, Any]], rng: Generator
    ) -> dict[str, dict[str, Any]]:
        """Return the parameters of each process as JSON values by key, starting from `kept`."""
        start: Mapping[str, Any] = {}
        if str(EVERYTHING) in kept:  # the single process was split since then
            start = {"thetas": kept[str(EVERYTHING)]["thetas"], "n": 0}
        return {
            str(key): self._learned_of(group, kept.get(str(key), start), rng)
            for key, group in groups.items()
        }

    def posteriors(
        self,
        groups: Mapping[int, Group],
        kept: Mapping[str, Mapping[str, Any]],
        column: int | None,
        older_mean: LossMean | None = None,
    ) -> tuple[Posterior, ...]:
        """Return a posterior per draw, from kept parameters and current observations."""
        thetas: dict[int, Any] = {}
        for key in groups:
            own = kept.get(str(key), kept.get(str(EVERYTHING)))
            if key == EVERYTHING:
                own = own or next(iter(kept.values()), None)
            if own is not None:
                thetas[key] = own["thetas"]
        n = max((len(own) for own in thetas.values()), default=0)
        return tuple(
            Posterior(
                {
                    key: GaussianProcess.given(
                        self.kernel,
                        np.array(own[k % len(own)]),
                        groups[key].inputs,
                        groups[key].targets,
                        mean=0.0,
                        noise=self.noise,
                        scale=1.0,
                    )
                    for key, own in thetas.items()
                },
                column,
                older_mean,
            )
            for k in range(n)
        )

    def _learned_of(self, group: Group, kept: Mapping[str, Any], rng: Generator) -> dict[str, Any]:
        parameters = (*self.kernel.parameters, *self.noise.parameters)
        is_drawn = self.inference == "ensemble" and len(parameters) <= RULES.most_sampled
        if not is_drawn or len(group) < RULES.drawn_from or not group.targets.any():
            return self._fitted(group, kept, rng)
        if "walkers" in kept:
            walkers, n_sweeps = np.array(kept["walkers"]), RULES.sweeps
        else:
            centre = np.array(self._fitted(group, kept, rng)["thetas"][0])
            walkers, n_sweeps = scattered(parameters, centre, rng), RULES.burn_in
        targets = group.targets[:, None]

        def log_density(theta: Array) -> float:
            return log_posterior_value(
                self.kernel, theta, group.inputs, targets, noise=self.noise, has_constant=False
            )

        walkers = advanced(walkers, log_density, n_sweeps, rng)
        drawn = [[round(float(x), 6) for x in w] for w in rng.permutation(walkers)]
        return {"walkers": drawn, "thetas": drawn[: self.n_samples], "n": len(group)}

    def _fitted(self, group: Group, kept: Mapping[str, Any], rng: Generator) -> dict[str, Any]:
        n, start = len(group), np.array(kept["thetas"][0]) if kept else None
        is_large = n > RULES.fitted_always
        if start is not None and is_large and n - kept["n"] < RULES.fitted_after:
            return {"thetas": [list(start)], "n": kept["n"]}
        process = GaussianProcess.fit(
            self.kernel,
            group.inputs,
            group.targets,
            rng=rng,
            mean=0.0,
            noise=self.noise,
            scale=1.0,
            warm_start=start,
            n_restarts=int(start is None),
            max_iterations=RULES.fit_iterations,
        )
        return {"thetas": [[round(float(x), 6) for x in process.theta]], "n": n}
