"""Draws of a Gaussian process's parameters, by an ensemble of walkers that goes on for ever.

The stretch moves are emcee's (Foreman-Mackey et al. 2013). The walkers are kept from one ask to the
next, so that a few sweeps do where a new chain would need its burn-in each time.
"""

from collections.abc import Callable, Sequence

import numpy as np
from emcee import EnsembleSampler, State

from prefect_tune.optimizers.surrogates.kernel import Array, Parameter

__all__ = ["advanced", "scattered"]


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
    walkers: Array = np.clip(near, lower + margin, upper - margin)
    return walkers


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
    moved: Array = last.coords
    return moved
