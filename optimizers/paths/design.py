"""Which paths to run first: greedy optimal design over one-hot paths (FLASH, section 3.2)."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Criterion", "design_order", "design_rank"]

Criterion = Literal["d_optimal", "random"]

_TIE = 1e-9
"""Gains nearer than this are equal."""
_EXHAUSTED = 1e-6
"""A gain below this is rounding: the paths chosen span all others."""


def design_rank(n_algorithms: int, n_steps: int) -> int:
    """Return N - K + 1, the rank of the one-hot paths of a full product."""
    return n_algorithms - n_steps + 1


def design_order(
    paths: NDArray[np.floating[Any]],
    n: int,
    criterion: Criterion,
    rng: np.random.Generator | None = None,
    start: Sequence[int] = (),
) -> list[int]:
    """Return `n` paths in the order to run them; repeats where fewer are of use.

    Args:
        paths: One-hot paths that can be chosen, shape (B, N).
        n: How many to choose.
        criterion: `d_optimal` maximises the product of the leading eigenvalues of the sum of pp',
            as the paper does; `random` is the ablation.
        rng: Breaks ties and draws the start; without it the lowest index is taken.
        start: Indices of the first paths; one is drawn when none is given.
    """
    if criterion == "random":
        rng = rng or np.random.default_rng(0)
        rounds = [rng.permutation(len(paths)) for _ in range(-(-n // len(paths)))]
        return [int(i) for i in np.concatenate(rounds)[:n]]
    first = list(start) or [int(rng.integers(len(paths))) if rng else 0]
    chosen = _independent(paths, first, n, rng)
    if len(chosen) == n:
        return chosen
    # Once the chosen paths span all others the paper's product is 0 for every path, and what
    # follows maximises the determinant on the range of the sum.
    inverse: NDArray[np.floating[Any]] = np.linalg.pinv(
        paths[chosen].T @ paths[chosen], rcond=1e-10, hermitian=True
    )
    return _greedy(paths, chosen, inverse, n, rng)


def _independent(
    paths: NDArray[np.floating[Any]],
    first: Sequence[int],
    n: int,
    rng: np.random.Generator | None,
) -> list[int]:
    """Return the first paths, then greedy D-optimal picks while they are independent.

    With S the picks and G = P_S P_S', adding path j multiplies det(G) by K - g_j'G^-1 g_j: the
    squared distance of j from the span of S, kept up to date by Gram-Schmidt.
    """
    distance = np.einsum("ij,ij->i", paths, paths)
    basis = np.empty((0, paths.shape[1]))
    chosen: list[int] = []
    while len(chosen) < n:
        pick = first[len(chosen)] if len(chosen) < len(first) else _pick(distance, rng)
        if distance[pick] < _EXHAUSTED:
            break
        chosen.append(pick)
        direction = paths[pick] - basis.T @ (basis @ paths[pick])
        direction -= basis.T @ (basis @ direction)  # twice is enough against rounding
        direction /= np.linalg.norm(direction)
        basis = np.vstack([basis, direction])
        distance = distance - (paths @ direction) ** 2
    return chosen


def _greedy(
    paths: NDArray[np.floating[Any]],
    chosen: list[int],
    inverse: NDArray[np.floating[Any]],
    n: int,
    rng: np.random.Generator | None,
) -> list[int]:
    """Continue with the path of largest p'A p, A <- A - (Ap)(Ap)'/(1 + p'Ap)."""
    chosen = list(chosen)
    while len(chosen) < n:
        leverage = np.einsum("ij,ij->i", paths @ inverse, paths)
        pick = _pick(leverage, rng)
        chosen.append(pick)
        direction = inverse @ paths[pick]
        inverse = inverse - np.outer(direction, direction) / (1 + leverage[pick])
    return chosen


def _pick(gains: NDArray[np.floating[Any]], rng: np.random.Generator | None) -> int:
    best = np.flatnonzero(gains >= gains.max() - _TIE)
    return int(best[0] if rng is None else best[rng.integers(len(best))])
