"""Bayesian optimisation of pipelines: a Gaussian process, and the candidates that improve most."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.acquisitions.augmented_improvement import AugmentedImprovement
from prefect_tune.optimizers.acquisitions.maximise import Box, Penalty, maximise
from prefect_tune.optimizers.space.candidate_space import CandidateSpace
from prefect_tune.optimizers.space.candidates import Candidates
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess
from prefect_tune.optimizers.surrogates.pipeline_inputs import KernelKind, PipelineInputs

__all__ = ["Fitted", "GaussianSearch"]

Array = NDArray[np.floating[Any]]

_FIT_ITERATIONS = 20
_MOST_FITTED_EACH_TIME = 64
"""Up to so many observations the process is fitted at each ask."""
_FITTED_AFTER = 3
"""With more, once so many came after those of the last fit."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """The parameters of a process, kept from one ask to the next.

    Attributes:
        theta: Its parameters.
        n: Observations that they were fitted to; 0 when not known.
    """

    theta: tuple[float, ...]
    n: int = 0


class GaussianSearch:
    """Tables of one space; it keeps no observation.

    Args:
        space: The space.
        kernel: How pipelines of different algorithms are compared.

    Attributes:
        candidates: The space as arrays.
        inputs: What the process sees of candidates.
    """

    def __init__(self, space: Space, kernel: KernelKind = "one_hot") -> None:
        self.space = space
        self.candidates = CandidateSpace(space)
        self.inputs = PipelineInputs(self.candidates, kernel)

    @property
    def has_choices(self) -> bool:
        """Whether there is anything to choose."""
        return self.space.n_paths > 1 or self.space.n_hyperparameters > 0

    def learned(
        self,
        observed: Candidates,
        targets: Array,
        rng: np.random.Generator,
        last: Fitted | None = None,
        pending: Sequence[Configuration] = (),
    ) -> tuple[GaussianProcess, Fitted]:
        """Return the process of these observations, and its parameters for the next ask.

        It is fitted each time while observations are few, and then three after the last fit.

        Args:
            observed: n candidates.
            targets: Shape (n, t).
            rng: Draws a second start where there is nothing to start from.
            last: Where the fit starts, from an earlier ask.
            pending: What is under way; it is taken to return the process's mean.
        """
        kernel, inputs = self.inputs.kernel, self.inputs.of(observed)
        n, fitted_to = len(inputs), 0 if last is None else last.n
        start = None
        if last is not None and len(last.theta) == len(kernel.parameters) + 1:
            start = np.array(last.theta)
        is_kept = n > _MOST_FITTED_EACH_TIME and n - fitted_to < _FITTED_AFTER
        if start is not None and is_kept:
            process = GaussianProcess.given(kernel, start, inputs, targets)
        else:
            process = GaussianProcess.fit(
                kernel,
                inputs,
                targets,
                rng=rng,
                warm_start=start,
                n_restarts=int(start is None),
                max_iterations=_FIT_ITERATIONS,
            )
            fitted_to = n
        kept = Fitted(tuple(round(float(x), 6) for x in process.theta), fitted_to)
        if pending:
            process = process.imagining(self.inputs.of(self.inputs.encode(pending)))
        return process, kept

    def ranked(
        self,
        acquisition: AugmentedImprovement,
        observed: Candidates,
        rng: np.random.Generator,
        penalty: Penalty | None = None,
        within: Box | None = None,
    ) -> Candidates:
        """Return candidates by falling improvement, as `maximise` does."""
        return maximise(acquisition, self.inputs, observed, rng, penalty=penalty, within=within)

    def new_configurations(
        self, ranked: Candidates, asked: AbstractSet[Configuration]
    ) -> Iterator[Configuration]:
        """Yield those that were not asked for, in order."""
        for row in range(len(ranked)):
            configuration = self.candidates.decode(ranked, row)
            if configuration is not None and configuration not in asked:
                yield configuration
