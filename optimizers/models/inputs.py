"""The inputs of a Gaussian process over pipelines, and a kernel over them.

The path is one-hot encoded, or encoded as choice numbers for the conditional kernel. Numbers and
ordered values are scaled to [0, 1], and unordered categories are one-hot encoded. Inactive inputs
have default values.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.models.kernels import (
    CORRELATION,
    Conditional,
    Constant,
    Kernel,
    Matern52,
    Parameter,
    Product,
    Stationary,
    lengthscale_parameter,
)
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.vectors import Array, Candidates, CandidateSpace, grid_of

KernelKind = Literal["one_hot", "conditional"]
"""Kind of kernel: one Matern kernel over all inputs, or a product of one kernel per step, which
compares only the hyperparameters of equal choices."""

_MOST_LENGTHSCALES = 20
"""Number of hyperparameters above which each algorithm has a single lengthscale."""


@dataclass(frozen=True, slots=True)
class Priors:
    """Priors of the kernel's parameters.

    Attributes:
        lengthscale: Function from a name and the number of lengthscales to a lengthscale parameter.
        correlation: Function from a step to the similarity parameter of the step's choices.
    """

    lengthscale: Callable[[str, int], Parameter] = lengthscale_parameter
    correlation: Callable[[str], Parameter] = lambda step: CORRELATION  # noqa: ARG005


MODELS = Parameter("logit rho of the models", -2.0, -5.0, 5.0, (-2.0, 1.0))
"""Similarity of pipelines with different models, lower than for different choices elsewhere."""


def conditional_inputs(
    space: Space,
    lengthscale: Callable[[str, int], Parameter],
    stationary: type[Stationary] = Matern52,
) -> "PipelineInputs":
    """Return the inputs of a space, with a kernel that compares only shared algorithms."""
    model = space.steps[-1].name
    priors = Priors(lengthscale, lambda step: MODELS if step == model else CORRELATION)
    return PipelineInputs(CandidateSpace(space), "conditional", priors, stationary)


class PipelineInputs:
    """The layout of a space's inputs, and a kernel over the inputs.

    Attributes:
        within: Kernel over the inputs, without an amplitude.
        kernel: Kernel over the inputs, with an amplitude.
        width: Number of inputs, without a fidelity.
        grids: Grid of each column of the unit cube; None for a continuous hyperparameter.
        is_continuous: Whether a column has no grid, shape (d,).
    """

    def __init__(
        self,
        candidates: CandidateSpace,
        kernel: KernelKind = "one_hot",
        priors: Priors | None = None,
        stationary: type[Stationary] = Matern52,
        *,
        is_coded: bool = False,
    ) -> None:
        self.candidates, self._stationary = candidates, stationary
        self._priors = priors or Priors()
        self._is_one_hot = kernel == "one_hot"
        columns = candidates.columns
        self.grids = [grid_of(candidates.hyperparameter(c), is_coded=is_coded) for c in columns]
        self.is_continuous = np.array([g is None for g in self.grids], dtype=np.bool_)
        widths = [1 if g is None or g.is_ordered else len(g.units) for g in self.grids]
        ends = np.cumsum([0, *widths])
        self._inside = [np.arange(ends[i], ends[i + 1]) for i in range(len(columns))]
        self._sizes = [len(s.algorithms) for s in candidates.space.searched]
        self._choosing = [k for k, n in enumerate(self._sizes) if n > 1]
        is_tied = len(columns) > _MOST_LENGTHSCALES
        keys = [column[: 2 if is_tied else 3] for column in columns]
        of_inputs = [key for key, width in zip(keys, widths, strict=True) for _ in range(width)]
        parts: list[Kernel] = []
        if self._is_one_hot:
            steps = [("step", str(k)) for k in self._choosing for _ in range(self._sizes[k])]
            self._n_choice_inputs = len(steps)
            keys = [*steps, *of_inputs]
            parts = [self._tied_kernel(keys, range(len(keys)))] if keys else []
        else:
            self._n_choice_inputs = len(self._choosing)
            for k, step in enumerate(candidates.space.searched):
                mine = [i for i, key in enumerate(of_inputs) if key[0] == step.name]
                places = [self._n_choice_inputs + i for i in mine]
                within = self._tied_kernel([of_inputs[i] for i in mine], places) if mine else None
                if k in self._choosing:
                    correlation = self._priors.correlation(step.name)
                    within = Conditional(self._choosing.index(k), within, correlation)
                parts += [within] if within is not None else []
        self.width = self._n_choice_inputs + len(of_inputs)
        self.within = parts[0] if len(parts) == 1 else Product(parts)
        self.kernel: Kernel = Product([Constant(), *parts])
        self._default = self._positions(candidates.default_units[None])

    def of(self, candidates: Candidates) -> Array:
        """Return the inputs of candidates, shape (n, width)."""
        active = self.candidates.active(candidates)
        positions = self._positions(candidates.units)
        for column, inside in enumerate(self._inside):
            positions[:, inside] = np.where(
                active[:, [column]], positions[:, inside], self._default[:, inside]
            )
        if not self._is_one_hot:
            return np.hstack([candidates.algorithms[:, self._choosing], positions])
        one_hot = [
            np.eye(self._sizes[k])[candidates.algorithms[:, k]] / np.sqrt(2) for k in self._choosing
        ]
        return np.hstack([*one_hot, positions])

    def at(self, candidates: Candidates, s: float | Array) -> Array:
        """Return the inputs of candidates with s as the last column, shape (n, width + 1).

        The fidelity s is one number for all candidates or an array of shape (n,).
        """
        return np.column_stack([self.of(candidates), np.broadcast_to(s, len(candidates))])

    def input_of(self, columns: Iterable[int]) -> NDArray[np.intp]:
        """Return the input number of each continuous column in `columns`."""
        return self._n_choice_inputs + np.array([self._inside[c][0] for c in columns])

    def encode(self, configurations: Iterable[Configuration]) -> Candidates:
        """Return configurations as candidates. Inactive hyperparameters get default values."""
        return self.candidates.encode(configurations)

    def snapped(self, candidates: Candidates) -> Candidates:
        """Return candidates with discrete hyperparameters moved to the nearest value."""
        units = candidates.units.copy()
        for column, grid in enumerate(self.grids):
            if grid is not None:
                units[:, column] = grid.units[grid.index(units[:, column])]
        return Candidates(candidates.algorithms, units)

    def _positions(self, units: Array) -> Array:
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

    def _tied_kernel(self, keys: Sequence[tuple[str, ...]], places: Sequence[int]) -> Kernel:
        """Return a kernel over inputs. Inputs with equal keys share one lengthscale."""
        names = list(dict.fromkeys(keys))
        parameters = [
            self._priors.lengthscale(f"lengthscale {i}", len(names)) for i in range(len(names))
        ]
        return self._stationary(places, [names.index(key) for key in keys], parameters)
