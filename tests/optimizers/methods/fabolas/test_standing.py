import numpy as np
import pytest
from subset_worlds.beliefs import belief_of, seen_of
from subset_worlds.problems import configuration, cube, history_of, position, trial
from worlds import evaluation

from prefect_tune.optimizers import Constraint, History, Query, Trial
from prefect_tune.optimizers.methods.fabolas.belief import pipeline_inputs
from prefect_tune.optimizers.methods.fabolas.decisions import AnswerStanding

LINE = pipeline_inputs(cube())


def standing_of(history: History, kappa: float = 0.0) -> AnswerStanding:
    belief = belief_of(history, parameters={"lengthscale 0": -1.0})
    return AnswerStanding.of(belief, seen_of(history), LINE, history, kappa)


def places(standing: AnswerStanding) -> list[float]:
    return [position(t.query)[0] for t in standing.trials]


def test_configurations_are_ranked_by_what_is_predicted_on_all_rows() -> None:
    # On the small subset 0.9 has the least loss, as all losses are higher there.
    history = history_of((0.1, 1.0, 1.0, 9.0), (0.9, 1 / 256, 1.3, 1.0), (0.5, 1.0, 3.0, 9.0))
    standing = standing_of(history)
    assert len(standing) == 3
    assert standing.mean.tolist() == sorted(standing.mean)
    assert places(standing).index(0.1) < places(standing).index(0.5)
    assert standing.candidates.units[:, 0].tolist() == pytest.approx(places(standing))


def test_deviations_speak_against_what_is_little_known() -> None:
    history = history_of((0.1, 1.0, 1.02, 9.0), (0.9, 1 / 256, 1.0, 1.0), (0.5, 1 / 256, 3.0, 1.0))
    sure, unsure = standing_of(history, kappa=3.0), standing_of(history, kappa=-3.0)
    assert places(sure)[0] == 0.1
    assert places(unsure)[0] != 0.1
    bounds = sure.mean + 3 * sure.deviation
    assert bounds.tolist() == sorted(bounds)


def test_each_configuration_stands_once_with_its_trial_on_most_rows() -> None:
    history = history_of(
        (0.3, 1 / 64, 2.0, 1.0), (0.7, 1 / 64, 4.0, 1.0), (0.3, 0.5, 1.5, 5.0), (0.3, 0.5, 1.0, 5.0)
    )
    standing = standing_of(history)
    assert sorted(places(standing)) == [0.3, 0.7]
    assert {t.number for t in standing.trials} == {1, 2}  # of equals the one asked for first


def test_what_failed_on_all_rows_does_not_stand_whatever_its_subsets_promise() -> None:
    history = history_of(
        (0.3, 1 / 64, 0.0, 1.0), (0.7, 1 / 64, 4.0, 1.0), (0.3, 1.0, None, 9.0), (0.9, 1, 5.0, 9.0)
    )
    assert sorted(places(standing_of(history))) == [0.7, 0.9]


def test_what_failed_on_a_subset_alone_stands_by_its_loss_on_more_rows() -> None:
    history = history_of((0.3, 1 / 64, None, 1.0), (0.3, 0.5, 0.1, 5.0), (0.7, 0.5, 4.0, 5.0))
    standing = standing_of(history)
    assert [t.number for t in standing.trials] == [1, 2]


def test_what_exceeds_a_limit_does_not_stand() -> None:
    history = History((Constraint("seconds", 1.0),))
    for number, (x, seconds) in enumerate([(0.2, 5.0), (0.8, 0.5), (0.5, 0.5)]):
        ended = Trial(number, Query(configuration(x))).started().ended(evaluation(0.1 + x))
        history.record(ended.measured({"seconds": seconds}))
    assert sorted(places(standing_of(history))) == [0.5, 0.8]


def test_nothing_stands_where_nothing_has_a_loss() -> None:
    history = history_of((0.2, 1.0, 1.0, 1.0), (0.4, 0.5, 2.0, 1.0))
    belief = belief_of(history)
    failed = History()
    for t in history:
        failed.record(trial(t.number, t.query, None))
    assert len(AnswerStanding.of(belief, seen_of(failed), LINE, failed, 0.5)) == 0


def test_a_prediction_is_of_all_rows_and_of_the_function_without_its_noise() -> None:
    history = history_of((0.1, 1.0, 1.0, 9.0), (0.9, 1 / 256, 1.3, 1.0), (0.5, 0.5, 3.0, 9.0))
    standing = standing_of(history)
    at_one = LINE.at(standing.candidates, 1.0)
    belief = belief_of(history, parameters={"lengthscale 0": -1.0})
    mean, deviation = belief.predict(at_one)
    np.testing.assert_allclose(standing.mean, mean)
    np.testing.assert_allclose(standing.deviation, deviation)
