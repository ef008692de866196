"""What the log of a flow run says of the trials."""

import pytest

from prefect_tune.flows.progress import Progress, _best


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"n_trials": 2, "n_failed": 1, "n_stopped": 1}, "none has run in full yet"),
        ({"n_trials": 3, "n_failed": 1, "n_stopped": 1}, "none meets the constraints yet"),
    ],
)
def test_why_no_trial_leads_is_said(counts, said) -> None:
    progress = Progress(
        study="s", metric="error", unit="percent", n_running=0, trials_total=None, seconds=1.0,
        seconds_total=None, incumbent=None, cache_hits=0, seconds_saved=0.0, **counts,
    )  # fmt: skip
    assert _best(progress) == said
