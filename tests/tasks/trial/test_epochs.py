"""Trials that train in epochs: gone on with, served, evicted, killed, diverging."""

import multiprocessing
import os
import shutil
import signal
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from studies import (
    EPOCHS,
    configured,
    epoch_context,
    evaluate,
    outcome,
    run_all,
    store_of,
    to_epoch,
)

from prefect_tune.optimizers import Evaluation, Query
from prefect_tune.storage.artifacts import MemoryTier
from prefect_tune.storage.inspection import verify
from prefect_tune.storage.keys import predictions_record
from prefect_tune.tasks.data.split import REFIT
from prefect_tune.tasks.fitting import epochs as training
from prefect_tune.tasks.objective.metric import Quantity
from prefect_tune.tasks.objective.predictions import Predictions
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.sandbox.child import FoldReached, reporting_to
from prefect_tune.tasks.trial import evaluate as evaluate_module
from prefect_tune.tasks.trial import node as node_module
from prefect_tune.tasks.trial.evaluate import measure
from prefect_tune.tasks.trial.node import IterativeNode, Node
from prefect_tune.tasks.trial.path_run import PathRun

pytestmark = pytest.mark.slow

ITERATIVE = (
    "mlp",
    "boosting",
    *(pytest.param(m, marks=pytest.mark.full) for m in ("sgd", "histograms", "forest")),
)


@pytest.fixture
def context(tmp_path) -> StudyContext:
    return epoch_context(tmp_path)


def query_of(context: StudyContext, model: str, epochs: int | None = None) -> Query:
    return to_epoch(configured(context, rescale="standardize", fit_model=model), epochs)


def results(evaluation: Evaluation) -> tuple:
    """What must not depend on how a training was cut into stretches."""
    return (
        evaluation.loss,
        evaluation.fold_losses,
        evaluation.curve,
        evaluation.fold_curves,
        evaluation.best_epoch,
        evaluation.predictions,
    )


def straight(folder: Path, model: str, epochs: int | None = None, **more) -> Evaluation:
    """A training at once, in a store of its own."""
    (folder / "straight").mkdir()
    context = epoch_context(folder / "straight", **more)
    return evaluate(context, query_of(context, model, epochs))


def models_of(evaluation: Evaluation) -> list:
    return [step for step in evaluation.steps if step.step == "fit model"]


def checkpoints(context: StudyContext) -> list:
    return store_of(context).index.select(step="fit model")


def lose_predictions(context: StudyContext, evaluation: Evaluation) -> None:
    for key in evaluation.predictions:
        shutil.rmtree(store_of(context).files.path("records", "predictions", key[:2], key))


@pytest.mark.parametrize("model", ITERATIVE)
def test_a_trial_resumes_from_checkpoints_of_another(tmp_path, context, model) -> None:
    begun = evaluate(context, query_of(context, model, 4))
    assert len(begun.curve) == 4
    other = replace(context, study="another")
    ended = evaluate(other, query_of(context, model))
    assert results(ended) == results(straight(tmp_path, model))
    assert results(begun)[2][:4] == ended.curve[:4]
    assert (begun.resumed_from, ended.resumed_from) == (0, 4)
    assert len(ended.curve) == len(ended.fold_curves[0]) == EPOCHS
    assert ended.loss == min(ended.curve) == ended.curve[ended.best_epoch - 1]
    again = evaluate(context, query_of(context, model))
    assert results(again) == results(ended)
    assert (again.resumed_from, again.best_epoch) == (EPOCHS, ended.best_epoch)
    assert all(step.hit for step in again.steps)
    stopped = evaluate(context, query_of(context, model, 4))  # its checkpoints are still there
    assert results(stopped) == results(begun)
    assert all(step.hit for step in stopped.steps)
    assert verify(store_of(context)).is_sound


@pytest.mark.parametrize("model", ITERATIVE)
def test_the_predictions_that_are_kept_are_of_the_best_epoch(context, model) -> None:
    for epochs in (2, 7, None):
        ended = evaluate(context, query_of(context, model, epochs))
        path_run = PathRun(context, query_of(context, model))
        metric = context.problem.find_metric()
        for fold, key in enumerate(ended.predictions):
            parts = store_of(context).records.get(predictions_record(key))
            y = path_run.dataset.y[path_run.split.held_out(fold)]
            predicted = Predictions(parts["label"], parts.get("score"))
            assert metric.loss(y, predicted, 2) == ended.fold_losses[fold]
        assert ended.loss == sum(ended.fold_losses) / 3


