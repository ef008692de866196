"""Evaluation of queries with the step cache on, off, hit and missed, on all rows or subsets."""

import shutil
from dataclasses import replace
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest
from studies import (
    configured,
    context_of,
    draw,
    evaluate,
    outcome,
    store_of,
)

from prefect_tune.optimizers import Evaluation, Failure, Query
from prefect_tune.storage import waiting as outage
from prefect_tune.storage.artifacts import MemoryTier
from prefect_tune.storage.inspection import verify
from prefect_tune.storage.keys import PREDICTIONS, predictions_record, quantity_record
from prefect_tune.storage.matrices import canonical
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.data.dataset import import_dataset, load_dataset
from prefect_tune.tasks.data.split import REFIT, load_split
from prefect_tune.tasks.objective import metric
from prefect_tune.tasks.objective.metric import Quantity
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial import evaluate as evaluate_module
from prefect_tune.tasks.trial import node
from prefect_tune.tasks.trial.evaluate import evaluate_query, run_trial

pytestmark = pytest.mark.slow

LEAVES = {"criterion": "gini", "max_depth": 0.5, "min_samples_split": 2, "min_samples_leaf": 1}
TREE = ("decision_tree", LEAVES)
KNN = ("k_nearest", {"n_neighbors": 3, "weights": "uniform", "p": 2})
PCA = ("pca", {"n_components": 0.9, "whiten": False})


@pytest.fixture
def context(tmp_path) -> StudyContext:
    return context_of(tmp_path)


def path(context: StudyContext, **changes: Any) -> Query:
    """Return a query of a path that has all steps but balancing, with some steps changed."""
    usual = {"rescale": "standardize", "balance": "none", "preprocess": PCA, "fit_model": TREE}
    return configured(context, **{**usual, **changes})


def results(evaluation: Evaluation) -> tuple:
    """Return all results that must not depend on the cache."""
    return evaluation.fold_losses, evaluation.predictions, [s.key for s in evaluation.steps]


@pytest.mark.parametrize(
    ("events", "n"), [(False, 3), pytest.param(True, 8, marks=pytest.mark.full)]
)
def test_cache_on_off_hit_and_missed_give_the_same_bits(tmp_path, events, n) -> None:
    cached = context_of(tmp_path, events=events)
    store_of(cached).memory = MemoryTier(0)
    n_complete = 0
    for seed in range(n):
        query = draw(cached, seed)
        missed, whole = outcome(cached, query), outcome(cached, query)
        for entry in store_of(cached).index.select(step="fit model"):
            store_of(cached).forget(entry)  # so that what is before them is read
        hit, off = outcome(cached, query), outcome(replace(cached, use_cache=False), query)
        if isinstance(missed, Failure):
            assert missed.message == whole.message == hit.message == off.message
            continue
        assert results(missed) == results(whole) == results(hit) == results(off)
        assert all(step.hit for step in whole.steps)
        assert {step.step for step in hit.steps if not step.hit} == {"fit model"}
        assert not any(step.hit for step in off.steps)
        assert off.cost_uncached_seconds == off.cost_seconds
        made = [step.seconds for step in missed.steps]
        assert [step.seconds for step in whole.steps] == made
        assert whole.cost_uncached_seconds == pytest.approx(whole.cost_seconds + sum(made))
        n_complete += 1
    assert n_complete >= n // 2
    assert verify(store_of(cached)).is_sound


def test_shared_first_steps_are_computed_once(context) -> None:
    evaluate(context, path(context))
    steps = evaluate(context, path(context, fit_model="gaussian_nb")).steps
    assert [s.step for s in steps if not s.hit] == ["fit model"] * 3
    assert {s.step for s in steps} == {"impute", "encode", "rescale", "preprocess", "fit model"}
    assert store_of(context).index.totals().hits == 12
    handed_on = path(context, fit_model="gaussian_nb", rescale="none", preprocess="none")
    served = evaluate(replace(context, study="second"), handed_on)
    assert {s.step for s in served.steps} == {"impute", "encode", "fit model"}
    used = store_of(context).records.used_by("second")
    assert used == sorted(map(predictions_record, served.predictions))


def test_irrelevant_changes_do_not_change_the_keys(context) -> None:
    def keys(context: StudyContext = context, **changes: Any) -> dict[str, str]:
        steps = evaluate(context, path(context, **changes)).steps
        return {s.step: s.key for s in steps if s.fold == 0}

    plain, weighted = keys(rescale="minmax"), keys(rescale="minmax", balance="weighting")
    assert plain["preprocess"] == weighted["preprocess"]
    assert plain["fit model"] != weighted["fit model"]
    knn = {"fit_model": KNN, "rescale": "minmax"}  # which has no use for weights
    assert keys(**knn) == keys(**knn, balance="weighting")
    clipped = [("k_nearest", {**KNN[1], "n_neighbors": n}) for n in (85, 99)]
    assert keys(fit_model=clipped[0]) == keys(fit_model=clipped[1])  # 80 rows to train on
    other = keys(replace(context, problem=replace(context.problem, seed=1)))
    assert {step for step, key in keys().items() if other[step] != key} == {"fit model"}


