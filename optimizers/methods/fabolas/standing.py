"""How the configurations evaluated so far compare on all rows, by prediction."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.methods.fabolas.belief import Belief
from prefect_tune.optimizers.methods.fabolas.observations import Observations
from prefect_tune.optimizers.space.candidates import Candidates
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.surrogates.pipeline_inputs import PipelineInputs
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.trial import Trial

__all__ = ["Standing"]

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Standing:
    """Configurations with a loss that did not fail on all rows, the best first.

    Attributes:
        trials: Of each the one on most rows, that is the one asked for first of equals.
        candidates: Their configurations.
        mean: Predicted losses at s = 1, standardised, shape (n,).
        deviation: Of the function there, shape (n,).
    """

    trials: tuple[Trial, ...]
    candidates: Candidates
    mean: Array
    deviation: Array

    @classmethod
    def of(
        cls,
        belief: Belief,
        seen: Observations,
        inputs: PipelineInputs,
        history: History,
        kappa: float,
    ) -> "Standing":
        """Rank by predicted mean plus kappa deviations (Fabolas sheet, 1.11)."""
        rows = _of_each(seen, history)
        at_one = inputs.at(seen.candidates[rows], 1.0)
        known = belief.knows(at_one)
        rows, at_one = rows[known], at_one[known]
        mean, deviation = belief.predict(at_one)
        order = np.argsort(mean + kappa * deviation, kind="stable")
        rows = rows[order]
        return cls(
            tuple(seen.trials[i] for i in rows),
            seen.candidates[rows],
            mean[order],
            deviation[order],
        )

    def __len__(self) -> int:
        return len(self.trials)


def _of_each(seen: Observations, history: History) -> NDArray[np.intp]:
    """Return the row of each configuration that may be chosen, that on most rows."""
    failed = {t.query.configuration for t in history.failed if t.query.is_full}
    best: dict[Configuration, int] = {}
    for i, trial in enumerate(seen.trials):
        configuration = trial.query.configuration
        if trial.loss is None or configuration in failed or history.violation(trial) > 0:
            continue
        before = best.get(configuration)
        if before is None or trial.query.subset > seen.trials[before].query.subset:
            best[configuration] = i
    return np.array(list(best.values()), dtype=np.intp)
