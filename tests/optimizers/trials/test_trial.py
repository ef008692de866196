import json
from dataclasses import replace

import numpy as np
import pytest
from worlds import evaluation, mixed_space

from prefect_tune.optimizers import (
    Evaluation,
    Failure,
    FailureKind,
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
        fold_curves=((4.0, 2.0), (2.0, 2.0)),
        best_epoch=2,
        resumed_from=1,
        predictions=("abc", "def"),
    )
    waiting = Trial(3, query(0))
    for trial in (
        waiting,
        waiting.started(),
        waiting.started().completed(full),
        waiting.started().failed(
            Failure(FailureKind.ERROR, "why", "where", "scale", 1, 0.5, full.steps)
        ),
        Trial(4, query(0, epochs=2)).started().stopped(full),
    ):
        assert Trial.from_json(json.loads(json.dumps(trial.to_json())), SPACE) == trial


def test_deaths_are_counted_by_themselves_until_a_user_tries_again() -> None:
    trial = Trial(0, query(0)).started().waiting().started().died()
    assert (trial.attempts, trial.deaths, trial.state) == (2, 1, TrialState.WAITING)
    failed = trial.started().died().failed(Failure(FailureKind.CRASHED, "it died"))
    assert Trial.from_json(failed.to_json(), SPACE) == failed
    assert (failed.deaths, failed.retried().deaths) == (2, 0)


def test_attempts_count_the_starts() -> None:
    trial = Trial(0, query(0)).started().waiting().started()
    assert (trial.attempts, trial.state) == (2, TrialState.RUNNING)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"state": TrialState.COMPLETE}, "needs an evaluation"),
        ({"state": TrialState.WAITING, "evaluation": evaluation(1)}, "excludes an evaluation"),
        ({"state": TrialState.FAILED}, "only a failed one has a failure"),
        ({"state": TrialState.STOPPED, "evaluation": evaluation(1)}, "a full query ends complete"),
    ],
)
def test_a_trial_that_contradicts_itself_is_refused(values, message) -> None:
    with pytest.raises(ValueError, match=message):
        Trial(0, query(0), **values)


@pytest.mark.parametrize("less", [{"subset": 0.5}, {"folds": 1}, {"epochs": 3}])
def test_a_trial_is_complete_only_if_its_query_is_full(less) -> None:
    assert Trial(0, query(0)).ended(evaluation(1.0)).state == TrialState.COMPLETE
    part = Trial(0, query(0, **less))
    assert part.ended(evaluation(1.0)).state == TrialState.STOPPED
    with pytest.raises(ValueError, match="others stopped"):
        part.completed(evaluation(1.0))


def test_the_final_model_is_of_all_rows_and_of_the_epochs_that_were_best() -> None:
    outcome = replace(evaluation(1.0), curve=(3.0, 1.0, 2.0), best_epoch=2)
    assert Trial(0, query(0)).ended(outcome).refit_query == query(0, epochs=2)
    assert Trial(0, query(0)).ended(evaluation(1.0)).refit_query == query(0)
    part = Trial(1, query(0, epochs=3, subset=0.5, folds=1))
    assert part.ended(outcome).refit_query == query(0, epochs=2)
    rising = replace(outcome, curve=(3.0, 2.0, 1.0), best_epoch=3)
    assert part.ended(rising).refit_query == query(0)
    measured = replace(rising, constraints={"model_size_bytes": 7.0})
    assert part.ended(measured).refit_query == query(0, epochs=3)
