"""Evaluating queries with the prefix cache on, off, hit and missed."""

import logging
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from inputs import table
from studies import configured, context_of, draw, evaluate, outcome, store_of

from prefect_tune.optimizers import Evaluation, Failure, Query
from prefect_tune.storage import StoreLost
from prefect_tune.storage.cache.entry import Selection
from prefect_tune.storage.inspection import verify
from prefect_tune.storage.key import predictions_record, quantity_record
from prefect_tune.storage.matrices import canonical
from prefect_tune.storage.writer import MemoryTier
from prefect_tune.tasks.data.dataset import import_dataset, load_dataset
from prefect_tune.tasks.data.split import REFIT, import_split, load_split
from prefect_tune.tasks.fitting.memory_estimate import MatrixSummary
from prefect_tune.tasks.objective import metric
from prefect_tune.tasks.objective.quantity import Quantity
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial import node
from prefect_tune.tasks.trial.path_run import PathRun

TREE = (
    "decision_tree",
    {"criterion": "gini", "max_depth": 0.5, "min_samples_split": 2, "min_samples_leaf": 1},
)
KNN = ("k_nearest", {"n_neighbors": 3, "weights": "uniform", "p": 2})
PCA = ("pca", {"n_components": 0.9, "whiten": False})
SELECT = ("select_percentile", {"percentile": 60, "score": "f_classif"})


def results(evaluation: Evaluation) -> tuple:
    """What must not depend on the cache."""
    return evaluation.fold_losses, evaluation.predictions, [s.key for s in evaluation.steps]


def forget_models(context: StudyContext) -> None:
    store = store_of(context)
    for entry in store.index.select(Selection(step="fit model")):
        store.forget(entry)


@pytest.mark.slow
@pytest.mark.parametrize("events", [False, True], ids=["table", "events"])
def test_cache_on_off_hit_and_missed_give_the_same_evaluation_to_the_last_bit(
    tmp_path, events
) -> None:
    cached = context_of(tmp_path, events=events)
    store_of(cached).memory = MemoryTier(0)
    uncached = replace(cached, use_cache=False)
    predictions = {}
    for seed in range(8 if events else 20):
        query = draw(cached, seed)
        missed = outcome(cached, query)
        whole = outcome(cached, query)
        forget_models(cached)  # so that what is before them is read
        hit, off = outcome(cached, query), outcome(uncached, query)
        if isinstance(missed, Failure):
            assert isinstance(whole, Failure)
            assert isinstance(hit, Failure)
            assert isinstance(off, Failure)
            assert missed.message == hit.message == off.message
            continue
        assert results(missed) == results(whole) == results(hit) == results(off)
        assert all(step.hit for step in whole.steps)
        assert {step.step for step in hit.steps if not step.hit} == {"fit model"}
        assert not any(step.hit for step in off.steps)
        predictions[seed] = missed.predictions
    assert len(predictions) > 5
    assert verify(store_of(cached)).is_sound


def test_a_prefix_is_made_once_for_all_that_begin_with_it(tmp_path) -> None:
    context = context_of(tmp_path)
    first = configured(
        context, rescale="standardize", balance="none", preprocess=PCA, fit_model=TREE
    )
    second = configured(
        context, rescale="standardize", balance="none", preprocess=PCA, fit_model="gaussian_nb"
    )
    evaluate(context, first)
    steps = evaluate(context, second).steps
    assert [s.step for s in steps if not s.hit] == ["fit model"] * 3
    assert {s.step for s in steps} == {"impute", "encode", "rescale", "preprocess", "fit model"}
    assert store_of(context).index.totals().hits == 12


def test_steps_that_hand_on_what_they_got_make_no_artifact(tmp_path) -> None:
    context = context_of(tmp_path)
    query = configured(
        context, rescale="none", balance="none", preprocess="none", fit_model="gaussian_nb"
    )
    assert {s.step for s in evaluate(context, query).steps} == {"impute", "encode", "fit model"}


def test_balancing_enters_the_keys_of_those_that_use_weights_and_of_no_others(tmp_path) -> None:
    context = context_of(tmp_path)
    keys = {}
    for balance in ("none", "weighting"):
        for model in (TREE, KNN):
            query = configured(
                context, rescale="minmax", balance=balance, preprocess=PCA, fit_model=model
            )
            steps = evaluate(context, query).steps
            keys[balance, str(model)] = {s.step: s.key for s in steps if s.fold == 0}
    for model in (str(TREE), str(KNN)):
        assert keys["none", model]["preprocess"] == keys["weighting", model]["preprocess"]
    assert keys["none", str(KNN)] == keys["weighting", str(KNN)]
    assert keys["none", str(TREE)]["fit model"] != keys["weighting", str(TREE)]["fit model"]


