"""A Gaussian process over pipelines, and the search for the candidate of largest improvement.

Inputs of the process: the path one-hot, numbers and ordered values on [0, 1], unordered categories
one-hot, what is inactive at its default. Candidates start from Sobol points and from the best
observed; their numbers are polished by L-BFGS-B on the continuous relaxation, and then the
neighbours of integers, categories and algorithms are tried.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import qmc

from prefect_tune.optimizers.acquisitions.augmented_improvement import AugmentedImprovement
from prefect_tune.optimizers.space.candidates import Candidates, CandidateSpace
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.grids import grid_of
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess
from prefect_tune.optimizers.surrogates.kernels import (
    Conditional,
    Constant,
    Kernel,
    Matern52,
    Product,
)

__all__ = ["GaussianSearch", "KernelKind", "Penalty"]

Array = NDArray[np.floating[Any]]
KernelKind = Literal["one_hot", "conditional"]
"""One Matern kernel over all inputs, or a product over the steps of what their choices share."""
Penalty = Callable[[Candidates], Array]
"""What is added to the loss of each candidate, shape (n,)."""

_SOBOL = 8
"""2^8 Sobol points an ask."""
_N_STARTS = 5
"""Best observed points whose neighbourhood is searched."""
_N_NEIGHBOURS = 24
_N_POLISHED = 3
_POLISH_ITERATIONS = 15
_N_CLIMBS = 2
_MOST_LENGTHSCALES = 20
"""With more hyperparameters than this, those of an algorithm share a lengthscale."""
_FIT_ITERATIONS = 20
_EVERY_FIT = 64
"""Up to so many observations the process is fitted at each ask, then at each third."""


class GaussianSearch:
    """Tables of one space; it keeps no observation.

    Args:
        space: The space.
        kernel: How pipelines of different algorithms are compared.
    """

    def __init__(self, space: Space, kernel: KernelKind = "one_hot") -> None:
        self.space = space
        self.candidates = CandidateSpace(space)
        columns = self.candidates.encoding.columns
        self.grids = [grid_of(self.candidates.encoding.hyperparameter(c)) for c in columns]
        self._is_free = np.array([g is None for g in self.grids], dtype=np.bool_)
        self._sizes = [len(s.algorithms) for s in space.searched]
        self._lay_out(kernel)
        self._default = self._positions(self.candidates.default_units[None])

    @property
    def has_inputs(self) -> bool:
        """Whether there is anything to choose."""
        return self.space.n_paths > 1 or self.space.n_hyperparameters > 0

    def inputs(self, candidates: Candidates) -> Array:
        """What the process sees, shape (n, d)."""
        active = self.candidates.active(candidates)
        positions = self._positions(candidates.units)
        for column, inside in enumerate(self._inside):
            positions[:, inside] = np.where(
                active[:, [column]], positions[:, inside], self._default[:, inside]
            )
        if self._kernel_kind != "one_hot":
            return np.hstack([candidates.algorithms[:, self._choosing], positions])
        one_hot = [
            np.eye(self._sizes[k])[candidates.algorithms[:, k]] / np.sqrt(2) for k in self._choosing
        ]
        return np.hstack([*one_hot, positions])

    def learned(
        self,
        observed: Candidates,
        targets: Array,
        rng: np.random.Generator,
        theta: Sequence[float] | None = None,
        pending: Sequence[Configuration] = (),
    ) -> tuple[GaussianProcess, list[float]]:
        """The process of these observations, and its parameters for the next ask.

        It is fitted each time while observations are few, and then at each third.

        Args:
            observed: n candidates.
            targets: Shape (n, t).
            rng: Draws a second start where there is no theta.
            theta: Where the fit starts, from an earlier ask.
            pending: What is under way; it is taken to return the process's mean.
        """
        inputs = self.inputs(observed)
        if theta is not None and len(theta) != len(self.kernel.parameters) + 1:
            theta = None
        start = None if theta is None else np.array(theta)
        if start is not None and len(inputs) > _EVERY_FIT and len(inputs) % 3:
            process = GaussianProcess.given(self.kernel, start, inputs, targets)
        else:
            process = GaussianProcess.fit(
                self.kernel,
                inputs,
                targets,
                rng=rng,
                warm_start=start,
                n_restarts=int(start is None),
                max_iterations=_FIT_ITERATIONS,
            )
        kept = [round(float(x), 6) for x in process.theta]
        if pending:
            process = process.imagining(self.inputs(self.encode(pending)))
        return process, kept

    def ranked(
        self,
        acquisition: AugmentedImprovement,
        observed: Candidates,
        rng: np.random.Generator,
        penalty: Penalty | None = None,
        within: tuple[Array, Array] | None = None,
    ) -> Candidates:
        """Candidates by falling improvement.

        Args:
            acquisition: Scores inputs.
            observed: Points to start from, the best first.
            rng: Source of randomness.
            penalty: What is added to the loss of a candidate.
            within: Lower and upper units that continuous columns are kept between, shape (d,).
        """
        added = penalty or (lambda candidates: np.zeros(len(candidates)))

        def score(candidates: Candidates) -> Array:
            return acquisition.score(self.inputs(candidates), added(candidates))

        starts = observed[:_N_STARTS]
        pool = _scaled(self._drawn(rng), within).joined(starts)
        for deviation in (0.2, 0.05):
            near, _ = self.candidates.neighbours(starts, _N_NEIGHBOURS, rng, deviation)
            pool = pool.joined(near)
        pool = self._snapped(_boxed(pool, within))
        scores = score(pool)
        best = pool[np.argsort(-scores, kind="stable")[:_N_POLISHED]]
        polished = self._polished(best, acquisition, added(best), within)
        pool, scores = pool.joined(polished), np.append(scores, score(polished))
        for _ in range(_N_CLIMBS):
            leader = pool[[int(np.argmax(scores))]]
            around = _boxed(self._steps_around(leader, rng), within)
            if not len(around):
                break
            found = score(around)
            is_better = found.max() > scores.max()
            pool, scores = pool.joined(around), np.append(scores, found)
            if not is_better:
                break
        return pool[np.argsort(-scores, kind="stable")]

    def new_configurations(
        self, ranked: Candidates, asked: AbstractSet[Configuration]
    ) -> Iterator[Configuration]:
        """Those that were not asked for, in order."""
        for row in range(len(ranked)):
            configuration = self.candidates.decode(ranked, row)
            if configuration is not None and configuration not in asked:
                yield configuration

    def encode(self, configurations: Iterable[Configuration]) -> Candidates:
        """Configurations as candidates, inactive hyperparameters at their defaults."""
        encoded = self.candidates.encode(configurations)
        active = self.candidates.active(encoded)
        units = np.where(active, encoded.units, self.candidates.default_units)
        return Candidates(encoded.algorithms, units)

    def _lay_out(self, kind: KernelKind) -> None:
        """Inputs of each column, their groups, and the kernel over them."""
        columns = self.candidates.encoding.columns
        self._kernel_kind = kind
        self.kernel: Kernel
        self._choosing = [k for k, n in enumerate(self._sizes) if n > 1]
        widths = [1 if g is None or g.is_ordered else len(g.units) for g in self.grids]
        ends = np.cumsum([0, *widths])
        self._inside = [np.arange(ends[i], ends[i + 1]) for i in range(len(columns))]
        is_tied = len(columns) > _MOST_LENGTHSCALES
        keys = [column[: 2 if is_tied else 3] for column in columns]
        of_inputs = [key for key, width in zip(keys, widths, strict=True) for _ in range(width)]
        if kind != "one_hot":
            n_choices = len(self._choosing)
            self.kernel = Product([Constant(), *self._step_kernels(of_inputs, n_choices)])
        else:
            steps = [("step", str(k)) for k in self._choosing for _ in range(self._sizes[k])]
            n_choices = len(steps)
            self.kernel = _tied_matern([*steps, *of_inputs], 0)
        self._n_choice_inputs = n_choices

    def _step_kernels(self, of_inputs: list[tuple[str, ...]], first: int) -> list[Kernel]:
        """rho_j + (1 - rho_j) same_j k_j of each step (Fabolas for pipelines)."""
        parts: list[Kernel] = []
        for k, step in enumerate(self.space.searched):
            mine = [i for i, key in enumerate(of_inputs) if key[0] == step.name]
            places = [first + i for i in mine]
            within = _tied_matern([of_inputs[i] for i in mine], places) if mine else None
            if k in self._choosing:
                parts.append(Conditional(self._choosing.index(k), within))
            elif within is not None:
                parts.append(within)
        return parts

    def _positions(self, units: Array) -> Array:
        """Inputs of all hyperparameters, shape (n, width)."""
        parts = []
        for column, grid in enumerate(self.grids):
            u = units[:, column]
            if grid is None:
                parts.append(u[:, None])
            elif grid.is_ordered:
                parts.append(grid.positions[grid.index(u)][:, None])
            else:
                parts.append(np.eye(len(grid.units))[grid.index(u)] / np.sqrt(2))
        return np.hstack([np.zeros((len(units), 0)), *parts])

    def _snapped(self, candidates: Candidates) -> Candidates:
        """Discrete units moved onto their values."""
        units = candidates.units.copy()
        for column, grid in enumerate(self.grids):
            if grid is not None:
                units[:, column] = grid.units[grid.index(units[:, column])]
        return Candidates(candidates.algorithms, units)

    def _drawn(self, rng: np.random.Generator) -> Candidates:
        drawn = self.candidates.sample(2**_SOBOL, rng)
        d = drawn.units.shape[1]
        if not d:
            return drawn
        sobol = qmc.Sobol(d, seed=rng).random_base2(_SOBOL)
        return Candidates(drawn.algorithms, sobol[: len(drawn)])

    def _polished(
        self,
        points: Candidates,
        acquisition: AugmentedImprovement,
        penalties: Array,
        within: tuple[Array, Array] | None,
    ) -> Candidates:
        """All points moved uphill at once in their active numbers: their sum is separable."""
        free = self.candidates.active(points) & self._is_free
        if not free.any():
            return points
        rows, columns = np.nonzero(free)
        places = self._n_choice_inputs + np.array([self._inside[c][0] for c in columns])
        inputs = self.inputs(points)
        lower, upper = within or (np.zeros(len(self.grids)), np.ones(len(self.grids)))

        def objective(units: Array) -> tuple[float, Array]:
            inputs[rows, places] = units
            score, gradient = acquisition.score_with_gradient(inputs, penalties)
            return -float(score.sum()), -gradient[rows, places]

        found = minimize(
            objective,
            np.clip(points.units[rows, columns], lower[columns], upper[columns]),
            jac=True,
            method="L-BFGS-B",
            bounds=np.column_stack([lower[columns], upper[columns]]),
            options={"maxiter": _POLISH_ITERATIONS},
        )
        units = points.units.copy()
        units[rows, columns] = found.x
        return Candidates(points.algorithms, units)

    def _steps_around(self, leader: Candidates, rng: np.random.Generator) -> Candidates:
        """One integer a step up or down, another category, or another algorithm."""
        active = self.candidates.active(leader)[0]
        moved: list[Array] = []
        for column, grid in enumerate(self.grids):
            if grid is None or not active[column]:
                continue
            here = int(grid.index(leader.units[0, column]))
            others = (here - 1, here + 1) if grid.is_ordered else range(len(grid.units))
            for i in others:
                if 0 <= i < len(grid.units) and i != here:
                    units = leader.units[0].copy()
                    units[column] = grid.units[i]
                    moved.append(units)
        shape = len(moved), leader.units.shape[1]
        rows: NDArray[np.float64] = np.array(moved, dtype=np.float64).reshape(shape)
        around = Candidates(np.repeat(leader.algorithms, len(moved), axis=0), rows)
        if self.space.n_paths > 1:
            near, _ = self.candidates.neighbours(leader, 4 * _N_NEIGHBOURS, rng, 0.05)
            around = around.joined(self._snapped(near))
        return around


def _tied_matern(keys: list[tuple[str, ...]], places: list[int] | int) -> Kernel:
    """Amplitude times Matern over inputs of which those with an equal key share a lengthscale."""
    names = list(dict.fromkeys(keys))
    groups = [names.index(key) for key in keys]
    if isinstance(places, int):
        return (
            Constant() * Matern52(range(places, places + len(keys)), groups)
            if keys
            else (Constant())
        )
    return Matern52(places, groups)


def _scaled(candidates: Candidates, within: tuple[Array, Array] | None) -> Candidates:
    """Points of the unit cube as points of the box."""
    if within is None:
        return candidates
    lower, upper = within
    scaled: NDArray[np.float64] = lower + candidates.units * (upper - lower)
    return Candidates(candidates.algorithms, scaled)


def _boxed(candidates: Candidates, within: tuple[Array, Array] | None) -> Candidates:
    if within is None:
        return candidates
    lower, upper = within
    boxed: NDArray[np.float64] = np.clip(candidates.units, lower, upper)
    return Candidates(candidates.algorithms, boxed)
