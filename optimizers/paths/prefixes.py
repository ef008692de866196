"""Prefixes of pipelines as codes: equal where the same steps ran before with the same values.

Steps count in the order in which they run, and those that hand on what they were given do not.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.paths.running_order import RunningOrder
from prefect_tune.optimizers.space.candidate_space import CandidateSpace
from prefect_tune.optimizers.space.candidates import Candidates
from prefect_tune.optimizers.space.space import Path, Space

__all__ = ["CandidatePrefixes", "PathPrefixes"]

_NOTHING = 0
"""Code of the prefix in which nothing has run."""
_LATER = -2.0
"""Features of what does not belong to a prefix; real ones are at least -1."""


class PathPrefixes:
    """Numbers the prefixes of paths whose hyperparameters are given by their algorithms.

    Args:
        space: The space.
        order: In which its steps run.
    """

    def __init__(self, space: Space, order: RunningOrder) -> None:
        self._order = order
        self._is_idle = [{a.id: a.is_idle for a in s.algorithms} for s in space.searched]
        self._codes: dict[tuple[int, int, str], int] = {}

    def codes(self, path: Path) -> dict[int, int]:
        """Return the code of the prefix that ends with each step, in the order in which they run.

        Keys are positions of searched steps.
        """
        code, codes = _NOTHING, {}
        for k in self._order.of(path):
            if not self._is_idle[k][path[k]]:
                code = self._codes.setdefault((code, k, path[k]), len(self._codes) + 1)
            codes[k] = code
        return codes


class CandidatePrefixes:
    """Codes of the prefixes of candidates, with their values.

    Args:
        space: The space of the candidates.
        order: In which its steps run.
    """

    def __init__(self, space: CandidateSpace, order: RunningOrder) -> None:
        self._order = order
        steps = space.space.searched
        of_algorithm = np.repeat(np.arange(len(steps)), [len(s.algorithms) for s in steps])
        self._step = np.concatenate([of_algorithm, space.columns.step])
        self._is_idle = [np.array([a.is_idle for a in s.algorithms]) for s in steps]

    def of(
        self, candidates: Candidates, features: NDArray[np.float64]
    ) -> Sequence[NDArray[np.void]]:
        """Return by searched step the codes of the prefixes that end with it, shape (n,) each.

        Args:
            candidates: n of them.
            features: Theirs, shape (n, N + d).
        """
        n_steps = candidates.algorithms.shape[1]
        if self._order.is_declared:
            return [_rows(features[:, self._step <= k]) for k in range(n_steps)]
        places = self._order.places(candidates.algorithms)
        chosen = zip(self._is_idle, candidates.algorithms.T, strict=True)
        is_idle = np.column_stack([idle[column] for idle, column in chosen])
        prefixes = []
        for k in range(n_steps):
            ran = (places >= 0) & (places <= places[:, [k]]) & ~is_idle
            before = ran[:, None, :] & (places[:, None, :] < places[:, :, None])
            rank = np.where(ran, before.sum(axis=2), -1)
            inside = np.where(ran[:, self._step], features, _LATER)
            prefixes.append(_rows(np.hstack([inside, rank])))
        return prefixes


def _rows(parts: NDArray[np.float64]) -> NDArray[np.void]:
    """Return each row as one code."""
    rows = np.ascontiguousarray(parts)
    # Not by strides: those of a single row may say anything.
    return rows.view((np.void, rows.shape[1] * rows.itemsize)).ravel()
