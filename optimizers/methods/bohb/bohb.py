"""BOHB (Falkner et al. 2018): Hyperband, whose configurations a density model draws.

The model is that of TPE in many dimensions at once: it sees the results of the highest rung that
has enough of them, and takes of draws near good ones the one of the largest ratio of densities.
"""

from functools import cached_property
from typing import ClassVar

import numpy as np

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.bohb.declaration import BOHB
from prefect_tune.optimizers.methods.bohb.densities import KernelDensity
from prefect_tune.optimizers.methods.halving.brackets import ranked
from prefect_tune.optimizers.methods.hyperband.hyperband import Hyperband
from prefect_tune.optimizers.space.candidate_space import CandidateSpace
from prefect_tune.optimizers.space.candidates import Candidates
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.trials.state import TrialState
from prefect_tune.optimizers.trials.trial import Trial

__all__ = ["Bohb"]

_MORE_RESULTS = 3
"""Than numbers and choices, before a rung has a model."""


class Bohb(Hyperband):
    """Hyperband with a model of where the good configurations are."""

    method: ClassVar[Method] = BOHB

    def begin(self, rng: np.random.Generator) -> Configuration:
        """Return a configuration to begin with, one that was not asked for before.

        Raises:
            SpaceExhausted: If there is none.
        """
        is_random = rng.random() < self.options.random_share
        proposed = None if is_random else self._by_model(rng)
        if proposed is None:
            return super().begin(rng)
        self._drawn = "more like the good results than like the others"
        return proposed

    @property
    def modelled(self) -> tuple[list[Trial], list[Trial]] | None:
        """Good and bad results of the highest rung with enough of them, the best first.

        There must be three more than a configuration has numbers and choices. Runs that failed are
        bad, and do not count.
        """
        told = [t for t in self.history if t.is_told]
        for level in reversed(self.rungs.levels):
            results = [t for t in told if self.rungs.level(t.query) == level]
            best_first = ranked(results, self.history)
            if len(best_first) >= self._dimension + _MORE_RESULTS:
                n_good = max(self._dimension + 1, int(self.options.good_share * len(best_first)))
                failed = [t for t in results if t.state == TrialState.FAILED]
                return best_first[:n_good], [*best_first[n_good:], *failed]
        return None

    def near(self, good: KernelDensity, rng: np.random.Generator) -> Candidates:
        """Return draws around the good ones, from a wider density than theirs."""
        return good.sample(self.options.n_samples, self.options.bandwidth_factor, rng)

    def _by_model(self, rng: np.random.Generator) -> Configuration | None:
        """Return the draw of the largest ratio that is new; None without a model or such a draw."""
        if (split := self.modelled) is None:
            return None
        good, bad = (
            KernelDensity.fit(
                self._candidates,
                self._candidates.encode(t.query.configuration for t in trials),
                self._dimension,
            )
            for trials in split
        )
        drawn = self.near(good, rng)
        ratio = good.log_density(drawn) - bad.log_density(drawn)
        asked = self.history.asked
        for row in np.argsort(-ratio, kind="stable"):
            configuration = self._candidates.decode(drawn, int(row))
            if configuration is not None and configuration not in asked:
                return configuration
        return None

    @cached_property
    def _dimension(self) -> int:
        """Numbers and choices of a configuration that has the most of them."""
        steps = self.space.searched
        return sum(
            (len(s.algorithms) > 1) + max(a.n_hyperparameters for a in s.algorithms) for s in steps
        )

    @cached_property
    def _candidates(self) -> CandidateSpace:
        return CandidateSpace(self.space)