def test_without_a_cache_each_stretch_trains_from_the_start(tmp_path) -> None:
    context = epoch_context(tmp_path, use_cache=False)
    evaluate(context, query_of(context, "sgd", 4))
    ended = evaluate(context, query_of(context, "sgd"))
    assert results(ended) == results(straight(tmp_path, "sgd"))
    assert ended.resumed_from == 0
    assert checkpoints(context) == []


def test_a_rung_reports_its_own_and_earlier_seconds_apart(context) -> None:
    begun = evaluate(context, query_of(context, "boosting", 5))
    ended = evaluate(context, query_of(context, "boosting"))
    kept = {e.key: e.cost_seconds for e in checkpoints(context)}
    for first, second in zip(models_of(begun), models_of(ended), strict=True):
        assert not second.hit
        assert kept[second.key] == pytest.approx(first.seconds + second.seconds)
    earlier = sum(step.seconds for step in models_of(begun))
    assert ended.cost_uncached_seconds >= ended.cost_seconds + earlier
    served = evaluate(context, query_of(context, "boosting"))
    assert [s.seconds for s in models_of(served)] == [kept[s.key] for s in models_of(served)]


@pytest.mark.parametrize("model", ["sgd", pytest.param("boosting", marks=pytest.mark.full)])
def test_one_evicted_fold_is_trained_again_and_the_others_wait(tmp_path, context, model) -> None:
    for epochs in (3, 6):
        evaluate(context, query_of(context, model, epochs))
    gone = next(e for e in checkpoints(context) if e.fold == 1)  # the newest
    store_of(context).forget(gone)
    ended = evaluate(context, query_of(context, model))
    assert results(ended) == results(straight(tmp_path, model))
    assert ended.resumed_from == 3


@pytest.mark.parametrize("model", ITERATIVE)
def test_predictions_that_are_lost_are_made_again(context, model) -> None:
    first = evaluate(context, query_of(context, model))
    lose_predictions(context, first)
    again = evaluate(context, query_of(context, model))
    assert results(again) == results(first)
    assert all(step.hit for step in models_of(again)) == (
        model in ("boosting", "histograms", "forest")
    )
    assert verify(store_of(context)).is_sound