def test_evicted_step_is_not_recomputed_if_a_later_step_is_cached(context) -> None:
    store = store_of(context)
    query = path(context)
    steps = evaluate(context, query).steps
    gone = [s.key for s in steps if s.step in ("impute", "encode", "rescale")]
    for entry in store.index.entries(gone).values():
        store.forget(entry)
    again = evaluate(context, query)
    assert all(s.hit for s in again.steps)
    assert not any(e.is_present for e in store.index.entries(gone).values())


@pytest.mark.parametrize(
    "part", ["train.parquet", pytest.param("held_out.parquet", marks=pytest.mark.full)]
)
def test_damaged_step_result_is_recomputed_with_a_warning(context, caplog, part) -> None:
    store = store_of(context)
    store.memory = MemoryTier(0)
    first, second = path(context), path(context, fit_model="gaussian_nb")
    expected = results(evaluate(replace(context, use_cache=False), second))
    for key in {s.key for s in evaluate(context, first).steps if s.step == "preprocess"}:
        file = next(Path(store.files.path("cache", key[:2], key)).rglob(part))
        file.write_bytes(file.read_bytes()[:-4] + b"oops")
    came = evaluate(context, second)
    assert results(came) == expected
    assert "will be recomputed" in caplog.text
    assert {s.step for s in came.steps if not s.hit} == {"preprocess", "fit model"}
    assert all(s.hit for s in evaluate(context, first).steps)  # it was put back


@pytest.mark.parametrize("events", [False, pytest.param(True, marks=pytest.mark.full)])
def test_pilot_measures_each_step_and_changes_nothing(tmp_path, events) -> None:
    context = context_of(tmp_path, events=events)
    query = draw(context, 1)
    came = evaluate_query(context, query, pilot_seconds=inf)
    assert came.pilot is not None
    steps = dict.fromkeys(s.step for s in came.steps)
    assert [cost.step for cost in came.pilot.steps] == list(steps)
    assert all(0 < cost.held_out_seconds < cost.seconds for cost in came.pilot.steps)
    of_steps = sum(cost.seconds for cost in came.pilot.steps)
    assert came.cost_seconds > came.pilot.own_seconds > of_steps
    assert results(came) == results(evaluate(replace(context, use_cache=False), query))
    assert verify(store_of(context)).is_sound


def test_trial_predicted_to_time_out_is_not_started_and_stores_no_records(context) -> None:
    failure = evaluate_query(context, draw(context, 1), pilot_seconds=0.0)
    assert failure.is_unstarted
    assert (failure.kind, failure.steps, failure.traceback) == ("timeout", (), "")
    assert failure.message.startswith("stopped after a fit on ")
    assert failure.cost_seconds > 0
    assert not store_of(context).index.select()
    assert not store_of(context).records.used_by("test", PREDICTIONS)


def test_model_is_evaluated_on_the_requested_share_of_held_out_rows(context) -> None:
    query = draw(context, 1)
    half, whole = evaluate(context, replace(query, held_out=0.5)), evaluate(context, query)
    records = store_of(context).records
    for fold, key in enumerate(half.predictions):
        labels = records.get(predictions_record(key))["label"]
        every = load_split(store_of(context), context.problem.split).held_out(fold)
        assert len(labels) == pytest.approx(len(every) / 2, abs=2)
    assert not set(half.predictions) & set(whole.predictions)


def test_loading_the_data_is_not_a_cost_of_a_trial(context, monkeypatch) -> None:
    query, hours = draw(context, 1), []
    monkeypatch.setattr(outage, "monotonic", lambda: monotonic() + 3600.0 * len(hours))

    def slow(*given: Any) -> Any:
        hours.append(given)
        return load_dataset(*given)

    monkeypatch.setattr(evaluate_module, "load_dataset", slow)
    evaluation = evaluate(context, query)
    assert evaluation.load_seconds >= 3600.0
    assert evaluation.cost_seconds < 3600.0


@pytest.mark.parametrize(
    ("fit", "step", "fold"), [("fit_transformer", "rescale", 0), ("fit_model", "fit model", 1)]
)
def test_failure_names_the_step_and_keeps_earlier_steps(
    context, monkeypatch, fit, step, fold
) -> None:
    made, fitted = getattr(node, fit), []

    def fit_or_fail(how, seed, data):
        fitted.append(how.algorithm)
        if fitted.count(fitted[-1]) > fold and fitted[-1] in ("standardize", TREE[0]):
            raise ValueError("no more at postgresql://me:hidden@host/d")
        return made(how, seed, data)

    monkeypatch.setattr(node, fit, fit_or_fail)
    came = outcome(context, path(context))
    assert (came.kind, came.step, came.fold) == ("error", step, fold)
    assert came.message.startswith("ValueError: no more")
    assert "fit_or_fail" in came.traceback
    assert "hidden" not in came.message + came.traceback
    assert came.cost_seconds >= sum(s.seconds for s in came.steps)
    names = ["impute", "encode", "rescale", "preprocess", "fit model"]
    whole = [(name, f) for name in names[: names.index(step)] for f in range(3)]
    assert [(s.step, s.fold) for s in came.steps] == whole + [(step, f) for f in range(fold)]
    again = outcome(context, path(context))
    assert all(s.hit for s in again.steps)
    assert [s.seconds for s in again.steps] == [s.seconds for s in came.steps]


