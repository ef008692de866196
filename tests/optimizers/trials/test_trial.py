import json

import numpy as np
import pytest
from worlds import evaluation, mixed_space

from prefect_tune.optimizers import (
    Evaluation,
    Failure,
    Query,
    StepCost,
    Trial,
    TrialState,
)
from prefect_tune.optimizers.space.sampling import sample_configuration

SPACE = mixed_space()


def query(seed: int, **fidelity) -> Query:
    return Query(sample_configuration(SPACE, np.random.default_rng(seed)), **fidelity)


def test_a_trial_survives_json_in_every_state() -> None:
    full = Evaluation(
        1.5,
        (1.0, 2.0),
        3.0,
        4.0,
        steps=(StepCost("scale", 0, 0.5, 0.1, hit=True, key="abc"),),
        constraints={"latency_us": 7.0},
        curve=(3.0, 2.0),
        predictions=("abc", "def"),
    )
    waiting = Trial(3, query(0))
    for trial in (
        waiting,
        waiting.started(),
        waiting.started().completed(full),
        waiting.started().failed(Failure("error", "why", "where", "scale", 1, 0.5)),
    ):
        assert Trial.from_json(json.loads(json.dumps(trial.to_json())), SPACE) == trial


def test_attempts_count_the_starts() -> None:
    trial = Trial(0, query(0)).started().waiting().started()
    assert (trial.attempts, trial.state) == (2, TrialState.RUNNING)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"state": TrialState.COMPLETE}, "needs an evaluation"),
        ({"state": TrialState.WAITING, "evaluation": evaluation(1)}, "excludes an evaluation"),
        ({"state": TrialState.FAILED}, "only a failed one has a failure"),
    ],
)
def test_a_trial_that_contradicts_itself_is_refused(values, message) -> None:
    with pytest.raises(ValueError, match=message):
        Trial(0, query(0), **values)
