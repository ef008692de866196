"""The columns of `cv_results_`."""

import numpy as np
import pytest
from scipy.stats import rankdata

from prefect_tune.deployments.estimator.trial_columns import _ranks
from prefect_tune.flows.reading.trial_view import TrialView


@pytest.mark.timeout(60)
def test_many_trials_are_ranked_by_sorting() -> None:
    losses = np.random.default_rng(0).integers(1_000, size=100_000) / 1_000
    document = {"number": 0, "state": "complete", "evaluation": {}}
    ranks = _ranks([TrialView(document)] * len(losses), -losses)
    np.testing.assert_array_equal(ranks, rankdata(losses, "min"))