def test_values_that_the_data_clips_to_the_same_share_a_key(tmp_path) -> None:
    context = context_of(tmp_path)
    keys = []
    for n_neighbors in (85, 99):
        knn = ("k_nearest", {"n_neighbors": n_neighbors, "weights": "uniform", "p": 2})
        query = configured(
            context, rescale="none", balance="none", preprocess="none", fit_model=knn
        )
        keys.append(evaluate(context, query).predictions)
    assert keys[0] == keys[1]  # 80 rows to train on


def test_another_study_seed_shares_what_is_not_random(tmp_path) -> None:
    context = context_of(tmp_path)
    other = replace(context, problem=replace(context.problem, seed=1))
    query = configured(
        context, rescale="standardize", balance="none", preprocess=PCA, fit_model=TREE
    )
    evaluate(context, query)
    missed = {s.step for s in evaluate(other, query).steps if not s.hit}
    assert missed == {"fit model"}


def test_a_subset_trains_on_fewer_rows_and_holds_out_the_same(tmp_path) -> None:
    context = context_of(tmp_path)
    query = draw(context, 0)
    subset = Query(query.configuration, subset=0.5)
    full, half = PathRun(context, query), PathRun(context, subset)
    full.run(0)
    half.run(0)
    assert half.nodes(0)[0].summary == MatrixSummary(40, 5, "frame")
    assert full.nodes(0)[0].summary == MatrixSummary(80, 5, "frame")
    assert (full.nodes(0)[0].fold.held_out == half.nodes(0)[0].fold.held_out).all()
    assert full.nodes(0)[0].key != half.nodes(0)[0].key


def test_an_evicted_prefix_is_not_made_again_when_a_later_one_is_there(tmp_path) -> None:
    context = context_of(tmp_path)
    store = store_of(context)
    query = configured(
        context, rescale="standardize", balance="none", preprocess=PCA, fit_model=TREE
    )
    steps = evaluate(context, query).steps
    gone = [s.key for s in steps if s.step in ("impute", "encode", "rescale")]
    for entry in store.index.entries(gone).values():
        store.cache.forget(entry)
    again = evaluate(context, query)
    assert all(s.hit for s in again.steps)
    assert not any(e.is_present for e in store.index.entries(gone).values())


@pytest.mark.parametrize("part", ["train.parquet", "held_out.parquet"])
@pytest.mark.parametrize("step", ["encode", "preprocess"])
def test_a_damaged_prefix_is_made_again_with_a_warning(tmp_path, caplog, step, part) -> None:
    context = context_of(tmp_path)
    store = store_of(context)
    store.memory = MemoryTier(0)
    first = configured(context, rescale="minmax", balance="none", preprocess=PCA, fit_model=TREE)
    second = configured(
        context, rescale="minmax", balance="none", preprocess=PCA, fit_model="gaussian_nb"
    )
    expected = results(evaluate(replace(context, use_cache=False), second))
    for key in {s.key for s in evaluate(context, first).steps if s.step == step}:
        path = next(Path(store.files.path("cache", key[:2], key)).rglob(part))
        path.write_bytes(path.read_bytes()[:-4] + b"oops")
    with caplog.at_level(logging.WARNING):
        came = evaluate(context, second)
    assert results(came) == expected
    assert ("is made again" in caplog.text) == (step == "preprocess")
    if step == "preprocess":
        assert {s.step for s in came.steps if not s.hit} == {"preprocess", "fit model"}
        assert all(s.hit for s in evaluate(context, first).steps)  # it was put back


def test_lost_predictions_are_made_again(tmp_path) -> None:
    context = context_of(tmp_path)
    query = draw(context, 3)
    first = evaluate(context, query)
    key = first.predictions[0]
    folder = Path(store_of(context).files.path("records", "predictions", key[:2], key))
    shutil.rmtree(folder)
    assert results(evaluate(context, query)) == results(first)
    assert verify(store_of(context)).is_sound


def test_a_cache_too_small_for_anything_changes_nothing(tmp_path) -> None:
    context = context_of(tmp_path)
    query = draw(context, 5)
    expected = results(evaluate(replace(context, use_cache=False), query))
    store_of(context).set_budget(1)
    came = evaluate(context, query)
    assert results(came) == expected
    assert store_of(context).index.totals().cache_bytes == 0
    assert store_of(context).index.totals().refused > 0


