"""Trials that train in epochs: resumed, served, evicted, interrupted, diverging."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

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
from prefect_tune.tasks.objective.predictions import Predictions
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial import node as node_module
from prefect_tune.tasks.trial.node import IterativeNode
from prefect_tune.tasks.trial.path_run import PathRun

pytestmark = pytest.mark.slow

BOOSTERS = ("lightgbm", "xgboost", "catboost")
TREES = ("boosting", "histograms", "forest", *BOOSTERS)
MORE = (m for m in ("sgd", *TREES) if m not in {"boosting", "lightgbm"})
ITERATIVE = (
    "mlp",
    "boosting",
    "lightgbm",
    *(pytest.param(m, marks=pytest.mark.full) for m in MORE),
)


@pytest.fixture
def context(tmp_path) -> StudyContext:
    return epoch_context(tmp_path)


def forget_trainings() -> None:
    """Make the next trial resume from checkpoints, as in another process."""
    node_module._LIVE.clear()


def query_of(context: StudyContext, model: str, epochs: int | None = None) -> Query:
    return to_epoch(configured(context, rescale="standardize", fit_model=model), epochs)


def train(context: StudyContext, model: str, epochs: int | None = None) -> Evaluation:
    return evaluate(context, query_of(context, model, epochs))


def results(evaluation: Evaluation) -> tuple:
    """Return all results that must not depend on interruptions."""
    return (
        evaluation.loss,
        evaluation.fold_losses,
        evaluation.curve,
        evaluation.fold_curves,
        evaluation.best_epoch,
        evaluation.predictions,
    )


def straight(folder: Path, model: str) -> Evaluation:
    """Return an uninterrupted training run, in a separate store."""
    (folder / "straight").mkdir()
    return train(epoch_context(folder / "straight"), model)


def models_of(evaluation: Evaluation) -> list:
    return [step for step in evaluation.steps if step.step == "fit model"]


def checkpoints(context: StudyContext) -> list:
    return store_of(context).index.select(step="fit model")


def lose_predictions(context: StudyContext, evaluation: Evaluation) -> None:
    for key in evaluation.predictions:
        shutil.rmtree(store_of(context).files.path("records", "predictions", key[:2], key))


def kept_losses(context: StudyContext, evaluation: Evaluation) -> Iterator[float]:
    """Return losses computed from the predictions in the store."""
    path_run = PathRun(context, query_of(context, "mlp"))
    metric = context.problem.find_metric()
    for fold, key in enumerate(evaluation.predictions):
        parts = store_of(context).records.get(predictions_record(key))
        y = path_run.dataset.y[path_run.split.held_out(fold)]
        yield metric.loss(y, Predictions(parts["label"], parts.get("score")), 2)


@pytest.mark.parametrize("model", ITERATIVE)
@pytest.mark.parametrize("is_live", [True, False], ids=["in one process", "in two processes"])
def test_resumed_trial_predicts_with_the_best_epoch(tmp_path, context, model, is_live) -> None:
    begun = train(context, model, 4)
    assert len(node_module._LIVE) > 0
    if not is_live:
        forget_trainings()
    ended = train(replace(context, study="another"), model)
    assert results(ended) == results(straight(tmp_path, model))
    assert begun.curve == ended.curve[:4]
    assert (begun.resumed_from, ended.resumed_from) == (0, 4)
    assert len(ended.curve) == len(ended.fold_curves[0]) == EPOCHS
    assert ended.loss == min(ended.curve) == ended.curve[ended.best_epoch - 1]
    for evaluation in (begun, ended):
        assert tuple(kept_losses(context, evaluation)) == evaluation.fold_losses
    again = train(context, model)
    assert results(again) == results(ended)
    assert (again.resumed_from, again.best_epoch) == (EPOCHS, ended.best_epoch)
    stopped = train(context, model, 4)  # its checkpoints are still there
    assert results(stopped) == results(begun)
    assert all(step.hit for step in (*again.steps, *stopped.steps))
    lose_predictions(context, ended)
    repaired = train(context, model)
    assert results(repaired) == results(ended)
    # Other models train once more.
    assert all(step.hit for step in models_of(repaired)) == (model in TREES)
    assert verify(store_of(context)).is_sound


def test_training_in_memory_continues_with_the_threads_of_the_trial(context) -> None:
    forget_trainings()
    train(context, "boosting", 4)
    train(replace(context, most_threads=2), "boosting", 6)
    assert {live.data.most_threads for live in node_module._LIVE.values()} == {2}


def test_study_does_not_resume_curves_recorded_with_another_metric(context) -> None:
    begun = train(context, "boosting", 2)
    other = replace(context, problem=replace(context.problem, metric="neg_log_loss"))
    came = train(other, "boosting", 2)
    assert came.resumed_from == 0
    assert came.curve != begun.curve


def test_cost_of_a_checkpoint_is_the_sum_over_all_partial_runs(context, monkeypatch) -> None:
    monkeypatch.setattr(training, "perf_counter", count().__next__)  # all takes one second
    begun = train(context, "mlp", 5)
    lose_predictions(context, begun)
    forget_trainings()
    ended = train(context, "mlp", 6)
    assert ended.best_epoch == begun.best_epoch  # so they are made again
    costs = {e.key: e.cost_seconds for e in checkpoints(context)}
    for first, second in zip(models_of(begun), models_of(ended), strict=True):
        assert costs[first.key] == first.seconds == 1 + 5
        assert costs[second.key] == costs[first.key] + 1 + 1
        assert second.seconds > 1 + 1
    earlier = sum(step.seconds for step in models_of(begun))
    assert ended.cost_uncached_seconds >= ended.cost_seconds + earlier
    served = models_of(train(context, "mlp", 6))
    assert [s.seconds for s in served] == [costs[s.key] for s in served]


@pytest.mark.parametrize("is_damaged", [True, False])
def test_damaged_or_evicted_checkpoint_is_skipped(tmp_path, context, is_damaged) -> None:
    train(context, "sgd", 3)
    later = train(context, "sgd", 6)
    store = store_of(context)
    store.memory = MemoryTier(0)
    forget_trainings()
    step = next(step for step in models_of(later) if step.fold == 1)  # the other folds wait for it
    if is_damaged:
        path = next(Path(store.files.path("cache", step.key[:2], step.key)).rglob("*.pkl"))
        path.write_bytes(path.read_bytes()[:-4] + b"oops")
    else:
        store.forget(store.index.entries([step.key])[step.key])
    ended = train(context, "sgd")
    assert results(ended) == results(straight(tmp_path, "sgd"))
    assert ended.resumed_from == 3


def test_interrupted_training_resumes_from_a_checkpoint(tmp_path, context, monkeypatch) -> None:
    monkeypatch.setattr(node_module, "CHECKPOINT_SECONDS", 0.0)
    advance = IterativeNode.advance

    def advance_or_end(node: IterativeNode, to: int) -> None:
        if to == 8 and node.fold.number == 1:
            raise KeyboardInterrupt
        advance(node, to)

    with monkeypatch.context() as patched:
        patched.setattr(IterativeNode, "advance", advance_or_end)
        with pytest.raises(KeyboardInterrupt):
            train(context, "mlp")
    assert len(checkpoints(context)) == 3  # those before were forgotten
    ended = train(context, "mlp")
    assert ended.resumed_from == 7
    assert len(checkpoints(context)) == 6  # those that it resumed from, and its last
    monkeypatch.undo()
    assert results(ended) == results(straight(tmp_path, "mlp"))


def test_infinite_loss_ends_training_and_the_best_epoch_is_used(tmp_path) -> None:
    context = epoch_context(tmp_path, numbers=True)
    ended = train(context, "growing")
    n = len(ended.curve)
    assert 1 <= n < EPOCHS
    assert {len(curve) for curve in ended.fold_curves} == {n}
    assert ended.loss == min(ended.curve)
    assert ended.trouble.startswith(f"epoch {n + 1} of fold ")
    stretches = [train(context, "growing", e) for e in range(1, EPOCHS)]
    assert results(stretches[-1]) == results(ended)
    assert stretches[0].curve == ended.curve[:1]
    assert (stretches[0].trouble, stretches[-1].trouble) == ("", ended.trouble)
    failed = outcome(context, query_of(context, "hopeless"))  # in its first epoch
    assert (failed.step, failed.fold) == ("fit model", 0)
    assert {step.step for step in failed.steps} == {"impute", "encode", "rescale"}


def test_model_without_epochs_is_fitted_at_once_with_unchanged_keys(context) -> None:
    part, whole = train(context, "lbfgs", 3), train(context, "lbfgs")
    assert results(part) == results(whole)
    assert (part.curve, part.best_epoch) == ((), None)
    assert all(step.hit for step in whole.steps)
    without_epochs = replace(context, epochs=None)
    assert train(without_epochs, "lbfgs").predictions == whole.predictions
    fitted, trained = train(without_epochs, "sgd"), train(context, "sgd")
    assert fitted.predictions == tuple(step.key for step in models_of(fitted))
    assert not set(trained.predictions) & set(fitted.predictions)


@pytest.mark.parametrize("model", ITERATIVE)
def test_refit_trains_the_best_number_of_epochs(context, monkeypatch, model) -> None:
    monkeypatch.setattr(node_module, "CHECKPOINT_SECONDS", 0.0)
    path_run = run_all(context, query_of(context, model, 7), [REFIT])
    before, node = path_run.nodes(REFIT)[-2:]
    assert isinstance(node, IterativeNode)
    assert (node.epochs, node.best_epoch, node.curve) == (7, 7, ())
    fitted = node.part("estimator")
    counted = {"boosting": 14, "forest": 11}.get(model)
    assert counted is None or len(fitted.estimators_) == counted
    assert model not in BOOSTERS or fitted.get_params()[fitted.rounds] == 14
    assert not getattr(fitted, "warm_start", False)
    label = [path_run.dataset.classes[i] for i in node.predictions().label]
    assert label == list(fitted.predict(before.part("held_out")))
    kept = Path(store_of(context).files.path("records", "predictions"))
    assert [folder.name for folder in kept.glob("*/*")] == [node.predictions_key]


def test_fold_trained_alone_predicts_with_the_best_epoch_of_all_folds(tmp_path, context) -> None:
    first = evaluate(context, to_epoch(query_of(context, "mlp"), None, folds=1))
    ended = train(context, "mlp")
    assert ended.best_epoch != first.best_epoch
    assert results(ended) == results(straight(tmp_path, "mlp"))
    assert tuple(kept_losses(context, ended)) == ended.fold_losses