def test_a_checkpoint_costs_the_sum_of_its_stretches_though_predictions_were_made_again(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(training, "perf_counter", count().__next__)  # all takes one second
    context = epoch_context(tmp_path)
    begun = evaluate(context, query_of(context, "mlp", 5))
    lose_predictions(context, begun)
    ended = evaluate(context, query_of(context, "mlp", 6))
    assert ended.best_epoch == begun.best_epoch  # so they are made again
    kept = {e.key: e.cost_seconds for e in checkpoints(context)}
    for first, second in zip(models_of(begun), models_of(ended), strict=True):
        assert kept[first.key] == first.seconds == 1 + 5
        assert kept[second.key] == kept[first.key] + 1 + 1
        assert second.seconds > 1 + 1


def test_a_checkpoint_that_was_evicted_after_the_plan_is_trained_again_and_told_as_such(
    context, monkeypatch
) -> None:
    first = evaluate(context, query_of(context, "sgd"))
    measured = replace(context, quantities=(Quantity("model_size_bytes"),))

    def evict_and_measure(path_run: PathRun, quantities) -> dict[str, float]:
        for entry in checkpoints(context):
            store_of(context).forget(entry)
        return measure(path_run, quantities)

    monkeypatch.setattr(evaluate_module, "measure", evict_and_measure)
    again = evaluate(measured, query_of(context, "sgd"))
    assert results(again) == results(first)
    assert again.resumed_from == 0
    kept = {e.key: e.cost_seconds for e in checkpoints(context) if e.is_present}
    for step in models_of(again):
        assert not step.hit
        assert step.seconds == kept[step.key]


def test_a_trial_reports_the_fold_that_is_trained(tmp_path, monkeypatch) -> None:
    reports: list[Any] = []
    advanced: list[tuple[str, int]] = []
    advance = IterativeNode.advance

    def note_and_advance(node: IterativeNode, to: int) -> None:
        reached = [report for report in reports if isinstance(report, FoldReached)][-1]
        advanced.append((reached.step, reached.fold))
        assert advanced[-1] == (node.step, node.fold.number)
        advance(node, to)

    monkeypatch.setattr(IterativeNode, "advance", note_and_advance)
    context = epoch_context(tmp_path)
    with reporting_to(reports.append):
        evaluate(context, query_of(context, "sgd", 2))
    assert advanced == [("fit model", fold) for fold in (0, 1, 2)] * 2


def test_a_model_that_is_served_is_read_without_its_rows(tmp_path, monkeypatch) -> None:
    context = epoch_context(tmp_path)
    evaluate(context, query_of(context, "sgd"))
    read: list[str] = []
    part = Node.part
    monkeypatch.setattr(Node, "part", lambda node, name: read.append(name) or part(node, name))
    measured = replace(context, quantities=(Quantity("model_size_bytes"),))
    assert all(step.hit for step in models_of(evaluate(measured, query_of(context, "sgd"))))
    assert set(read) == {"estimator"}


def test_a_damaged_checkpoint_is_passed_over(tmp_path, context) -> None:
    evaluate(context, query_of(context, "sgd", 3))
    later = evaluate(context, query_of(context, "sgd", 6))
    store_of(context).memory = MemoryTier(0)
    for key in (step.key for step in models_of(later)):
        path = next(Path(store_of(context).files.path("cache", key[:2], key)).rglob("*.pkl"))
        path.write_bytes(path.read_bytes()[:-4] + b"oops")
    ended = evaluate(context, query_of(context, "sgd"))
    assert results(ended) == results(straight(tmp_path, "sgd"))
    assert ended.resumed_from == 3


def train_until_killed(context: StudyContext, model: str) -> None:
    """A checkpoint after each stop, and death on the way to the eighth epoch."""
    node_module.CHECKPOINT_SECONDS = 0.0
    advance = IterativeNode.advance

    def advance_or_die(node: IterativeNode, to: int) -> None:
        if to == 8 and node.fold.number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        advance(node, to)

    IterativeNode.advance = advance_or_die  # type: ignore[method-assign]
    evaluate(context, query_of(context, model))


def test_after_a_worker_is_killed_the_next_one_resumes_from_the_last_checkpoint(tmp_path) -> None:
    context, model = epoch_context(tmp_path), "mlp"
    process = multiprocessing.get_context("spawn").Process(
        target=train_until_killed, args=(context, model)
    )
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert len(checkpoints(context)) == 3  # those before were forgotten
    ended = evaluate(context, query_of(context, model))
    assert ended.resumed_from == 7
    assert results(ended) == results(straight(tmp_path, model))


def test_checkpoints_in_passing_change_nothing_and_leave_only_the_last(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(node_module, "CHECKPOINT_SECONDS", 0.0)
    context = epoch_context(tmp_path)
    evaluate(context, query_of(context, "mlp", 4))
    ended = evaluate(context, query_of(context, "mlp"))
    assert len(checkpoints(context)) == 6  # after 4 epochs, where a trial ended, and after all
    monkeypatch.undo()
    assert results(ended) == results(straight(tmp_path, "mlp"))


def test_numbers_that_are_not_finite_end_a_training_with_its_best_epoch(tmp_path) -> None:
    context = epoch_context(tmp_path, numbers=True)
    ended = evaluate(context, query_of(context, "growing"))
    n = len(ended.curve)
    assert 1 <= n < EPOCHS
    assert {len(curve) for curve in ended.fold_curves} == {n}
    assert ended.loss == min(ended.curve)
    assert ended.trouble.startswith(f"no epoch {n + 1} in fold ")
    assert "ValueError: " in ended.trouble
    assert all(step.key for step in models_of(ended))
    stretches = [evaluate(context, query_of(context, "growing", e)) for e in range(1, EPOCHS)]
    assert results(stretches[-1]) == results(ended)
    assert stretches[0].curve == ended.curve[:1]
    assert (stretches[0].trouble, stretches[-1].trouble) == ("", ended.trouble)
    assert results(evaluate(context, query_of(context, "growing"))) == results(ended)


def test_numbers_that_are_not_finite_in_the_first_epoch_fail_the_trial(tmp_path) -> None:
    context = epoch_context(tmp_path, numbers=True)
    came = outcome(context, query_of(context, "hopeless"))
    assert came.step == "fit model"
    assert came.fold == 0
    assert {step.step for step in came.steps} == {"impute", "encode", "rescale"}


def test_quantities_are_measured_of_the_model_at_hand_once(tmp_path) -> None:
    quantities = (Quantity("model_size_bytes"), Quantity("false_positive_rate"))
    context = epoch_context(tmp_path, quantities=quantities)
    sizes = []
    for epochs in (3, None):
        first = evaluate(context, query_of(context, "boosting", epochs))
        again = evaluate(context, query_of(context, "boosting", epochs))
        assert again.constraints == first.constraints
        sizes.append(first.constraints["model_size_bytes"])
    assert sizes[1] > 1.5 * sizes[0]


@pytest.mark.parametrize("model", [pytest.param("neighbours", marks=pytest.mark.full), "lbfgs"])
def test_a_model_without_epochs_is_fitted_at_once_whatever_is_asked(context, model) -> None:
    part = evaluate(context, query_of(context, model, 3))
    whole = evaluate(context, query_of(context, model))
    assert results(part) == results(whole)
    assert (part.curve, part.best_epoch) == ((), None)
    assert all(step.hit for step in whole.steps)
    plain = evaluate(replace(context, epochs=None), query_of(context, model))
    assert plain.predictions == whole.predictions


def test_without_epochs_keys_and_models_are_as_ever(tmp_path) -> None:
    context = epoch_context(tmp_path, epochs=None)
    fitted = evaluate(context, query_of(context, "sgd"))
    assert fitted.predictions == tuple(step.key for step in models_of(fitted))
    trained = evaluate(replace(context, epochs=EPOCHS), query_of(context, "sgd"))
    assert not set(trained.predictions) & set(fitted.predictions)
    assert not any(step.hit for step in models_of(trained))


@pytest.mark.parametrize("model", ITERATIVE)
def test_a_refit_trains_the_epochs_that_were_best_and_chooses_nothing(context, model) -> None:
    path_run = run_all(context, query_of(context, model, 7), [REFIT])
    node = path_run.nodes(REFIT)[-1]
    assert isinstance(node, IterativeNode)
    assert (node.epochs, node.best_epoch, node.curve) == (7, 7, ())
    fitted = node.part("estimator")
    counted = {"boosting": 14, "forest": 11}.get(model)
    assert counted is None or len(fitted.estimators_) == counted
    assert not getattr(fitted, "warm_start", False)
    X = path_run.nodes(REFIT)[-2].part("held_out")
    classes = path_run.dataset.classes
    label = [classes[i] for i in node.predictions().label]
    assert label == list(fitted.predict(X))


def test_a_refit_keeps_the_predictions_of_its_last_epoch_alone(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(node_module, "CHECKPOINT_SECONDS", 0.0)
    context = epoch_context(tmp_path)
    refit = run_all(context, query_of(context, "sgd", 3), [REFIT])
    kept = Path(store_of(context).files.path("records", "predictions"))
    assert [folder.name for folder in kept.glob("*/*")] == [refit.nodes(REFIT)[-1].predictions_key]


def test_a_fold_that_was_trained_alone_has_the_predictions_of_the_best_epoch_of_all(
    tmp_path,
) -> None:
    context, model = epoch_context(tmp_path), "mlp"
    first = evaluate(context, to_epoch(query_of(context, model), None, folds=1))
    ended = evaluate(context, query_of(context, model))
    assert ended.best_epoch != first.best_epoch
    assert results(ended) == results(straight(tmp_path, model))
    key = ended.predictions[0]
    kept = store_of(context).records.get(predictions_record(key))
    fresh = store_of(epoch_context(tmp_path / "straight")).records.get(predictions_record(key))
    assert kept["label"].tolist() == fresh["label"].tolist()