def test_finished_folds_are_reused_when_all_folds_are_requested(context) -> None:
    size = Quantity("model_size_bytes")
    context = replace(context, quantities=(size,))
    query = draw(context, 1)
    first, second, full = (evaluate(context, replace(query, folds=n)) for n in (1, 2, None))
    fresh = evaluate(replace(context, use_cache=False), query)
    assert [e.resumed_from for e in (first, second, full, fresh)] == [0, 1, 2, 0]
    assert [len(e.fold_losses) for e in (first, second, full)] == [1, 2, 3]
    assert second.fold_losses == full.fold_losses[:2]
    assert second.predictions == full.predictions[:2]
    assert (first.loss, second.loss) == (first.fold_losses[0], np.mean(full.fold_losses[:2]))
    assert results(full) == results(fresh)
    assert {(s.step, s.fold) for s in full.steps if not s.hit} == {(s.step, 2) for s in full.steps}
    assert {s.fold for s in first.steps} == {0}
    records = store_of(context).records
    sizes = [records.get(quantity_record(k, size.digest))["measured"] for k in full.predictions]
    for evaluation, n in ((first, 1), (full, 3)):
        assert evaluation.constraints[size.text] == np.mean([of["value"] for of in sizes[:n]])


def test_search_ignores_test_rows(context) -> None:
    store = store_of(context)
    dataset = load_dataset(store, context.problem.dataset)
    test = load_split(store, context.problem.split).held_out(REFIT)
    X, y = dataset.X.copy(), dataset.y.copy()
    X.loc[test, ["a", "b", "c", "count"]] = 1e6
    X.loc[test, "color"] = X["color"].iloc[0]
    y[test] = 1 - y[test]
    scrambled = replace(dataset, X=canonical(X), y=y)
    problem = replace(context.problem, dataset=import_dataset(scrambled, store))
    other = replace(context, problem=problem)
    for seed in range(2):
        query = draw(context, seed)
        assert evaluate(context, query).fold_losses == evaluate(other, query).fold_losses


def test_non_finite_loss_is_a_failure(context, monkeypatch) -> None:
    monkeypatch.setattr(metric, "loaded", lambda _: lambda *_: float("nan"))
    came = outcome(context, draw(context, 0))
    assert "error is nan on 40 held-out rows" in came.message


def test_missing_data_ends_the_run_with_the_reason(context) -> None:
    lost = replace(context, problem=replace(context.problem, dataset="0" * 64))
    with pytest.raises(StoreLost, match="data/0000"):
        outcome(lost, draw(context, 0))


@pytest.mark.parametrize("is_lost", [False, True])
def test_lost_or_dropped_predictions_are_recomputed_with_the_cached_model(context, is_lost) -> None:
    first, store = evaluate(context, draw(context, 1)), store_of(context)
    names = [predictions_record(key) for key in first.predictions]
    kept = [store.records.get(name)["label"].tolist() for name in names]
    if is_lost:
        shutil.rmtree(store.files.path("records", names[0]))
    else:
        store.records.release(context.study, names)
        assert not store.records.exists(names[0])
    again = evaluate(context, draw(context, 1))
    assert results(again) == results(first)
    assert all(step.hit for step in again.steps)  # nothing was fitted
    assert [store.records.get(name)["label"].tolist() for name in names] == kept
    assert verify(store).is_sound


def test_each_subset_draw_has_separate_steps_and_is_scored_on_all_held_out_rows(context) -> None:
    store, whole = store_of(context), path(context, fit_model="gaussian_nb")
    first, other = (evaluate(context, replace(whole, subset=0.5, subset_draw=d)) for d in (0, 1))
    assert not {s.key for s in first.steps} & {s.key for s in other.steps}
    assert first.fold_losses != other.fold_losses
    tree = evaluate(context, replace(path(context), subset=0.5, subset_draw=1))
    prefixes = {s.key for s in other.steps if s.step != "fit model"}
    assert {s.key for s in tree.steps if s.hit} == prefixes
    y = load_dataset(store, context.problem.dataset).y
    for fold, key in enumerate(first.predictions):
        labels = store.records.get(predictions_record(key))["label"]
        rows = load_split(store, context.problem.split).held_out(fold)
        assert first.fold_losses[fold] == pytest.approx(100 * np.mean(labels != y[rows]))


def test_failure_of_a_constraint_quantity_reports_only_the_original_error(
    tmp_path, monkeypatch
) -> None:
    def fail(*_: object) -> float:
        raise ZeroDivisionError("no rows in a second")

    monkeypatch.setattr(evaluate_module, "measure_quantity", fail)
    context = replace(context_of(tmp_path), quantities=(Quantity("latency_us"),))
    failure = run_trial(context, draw(context, 1).to_json()).failure
    assert failure is not None
    assert "no rows in a second" in failure.message
    assert "RecordDamaged" not in failure.traceback