def test_costs_say_what_was_spent_and_what_it_would_have_been(tmp_path) -> None:
    context = context_of(tmp_path)
    query = draw(context, 1)
    missed, hit = evaluate(context, query), evaluate(context, query)
    assert missed.cost_uncached_seconds == missed.cost_seconds
    made = sum(s.seconds for s in missed.steps)
    assert hit.cost_uncached_seconds == pytest.approx(hit.cost_seconds + made)
    assert [s.seconds for s in hit.steps] == [s.seconds for s in missed.steps]


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_a_failure_says_what_failed_where_and_keeps_what_was_made_before(tmp_path) -> None:
    too_large = tmp_path / "too_large.csv"
    table().assign(c=np.linspace(-1e300, 1e300, 150)).to_csv(too_large, index=False)
    context = context_of(tmp_path, data=too_large)
    query = configured(
        context, rescale="standardize", balance="none", preprocess=PCA, fit_model=TREE
    )
    came = outcome(context, query)
    assert isinstance(came, Failure)
    assert (came.kind, came.step, came.fold) == ("error", "rescale", 0)
    assert came.message == "ValueError: standardize makes values that are not finite"
    assert "fit_transformer" in came.traceback
    assert came.cost_seconds > 0
    assert store_of(context).index.totals().count == 6
    ended = [("impute", f, False) for f in range(3)] + [("encode", f, False) for f in range(3)]
    assert [(s.step, s.fold, s.hit) for s in came.steps] == ended
    again = outcome(context, query)
    assert isinstance(again, Failure)
    assert [(s.step, s.fold, s.hit) for s in again.steps] == [(*e[:2], True) for e in ended]
    assert [s.seconds for s in again.steps] == [s.seconds for s in came.steps]


def test_a_failure_in_a_later_fold_keeps_what_the_step_took_in_those_before(
    tmp_path, monkeypatch
) -> None:
    context = context_of(tmp_path)
    made = node.fit_model

    def fit_model(how, seed, data):
        if data.train.shape[0] != made_of:
            raise ValueError("not these rows")
        return made(how, seed, data)

    query = draw(context, 1)
    made_of = len(PathRun(context, query).split.training(0, np.zeros(150, dtype=np.int32)))
    monkeypatch.setattr(node, "fit_model", fit_model)
    split = PathRun(context, query).split
    uneven = split.fold.copy()
    uneven[np.flatnonzero(uneven == 1)[0]] = 2
    other = import_split(replace(split, fold=uneven), store_of(context))
    came = outcome(replace(context, problem=replace(context.problem, split=other)), query)
    assert isinstance(came, Failure)
    assert (came.step, came.fold) == ("fit model", 1)
    assert [s.fold for s in came.steps if s.step == "fit model"] == [0]
    assert came.cost_seconds >= sum(s.seconds for s in came.steps)


def test_the_first_folds_are_served_when_all_are_asked_for(tmp_path) -> None:
    context = context_of(tmp_path)
    query = draw(context, 1)
    first = evaluate(context, replace(query, folds=1))
    second = evaluate(context, replace(query, folds=2))
    full = evaluate(context, query)
    fresh = evaluate(replace(context, use_cache=False), query)
    assert [e.resumed_from for e in (first, second, full, fresh)] == [0, 1, 2, 0]
    assert [len(e.fold_losses) for e in (first, second, full)] == [1, 2, 3]
    assert first.fold_losses == full.fold_losses[:1] == fresh.fold_losses[:1]
    assert second.predictions == full.predictions[:2]
    assert first.loss == first.fold_losses[0]
    assert second.loss == np.mean(full.fold_losses[:2])
    assert results(full) == results(fresh)
    assert {(s.step, s.fold) for s in full.steps if not s.hit} == {(s.step, 2) for s in full.steps}
    assert {s.fold for s in first.steps} == {0}


def test_quantities_are_measured_over_the_folds_evaluated(tmp_path) -> None:
    size = Quantity("model_size_bytes")
    context = replace(context_of(tmp_path), quantities=(size,))
    query = draw(context, 1)
    records = store_of(context).records

    def measured(evaluation: Evaluation) -> list[float]:
        """The record of each fold."""
        keys = [quantity_record(key, size.digest) for key in evaluation.predictions]
        return [records.get(key)["measured"]["value"] for key in keys]

    first = evaluate(context, replace(query, folds=1))
    full = evaluate(context, query)
    assert first.constraints[size.text] == measured(first)[0]
    assert full.constraints[size.text] == np.mean(measured(full))
    assert measured(full)[:1] == measured(first)


def test_all_folds_are_not_asked_for_by_their_number(tmp_path) -> None:
    context = context_of(tmp_path)
    with pytest.raises(ValueError, match="the first 3 of 3 folds: all are folds=None"):
        PathRun(context, replace(draw(context, 1), folds=3))


