"""The agnostic Bayes ensemble: each model weighs how often it is the best in bootstraps.

Lacoste, Larochelle, Marchand and Laviolette, "Sequential model-based ensemble optimization" (UAI
2014), equations 4 and 5. Bootstraps are those of the authors' code, of half of the examples, but
drawn afresh and more than the search needs: their number is the step of the weights.
"""

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.trials.agnostic import frequencies_of_few
from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.tasks.ensembling.held_out import HeldOut
from prefect_tune.tasks.objective.metric import Metric
from prefect_tune.tasks.objective.risk import Resampling
from prefect_tune.tasks.objective.weighted import WEIGHTED

__all__ = ["BOOTSTRAPS", "MOST_MEMBERS", "agnostic_weights", "bootstraps_for"]

Array = NDArray[np.float64]

BOOTSTRAPS = Bootstraps(500, 0.5)
"""More than these change no weight by what matters, and cost little beside a training."""
MOST_MEMBERS = 32
"""Each member is trained again on all rows and asked in each prediction. After a search there are a
hundred models that are the best now and then, many of them alike; so many picked among them
predict as well. Greedy selection picks no more either."""

_SLOW_BOOTSTRAPS = Bootstraps(50, 0.5)
"""Where a metric is computed once per model, fold and bootstrap, a millisecond each."""


def bootstraps_for(metric: Metric) -> Bootstraps:
    """Return the bootstraps that an ensemble is built on: fewer where they cost much."""
    return BOOTSTRAPS if metric.name in WEIGHTED else _SLOW_BOOTSTRAPS


def agnostic_weights(held_out: HeldOut, bootstraps: Bootstraps, rng: np.random.Generator) -> Array:
    """Return the weights of the candidates, shape (n,), together 1.

    Args:
        held_out: The candidates' predictions.
        bootstraps: How many, and how large.
        rng: Source of their draws.
    """
    resampling = Resampling.of(held_out.dataset, held_out.split, held_out.metric, bootstraps, rng)
    risks = np.array([resampling.risks(predicted) for predicted in held_out.predictions])
    return frequencies_of_few(risks, MOST_MEMBERS)
