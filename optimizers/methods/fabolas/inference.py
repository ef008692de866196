"""How the parameters of the processes are found, and what of them is kept from ask to ask.

They are drawn by an ensemble of walkers that goes on from one ask to the next; with many of them,
or with few observations, the most likely ones are taken (Fabolas sheet, 1.5).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.methods.fabolas.posterior import EVERYTHING, Posterior
from prefect_tune.optimizers.surrogates.ensemble_sampler import advanced, scattered
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess
from prefect_tune.optimizers.surrogates.kernel import Kernel
from prefect_tune.optimizers.surrogates.log_posterior import log_posterior_value
from prefect_tune.optimizers.surrogates.noise import Noise

__all__ = ["Group", "Inference", "Regression"]

Array = NDArray[np.floating[Any]]
Inference = Literal["ensemble", "map"]

_FEW = 10
"""With fewer observations the most likely parameters are taken."""
_MOST_SAMPLED = 24
"""With more parameters the walkers would take longer than most evaluations."""
_BURN_IN, _SWEEPS = 60, 8
_FIT_ITERATIONS = 20
_MOST_FITTED_EACH_TIME = 64
_FITTED_AFTER = 3


@dataclass(frozen=True, slots=True)
class Group:
    """The observations of one process.

    Attributes:
        inputs: Shape (n, d).
        targets: Standardised over all groups, shape (n,).
    """

    inputs: Array
    targets: Array

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True, slots=True)
class Regression:
    """Processes of one kernel and noise, with their parameters drawn or fitted.

    Attributes:
        kernel: Over configurations and sizes.
        noise: Around them.
        inference: Whether their parameters are drawn.
        n_samples: How many draws.
    """

    kernel: Kernel
    noise: Noise
    inference: Inference = "map"
    n_samples: int = 1

    def learned(
        self,
        groups: Mapping[int, Group],
        kept: Mapping[str, Mapping[str, Any]],
        rng: np.random.Generator,
    ) -> dict[str, dict[str, Any]]:
        """Return the parameters of each process, as JSON values by key.

        Args:
            groups: Observations by key.
            kept: Returned by an earlier ask.
            rng: Source of randomness.
        """
        start: Mapping[str, Any] = {}
        if str(EVERYTHING) in kept:  # a process that is now parted
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
    ) -> tuple[Posterior, ...]:
        """Return a posterior per draw, with parameters that were kept and observations of now.

        Of a process that has been parted, or put together, since they were kept, they are those of
        the one before.
        """
        thetas = {key: own["thetas"] for key in groups if (own := _last(kept, key)) is not None}
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
            )
            for k in range(n)
        )

    def _learned_of(
        self, group: Group, kept: Mapping[str, Any], rng: np.random.Generator
    ) -> dict[str, Any]:
        parameters = (*self.kernel.parameters, *self.noise.parameters)
        is_drawn = self.inference == "ensemble" and len(parameters) <= _MOST_SAMPLED
        if not is_drawn or len(group) < _FEW or not group.targets.any():
            return self._fitted(group, kept, rng)
        if "walkers" in kept:
            walkers, n_sweeps = np.array(kept["walkers"]), _SWEEPS
        else:
            centre = np.array(self._fitted(group, kept, rng)["thetas"][0])
            walkers, n_sweeps = scattered(parameters, centre, rng), _BURN_IN
        targets = group.targets[:, None]

        def log_density(theta: Array) -> float:
            return log_posterior_value(
                self.kernel, theta, group.inputs, targets, noise=self.noise, has_constant=False
            )

        walkers = advanced(walkers, log_density, n_sweeps, rng)
        drawn = [[round(float(x), 6) for x in w] for w in rng.permutation(walkers)]
        return {"walkers": drawn, "thetas": drawn[: self.n_samples], "n": len(group)}

    def _fitted(
        self, group: Group, kept: Mapping[str, Any], rng: np.random.Generator
    ) -> dict[str, Any]:
        n, start = len(group), np.array(kept["thetas"][0]) if kept else None
        if start is not None and n > _MOST_FITTED_EACH_TIME and n - kept["n"] < _FITTED_AFTER:
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
            max_iterations=_FIT_ITERATIONS,
        )
        return {"thetas": [[round(float(x), 6) for x in process.theta]], "n": n}


def _last(kept: Mapping[str, Mapping[str, Any]], key: int) -> Mapping[str, Any] | None:
    """Return what was kept of a process: of its own, else of that of all, else of a part of it."""
    if key == EVERYTHING:
        return kept.get(str(key)) or next(iter(kept.values()), None)
    return kept.get(str(key), kept.get(str(EVERYTHING)))