def test_a_subset_of_patients_begins_with_the_features_that_are_constructed(tmp_path) -> None:
    context = context_of(tmp_path, events=True)
    query = draw(context, 1)
    part = replace(query, subset=0.25)
    half, other = PathRun(context, part), PathRun(context, replace(part, subset_draw=1))
    whole = PathRun(context, query)
    for path_run in (half, other, whole):
        path_run.run(0)
    constructed = [p.nodes(0)[0] for p in (half, other, whole)]
    assert len({n.key for n in constructed}) == 3
    folds = [n.fold for n in constructed]
    n_rows = [len(f.training) for f in folds]
    assert n_rows[0] < n_rows[2] / 2
    assert [n.summary and n.summary.rows for n in constructed] == n_rows
    patients = half.dataset.groups
    assert patients is not None
    for fold in folds[:2]:
        left = np.setdiff1d(folds[2].training, fold.training)
        assert not set(patients[fold.training]) & set(patients[left])
        assert (fold.held_out == folds[2].held_out).all()
    evaluated = evaluate(context, part)
    assert evaluated.cost_seconds > 0
    assert {s.step for s in evaluated.steps if s.hit} == {"construct features"}


def test_test_rows_have_no_part_in_the_search(tmp_path) -> None:
    context = context_of(tmp_path)
    store = store_of(context)
    dataset = load_dataset(store, context.problem.dataset)
    test = load_split(store, context.problem.split).held_out(REFIT)
    X, y = dataset.X.copy(), dataset.y.copy()
    X.loc[test, ["a", "b", "c", "count"]] = 1e6
    X.loc[test, "colour"] = X["colour"].iloc[0]
    y[test] = 1 - y[test]
    scrambled = replace(dataset, X=canonical(X), y=y)
    other = replace(
        context, problem=replace(context.problem, dataset=import_dataset(scrambled, store))
    )
    for seed in range(4):
        query = draw(context, seed)
        assert evaluate(context, query).fold_losses == evaluate(other, query).fold_losses


def test_a_loss_that_is_no_number_is_a_failure(tmp_path, monkeypatch) -> None:
    context = context_of(tmp_path)
    broken = replace(metric.metric_named("error"), compute=lambda *_: float("nan"))
    monkeypatch.setattr(metric, "_ERROR", broken)
    came = outcome(context, draw(context, 0))
    assert isinstance(came, Failure)
    assert "error is nan on 40 held-out rows" in came.message


def test_the_refit_trains_on_all_training_rows_and_holds_out_the_test(tmp_path) -> None:
    context = context_of(tmp_path)
    path_run = PathRun(context, draw(context, 1), folds=[REFIT])
    for position in range(len(path_run.steps)):
        path_run.run(position)
    model = path_run.nodes(REFIT)[-1]
    assert len(model.fold.training) == 120
    assert len(model.predictions().label) == 30


def test_data_that_is_gone_ends_the_run_with_the_reason(tmp_path) -> None:
    context = context_of(tmp_path)
    lost = replace(context, problem=replace(context.problem, dataset="0" * 64))
    with pytest.raises(StoreLost, match="data/0000"):
        outcome(lost, draw(context, 0))


def test_two_trials_of_one_prefix_at_once_make_it_once(tmp_path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    context = context_of(tmp_path)
    queries = [draw(context, s, ("standardize", "none", "pca", "gaussian_nb")) for s in (1, 1, 1)]
    with ThreadPoolExecutor(3) as pool:
        came = list(pool.map(lambda q: evaluate(context, q), queries))
    assert len({results(e)[0] for e in came}) == 1
    made = [s.key for e in came for s in e.steps if not s.hit]
    assert len(made) == len(set(made)) == 15
    assert np.isfinite(came[0].loss)


def drop_predictions(context: StudyContext, evaluation: Evaluation) -> None:
    """Drop them as a study does that does not need them any more."""
    records = store_of(context).records
    records.release(context.study, [predictions_record(key) for key in evaluation.predictions])
    assert not records.exists(predictions_record(evaluation.predictions[0]))


@pytest.mark.parametrize("seed", [1, 3])
def test_predictions_that_were_dropped_are_made_again_by_the_same_model(tmp_path, seed) -> None:
    context = context_of(tmp_path)
    query = draw(context, seed)
    first = evaluate(context, query)
    kept = [node_predictions(context, key) for key in first.predictions]
    drop_predictions(context, first)
    again = evaluate(context, query)
    assert results(again) == results(first)
    assert all(step.hit for step in again.steps)  # nothing was fitted
    for key, (label, score) in zip(first.predictions, kept, strict=True):
        same_label, same_score = node_predictions(context, key)
        assert (same_label == label).all()
        assert (same_score is None and score is None) or (same_score == score).all()
    assert verify(store_of(context)).is_sound


def test_predictions_whose_model_is_gone_too_are_made_again(tmp_path) -> None:
    context = context_of(tmp_path)
    query = draw(context, 3)
    first = evaluate(context, query)
    drop_predictions(context, first)
    forget_models(context)
    again = evaluate(context, query)
    assert results(again) == results(first)
    assert {step.step for step in again.steps if not step.hit} == {"fit model"}


def node_predictions(context: StudyContext, key: str) -> tuple:
    parts = store_of(context).records.get(predictions_record(key))
    return parts["label"], parts.get("score")
