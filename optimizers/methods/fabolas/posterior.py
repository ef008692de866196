"""The belief in losses over configurations and sizes: one Gaussian process, or one per model.

With many results the pipelines of each model algorithm get a process of their own, independent of
the others, at a cost that falls with the square of their number; the minimiser is sought over all
of them together. All values are in the unit of the targets, which are standardised over all models:
the processes divide them by nothing more.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.acquisitions.entropy import Minimiser, information_gain
from prefect_tune.optimizers.surrogates.fidelity_kernel import Basis, latents_of
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess

Array = NDArray[np.floating[Any]]

EVERYTHING = -1
"""Key of the one process of all pipelines."""


def model_keys(inputs: Array, column: int | None) -> NDArray[np.intp]:
    """Return by row which process it belongs to, shape (n,).

    Args:
        inputs: Shape (n, d).
        column: The input that says which model a pipeline has; None for one process of all.
    """
    if column is None:
        return np.full(len(inputs), EVERYTHING, dtype=np.intp)
    return inputs[:, column].astype(np.intp)


@dataclass(frozen=True, slots=True)
class Posterior:
    """One hyperparameter sample of the belief.

    Attributes:
        processes: By key.
        column: See `model_keys`.
    """

    processes: Mapping[int, GaussianProcess]
    column: int | None = None

    def knows(self, inputs: Array) -> NDArray[np.bool_]:
        """Return which rows have a process: not those of a model of which nothing is known."""
        return np.isin(model_keys(inputs, self.column), list(self.processes))

    def predict(self, inputs: Array) -> tuple[Array, Array]:
        """Return means and variances without noise, shape (n,), of rows that it knows."""
        mean, variance = np.empty(len(inputs)), np.empty(len(inputs))
        for rows, process in self._parts(inputs):
            mean[rows], deviation = process.predict(inputs[rows])
            variance[rows] = deviation**2
        return mean, variance

    def noise(self, inputs: Array) -> Array:
        """Return the variance of outcomes around the function, shape (n,)."""
        noise = np.empty(len(inputs))
        for rows, process in self._parts(inputs):
            noise[rows] = process.noise_variance(inputs[rows])
        return noise

    def joint(self, inputs: Array) -> tuple[Array, Array]:
        """Return means, (n,), and covariance, (n, n), of rows together."""
        mean, covariance = np.empty(len(inputs)), np.zeros((len(inputs), len(inputs)))
        for rows, process in self._parts(inputs):
            own, block = process.joint(inputs[rows])
            mean[rows], covariance[np.ix_(rows, rows)] = own[:, 0], block
        return mean, covariance

    def gains(
        self,
        minimiser: Minimiser,
        representers: Array,
        inputs: Array,
        basis: Basis,
        sizes: Array,
    ) -> Array:
        """Return the information that candidates give about the minimiser, shape (C, M), in nats.

        Args:
            minimiser: Of the representers, by this posterior.
            representers: Shape (R, d), at s = 1.
            inputs: Of C candidates.
            basis: That of the processes' kernels.
            sizes: s of M sizes, shape (M,).
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

    def with_outcomes_drawn(self, inputs: Array, rng: np.random.Generator) -> "Posterior":
        """Return it as if rows under way had come back with outcomes drawn from it, in turn.

        Averaged over hyperparameter samples this integrates over the outcomes (Snoek et al. 2012).
        """
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
