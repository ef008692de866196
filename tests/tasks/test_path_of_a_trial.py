"""The way of a trial: what is looked up, read and resolved, and how often."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from studies import ITERATIVE_SPACES, configured, context_of, evaluate, store_of

import prefect_tune.tasks
from prefect_tune.optimizers import Query
from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.storage.cache.index import ArtifactIndex
from prefect_tune.storage.key import PREDICTIONS, predictions_record
from prefect_tune.storage.records import Records
from prefect_tune.tasks.objective.predictions import Predictions
from prefect_tune.tasks.objective.quantity import Quantity
from prefect_tune.tasks.problem import Problem, StudyContext
from prefect_tune.tasks.trial import epochs, measuring
from prefect_tune.tasks.trial import evaluate as evaluate_module
from prefect_tune.tasks.trial.measuring import study_resampling
from prefect_tune.tasks.trial.path_run import PathRun
from prefect_tune.tasks.user_space import load_user_space

JUDGED = {"quantities": (Quantity("false_positive_rate"),), "bootstraps": Bootstraps(3, 0.5)}
"""All that reads predictions besides the loss."""
EPOCHS = 6
KNN = ("k_nearest", {"n_neighbors": 3, "weights": "uniform", "p": 2})


def judged_context(folder: Path, *, trains_in_epochs: bool = False, **changes) -> StudyContext:
    context = replace(context_of(folder), **JUDGED, **changes)
    if not trains_in_epochs:
        return context
    space = load_user_space(ITERATIVE_SPACES, "own.py:classes")
    own = {"space": "own.py:classes", "space_code": ITERATIVE_SPACES, "algorithms": ()}
    problem = replace(context.problem, **own, space_digest=space.digest)
    return replace(context, problem=problem, epochs=EPOCHS)


def query_of(context: StudyContext, model: str | tuple = "gaussian_nb") -> Query:
    if context.epochs:
        return configured(context, rescale="standardize", fit_model="sgd")
    return configured(
        context, rescale="standardize", balance="none", preprocess="none", fit_model=model
    )


@pytest.fixture
def looked_up(monkeypatch) -> Counter:
    """How often each key was looked up in the index."""
    count: Counter[str] = Counter()
    entries, look_up_to_make = ArtifactIndex.entries, ArtifactIndex.look_up_to_make

    def count_entries(index, keys):
        count.update(keys)
        return entries(index, keys)

    def count_look_up(index, connection, key, place):
        count[key] += 1
        return look_up_to_make(index, connection, key, place)

    monkeypatch.setattr(ArtifactIndex, "entries", count_entries)
    monkeypatch.setattr(ArtifactIndex, "look_up_to_make", count_look_up)
    return count


@pytest.fixture
def records_read(monkeypatch) -> Counter:
    """How often the predictions of each model were read."""
    count: Counter[str] = Counter()
    get = Records.get

    def count_get(records, record, names=None):
        count[record] += record.startswith(PREDICTIONS)
        return get(records, record, names)

    monkeypatch.setattr(Records, "get", count_get)
    return count


@pytest.fixture
def linked(monkeypatch) -> Counter:
    """How often each record was linked to a study."""
    count: Counter[tuple[str, str]] = Counter()
    link = Records.link

    def count_link(records, ids, study):
        count.update((record, study) for record in ids)
        link(records, ids, study)

    monkeypatch.setattr(Records, "link", count_link)
    return count


def test_a_missed_key_is_looked_up_when_it_is_planned_and_under_its_lease(
    tmp_path, looked_up
) -> None:
    context = context_of(tmp_path)
    evaluation = evaluate(context, query_of(context))
    assert not any(step.hit for step in evaluation.steps)
    assert {looked_up[step.key] for step in evaluation.steps} == {2}
    looked_up.clear()
    served = evaluate(context, query_of(context))
    assert all(step.hit for step in served.steps)
    assert {looked_up[step.key] for step in served.steps} == {1}


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("trains_in_epochs", [True, False])
def test_predictions_of_a_model_that_was_fitted_are_not_read_back(
    tmp_path, records_read, trains_in_epochs, use_cache
) -> None:
    context = judged_context(tmp_path, trains_in_epochs=trains_in_epochs, use_cache=use_cache)
    fitted = evaluate(context, query_of(context))
    assert len(fitted.risks) == 3
    assert sum(records_read.values()) == 0
    again = evaluate(context, query_of(context))
    assert (again.fold_losses, again.risks) == (fitted.fold_losses, fitted.risks)
    kept = {predictions_record(key): 1 for key in fitted.predictions}
    assert +records_read == (kept if use_cache else {})


def test_predictions_written_in_passing_are_neither_read_nor_written_again(
    tmp_path, monkeypatch, records_read
) -> None:
    monkeypatch.setattr(epochs, "CHECKPOINT_SECONDS", 0.0)
    context = judged_context(tmp_path, trains_in_epochs=True)
    written: Counter[str] = Counter()
    put = Records.put

    def count_put(records, record, *given, **named):
        written[record] += 1
        put(records, record, *given, **named)

    monkeypatch.setattr(Records, "put", count_put)
    evaluation = evaluate(context, query_of(context))
    assert evaluation.best_epoch < EPOCHS  # it was written in passing, and is the best at the end
    assert [written[predictions_record(key)] for key in evaluation.predictions] == [1, 1, 1]
    assert sum(records_read.values()) == 0


def test_predictions_at_hand_are_those_that_a_reader_gets(tmp_path) -> None:
    context = context_of(tmp_path)
    path_run = PathRun(context, query_of(context))
    for position in range(len(path_run.steps)):
        path_run.run(position)
    for fold in path_run.folds:
        model = path_run.nodes(fold)[-1]
        kept, held = store_of(context).records.get(model.record), model.predictions()
        for name, array in (("label", held.label), ("score", held.score)):
            assert array.dtype == kept[name].dtype
            assert array.tobytes() == kept[name].tobytes()
            assert not array.flags.writeable


def test_predictions_at_hand_outlive_an_array_that_a_model_uses_again(tmp_path) -> None:
    context = context_of(tmp_path)
    model = PathRun(context, query_of(context)).node_at(0, 0)
    label, score = np.zeros(3, dtype=np.int32), np.full((3, 2), 0.5)
    model._record(Predictions(label, score))
    label[:], score[:] = 1, 0.0
    held = model.predictions()
    assert held.label.tolist() == [0, 0, 0]
    assert held.score.tolist() == [[0.5, 0.5]] * 3


def test_a_quantity_that_fails_tells_of_its_own_error_alone(tmp_path, monkeypatch) -> None:
    def fail(*_: object) -> float:
        raise ZeroDivisionError("no rows in a second")

    monkeypatch.setattr(measuring, "measure_quantity", fail)
    context = replace(context_of(tmp_path), quantities=(Quantity("latency_us"),))
    state = evaluate_module.evaluate.fn(0, query_of(context).to_json(), context, "trial")
    failure = state.data.failure
    assert "no rows in a second" in failure.message
    assert "RecordDamaged" not in failure.traceback


@pytest.mark.parametrize("trains_in_epochs", [True, False])
def test_space_and_metric_are_resolved_once(tmp_path, monkeypatch, trains_in_epochs) -> None:
    context = judged_context(tmp_path, trains_in_epochs=trains_in_epochs)
    query = query_of(context).to_json()
    study_resampling.cache_clear()
    count: Counter[str] = Counter()
    find_space, find_metric = Problem.find_space, Problem.find_metric

    def count_space(problem):
        count["space"] += 1
        return find_space(problem)

    def count_metric(problem):
        count["metric"] += 1
        return find_metric(problem)

    monkeypatch.setattr(Problem, "find_space", count_space)
    monkeypatch.setattr(Problem, "find_metric", count_metric)
    state = evaluate_module.evaluate.fn(0, query, context, "trial")
    assert state.is_completed()
    assert count == {"space": 1, "metric": 1}


def test_bootstraps_are_drawn_once_for_all_trials_of_a_scorer(tmp_path) -> None:
    context = judged_context(tmp_path)
    context = replace(context, problem=replace(context.problem, metric="f1_macro"))
    study_resampling.cache_clear()
    for model in ("gaussian_nb", KNN):
        evaluate(context, query_of(context, model))
    assert study_resampling.cache_info().misses == 1


@pytest.mark.parametrize("trains_in_epochs", [True, False])
def test_a_record_is_linked_once_whether_it_is_written_or_served(
    tmp_path, linked, trains_in_epochs
) -> None:
    context = judged_context(tmp_path, trains_in_epochs=trains_in_epochs)
    for study in ("first", "second"):
        linked.clear()
        evaluation = evaluate(replace(context, study=study), query_of(context))
        records = [predictions_record(key) for key in evaluation.predictions]
        assert linked == dict.fromkeys(((record, study) for record in records), 1)
        assert store_of(context).records.used_by(study) == sorted(records)


@pytest.mark.parametrize(("serves_prefix", "most"), [(True, 30), (False, 28)])
def test_a_missed_step_passes_through_few_files_before_it_is_fitted(
    tmp_path, serves_prefix, most
) -> None:
    context = context_of(tmp_path)
    evaluate(context, query_of(context, KNN))  # now data and prefix are there
    if not serves_prefix:
        context = replace(context, cache_area="another")
    query, passed, before_fit = query_of(context).to_json(), set(), []
    ours = str(Path(prefect_tune.tasks.__file__).parents[1])

    def note(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(ours):
            passed.add(file)
        elif event == "call" and "/sklearn/" in file and frame.f_code.co_name == "fit":
            before_fit.append(len(passed))

    former = sys.getprofile()
    sys.setprofile(note)
    try:
        state = evaluate_module.evaluate.fn(0, query, context, "trial")
    finally:
        sys.setprofile(former)
    assert state.is_completed()
    assert 20 < before_fit[0] <= most
