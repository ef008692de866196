"""ESMBO: sequential model-based ensemble optimization (Lacoste et al. 2014).

The best model is uncertain and differs between bootstraps of the held-out examples. Algorithm 2,
for N histories:

    S'_j = bootstrap(S)                         Bootstraps of the options, drawn where trials run
    v = k modulo N, SMBO(R_v) (algorithm 1)     Esmbo._targets, Jopt._next (eq. 2 and 3)
    R_j gains R_S'_j(h) for all j               Esmbo._risks, the columns of one Gaussian process
    E gains h                                   every complete trial is a candidate
    eq. 5 and 6: how often h is the best        Esmbo.weights, best_frequencies

`variant=paper` follows the paper. By default, bootstraps have half of the rows, as in the authors'
code, and all histories share one kernel.

Both variants depart from the paper. The paper's algorithm returns all models, but its equations 4
to 6 weight models by how often each is the best. The code follows the equations, as the authors'
code does. The Gaussian process has weak priors, because the likelihood of few results has no unique
maximum, and starts after random trials. If a trial has no risks, its risks are estimated from its
loss.

`EnsembledRandomSearch` (ERS, section 6) draws configurations at random and builds the ensemble like
ESMBO.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.method import Method, Reason, ordinal
from prefect_tune.optimizers.methods.declarations import ERS, ESMBO
from prefect_tune.optimizers.methods.references import Jopt
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.sampling import new_configuration
from prefect_tune.optimizers.space.vectors import Array
from prefect_tune.optimizers.trials.history import best_frequencies
from prefect_tune.optimizers.trials.trial import Trial

_FEW_EXAMPLES = 30


class Esmbo(Jopt):
    """A search that lowers the loss of each bootstrap in turn, by default with one process for all.

    If a trial has no risks, for example because it lost a race, its risk in a bootstrap is
    estimated as its loss plus the mean difference between risk and loss in the bootstrap.
    """

    method: ClassVar[Method] = ESMBO

    @property
    def weights(self) -> Mapping[int, float]:
        """Fraction of the bootstraps won by each trial, by trial number; zeros are omitted."""
        history = self.history
        candidates = [t for t in history.complete if history.violation(t) <= 0]
        if not candidates:
            return {}
        shares = best_frequencies(self._risks(candidates))
        return {t.number: float(w) for t, w in zip(candidates, shares, strict=True) if w > 0}

    @property
    def notes(self) -> Sequence[str]:
        """A warning if the study has too few held-out examples."""
        n = (self.objective.n_held_out or np.inf) * (self.objective.n_folds or 1)
        if n >= _FEW_EXAMPLES:
            return ()
        return (f"with only {n} held-out examples, the ensemble's weights are mostly noise",)

    @property
    def decisions(self) -> dict[str, Any]:
        """Numbers of histories, candidates, members and effective members of the ensemble."""
        weights = np.array(list(self.weights.values()))
        return {
            "histories": self.options.n_histories,
            "candidates": len(self.history.complete),
            "members": len(weights),
            "effective": float(1 / (weights**2).sum()) if len(weights) else 0.0,
            **super().decisions,
        }

    def _next(self, rng: Generator) -> Configuration:
        if self.is_of_paper:
            self.memo = None  # a fit does not start from the kernel of another history
        return super()._next(rng)

    def _targets(self, trials: Sequence[Trial], losses: Array) -> tuple[Array, int]:
        """Return the risks of trials, shape (n, N), and the index of the next history.

        Failed trials get risks above the worst risk. With `variant=paper`, only the risks of the
        next history are returned, shape (n, 1).
        """
        failed = np.array([t.loss is None for t in trials], dtype=np.bool_)
        told = self._risks([t for t in trials if t.loss is not None])
        risks = np.empty((len(trials), self.options.n_histories))
        risks[~failed] = told
        risks[failed] = told.max(axis=0) + (losses[failed] - losses[~failed].max())[:, None]
        turn = self._n_asks % self.options.n_histories
        return (risks[:, [turn]], 0) if self.is_of_paper else (risks, turn)

    def _why(self) -> str:
        n = self.options.n_histories
        turn = ordinal(self._n_asks % n + 1)
        return f"largest expected improvement in the {turn} of {n} bootstraps"

    def _risks(self, trials: Sequence[Trial]) -> Array:
        n = self.options.n_histories
        known = [t.evaluation.risks if t.evaluation else () for t in trials]
        has_risks = np.array([len(risks) == n for risks in known], dtype=np.bool_)
        losses = np.array([t.loss for t in trials], dtype=np.float64)
        found = np.repeat(losses[:, None], n, axis=1)
        if has_risks.any():
            measured = np.array([r for r, has in zip(known, has_risks, strict=True) if has])
            found += (measured - losses[has_risks, None]).mean(axis=0)
            found[has_risks] = measured
        return found


class EnsembledRandomSearch(Esmbo):
    """Random search with an ESMBO ensemble as its result."""

    method: ClassVar[Method] = ERS

    def _next(self, rng: Generator) -> Configuration:
        self._because = Reason("random", "drawn from the whole space")
        return new_configuration(self.space, self.history.asked, rng)
