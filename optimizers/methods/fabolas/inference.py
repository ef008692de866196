"""The parameters of the processes: fitted, or drawn by an ensemble of walkers (section 3.4).

The stretch moves are emcee's (Foreman-Mackey et al. 2013). The walkers are kept from one ask to the
next, so a few sweeps do where a new chain would need its burn-in each time. With many parameters,
or with few observations, the most likely ones are taken.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from emcee import EnsembleSampler, State

from prefect_tune.optimizers.methods.fabolas.posterior import EVERYTHING, Posterior
from prefect_tune.optimizers.methods.fabolas.rules import RULES
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess
from prefect_tune.optimizers.surrogates.kernel import Array, Kernel, Parameter
from prefect_tune.optimizers.surrogates.log_posterior import log_posterior_value
from prefect_tune.optimizers.surrogates.noise import Noise


def scattered(
    parameters: Sequence[Parameter], centre: Array, rng: np.random.Generator, n: int | None = None
) -> Array:
    """Return walkers around a point, mixed with draws of the priors, shape (n, p).

    Args:
        parameters: Their bounds hold.
        centre: For instance the most likely parameters, shape (p,).
        rng: Source of randomness.
        n: Walkers, at least 2 (p + 1), which is the default.
    """
    p = len(parameters)
    n = max(n or 0, 2 * (p + 1))
    drawn = np.array([[q.draw(rng) for q in parameters] for _ in range(n)]).reshape(n, p)
    near = rng.random((n, 1)) * (drawn - centre) + centre
    lower, upper = (np.array([getattr(q, at) for q in parameters]) for at in ("lower", "upper"))
    # Walkers on a bound in one plane could not leave it.
    margin = 1e-6 * (upper - lower) * (1 + rng.random((n, p)))
    return np.clip(near, lower + margin, upper - margin)


def advanced(
    walkers: Array,
    log_density: Callable[[Array], float],
    n_sweeps: int,
    rng: np.random.Generator,
) -> Array:
    """Return the walkers after some sweeps, shape (n, p).

    Args:
        walkers: Shape (n, p).
        log_density: Of one theta, up to a constant; -inf where there is none.
        n_sweeps: Moves of each walker.
        rng: Source of randomness.
    """
    n, p = walkers.shape
    sampler = EnsembleSampler(n, p, log_density)
    state = State(walkers, random_state=np.random.RandomState(rng.integers(2**32)).get_state())
    last = sampler.run_mcmc(state, n_sweeps, skip_initial_state_check=True, store=False)
    return last.coords


Inference = Literal["ensemble", "map"]


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
            )
            for k in range(n)
        )

    def _learned_of(
        self, group: Group, kept: Mapping[str, Any], rng: np.random.Generator
    ) -> dict[str, Any]:
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

    def _fitted(
        self, group: Group, kept: Mapping[str, Any], rng: np.random.Generator
    ) -> dict[str, Any]:
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
