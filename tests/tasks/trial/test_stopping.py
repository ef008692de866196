"""Boosted trees stop early on rows kept from training, and refits use the number of rounds."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import make_classification
from studies import configured, context_of, evaluate, run_all, store_of, with_space

from prefect_tune.optimizers import Query
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.keys import predictions_record
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import REFIT
from prefect_tune.tasks.final.export import trial_pipeline
from prefect_tune.tasks.fitting import recipe as recipe_module
from prefect_tune.tasks.fitting.fitting import FoldData, fit_model
from prefect_tune.tasks.fitting.recipe import Recipe
from prefect_tune.tasks.fitting.stopping import StoppingRows, can_stop, fit_until_flat, rounds_in
from prefect_tune.tasks.objective.metric import metric_named
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial import node as node_module
from prefect_tune.tasks.trial.path_run import PathRun

pytestmark = pytest.mark.slow

BOOSTING = "prefect_tune.tasks.catalogue.boosting"
SPACE = """
from prefect_tune import Algorithm, Flags, Space, Step
from prefect_tune.tasks.catalogue.notation import log_whole, space_of
from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE

trees = Algorithm(
    id="trees",
    estimator="prefect_tune.tasks.catalogue.boosting.light_gbm.classifier",
    hyperparameters=space_of(log_whole(n_estimators=(16, 4096, 320))),
    fixed={"learning_rate": 0.5},
    transforms={"n_estimators": "rounds_of_n"},
    rounds="n_estimators",
    flags=Flags(stochastic=True),
)
space = Space("stopping", (IMPUTE, ENCODE, Step("fit model", (trees,))))
"""


@pytest.fixture
def context(tmp_path, monkeypatch) -> StudyContext:
    """Return a study of boosted trees that count the table's 150 rows as many."""
    monkeypatch.setattr(recipe_module, "_FEW_ROWS", 50)
    return with_space(context_of(tmp_path), SPACE)


def query_of(context: StudyContext, rounds: int = 320) -> Query:
    return configured(
        context, impute="mean", encode="one_hot", fit_model=("trees", {"n_estimators": rounds})
    )


def noisy() -> tuple[FoldData, StoppingRows]:
    """Return 300 training rows with wrong classes; a third of the rows is kept from training."""
    X, y = make_classification(400, 6, flip_y=0.4, random_state=0)
    are_kept = np.arange(300) % 3 == 0
    metric = metric_named("neg_log_loss")
    stopping = StoppingRows(are_kept, lambda p: metric.loss(y[:300][are_kept], p, 2))
    return FoldData(X[:300], X[300:], y[:300], np.array([0, 1])), stopping


@pytest.mark.parametrize(
    ("estimator", "rounds"),
    [
        (f"{BOOSTING}.light_gbm.classifier", "n_estimators"),
        (f"{BOOSTING}.xg_boost.classifier", "n_estimators"),
        (f"{BOOSTING}.cat_boost.classifier", "iterations"),
        ("sklearn.ensemble.HistGradientBoostingClassifier", "max_iter"),
    ],
    ids=["lightgbm", "xgboost", "catboost", "histograms"],
)
def test_stopped_model_equals_a_model_with_the_best_number_of_rounds(estimator, rounds) -> None:
    data, stopping = noisy()
    how = Recipe(
        "trees", estimator, {rounds: 640, "learning_rate": 0.04},
        "none", "", stochastic=True, rounds=rounds,
    )  # fmt: skip
    assert can_stop(how)
    made, predictions = fit_until_flat(how, 1, data, stopping)
    found = rounds_in(how, made.parts["estimator"])
    assert found < 640 / 2
    assert not getattr(made.parts["estimator"], "snapshot_", b"")

    rest = replace(data, train=data.train[~stopping.are_kept], y=data.y[~stopping.are_kept])
    at_once = replace(how, arguments={**how.arguments, rounds: found}, rounds="")
    _, expected = fit_model(at_once, 1, rest)
    np.testing.assert_array_equal(predictions.score, expected.score)
    judged = replace(rest, held_out=data.train[stopping.are_kept])
    best, *others = (
        stopping.loss(
            fit_model(replace(at_once, arguments=how.arguments | {rounds: n}), 1, judged)[1]
        )
        for n in (found, found // 2, 2 * found)
    )
    assert best < min(others)


def test_training_with_a_constant_loss_does_not_stop_early() -> None:
    """For example, no row of the positive class may be kept from training."""
    data, stopping = noisy()
    path, arguments = f"{BOOSTING}.light_gbm.classifier", {"n_estimators": 160}
    how = Recipe("trees", path, arguments, "none", "", stochastic=True, rounds="n_estimators")
    made, _ = fit_until_flat(how, 1, data, replace(stopping, loss=lambda _: 0.5))
    assert rounds_in(how, made.parts["estimator"]) == 160


def test_training_stops_within_the_time_of_the_trial(context) -> None:
    """A constant loss never stops training, so only the time does."""
    data, stopping = noisy()
    path, arguments = f"{BOOSTING}.light_gbm.classifier", {"n_estimators": 1600}
    how = Recipe("trees", path, arguments, "none", "", stochastic=True, rounds="n_estimators")
    short = replace(stopping, loss=lambda _: 0.5, seconds=1e-3)
    made, _ = fit_until_flat(how, 1, data, short)
    assert rounds_in(how, made.parts["estimator"]) == 128
    in_a_trial = replace(context, training_seconds=1e-3)
    assert evaluate(in_a_trial, query_of(context, 4096)).rounds <= 128


def test_rounds_are_recorded_kept_in_the_cache_and_used_by_the_refit(context) -> None:
    query = query_of(context)
    evaluation = evaluate(context, query)
    assert 0 < evaluation.rounds < 320
    assert evaluate(context, query).rounds == evaluation.rounds
    store = store_of(context)
    store.records.release(context.study, [*map(predictions_record, evaluation.predictions)])
    assert evaluate(context, query).rounds == evaluation.rounds

    refit = Trial(0, query).completed(evaluation).refit_query
    fitted = PathRun(context, refit, [REFIT], holds_out=False)
    fitted.run_all()
    model = fitted.nodes(REFIT)[-1].part("estimator")
    assert model.get_params()["estimator__n_estimators"] == evaluation.rounds
    assert not hasattr(model, "early_stopped_rounds_")  # no row is kept from training
    pipeline = trial_pipeline(context, refit, is_final=True).pipeline
    assert pipeline[-1].get_params()["estimator__n_estimators"] == evaluation.rounds


def test_rounds_on_a_subset_grow_for_the_refit(context) -> None:
    query = replace(query_of(context), subset=0.8)
    evaluation = evaluate(context, query)
    refit = Trial(0, query).completed(evaluation).refit_query
    assert refit.rounds == round(evaluation.rounds / 0.8**0.25) > evaluation.rounds


def test_rows_kept_from_training_are_whole_groups_or_the_newest(context) -> None:
    fold = run_all(context, query_of(context), [0]).fold(0)
    kept = fold.stopping(0).are_kept
    assert 0 < kept.sum() < len(kept) / 4

    dataset = load_dataset(store_of(context), context.problem.dataset)
    groups = np.arange(len(dataset)) // 4
    grouped = replace(fold, dataset=replace(dataset, groups=groups)).stopping(0).are_kept
    of_rows = groups[fold.training]
    assert not np.intersect1d(of_rows[grouped], of_rows[~grouped]).size

    times = np.arange(len(dataset), 0, -1.0)
    newest = replace(fold, dataset=replace(dataset, times=times), looks_forward=True)
    are_newest = newest.stopping(0).are_kept
    assert times[fold.training][are_newest].min() > times[fold.training][~are_newest].max()


def test_undefined_loss_lets_training_run_to_the_end(context, monkeypatch) -> None:
    context = replace(context, problem=replace(context.problem, metric="auroc"))
    monkeypatch.setattr(
        node_module, "nested_subset", lambda strata, *_: np.flatnonzero(strata == 0)[:5]
    )
    path_run = run_all(context, query_of(context))
    model = path_run.nodes(0)[-1]
    assert model.rounds is None
    expected = round(320 * (80 / 50) ** 0.25)
    assert model.part("estimator").get_params()["estimator__n_estimators"] == expected


def test_models_that_stop_by_another_metric_have_other_keys(context) -> None:
    other = replace(context, problem=replace(context.problem, metric="auroc"))
    one, another = (evaluate(study, query_of(context)) for study in (context, other))
    assert not {*one.predictions} & {*another.predictions}


def test_large_groups_and_rare_classes_stay_in_training(context) -> None:
    fold = run_all(context, query_of(context), [0]).fold(0)
    dataset = load_dataset(store_of(context), context.problem.dataset)
    large = replace(dataset, groups=np.arange(len(dataset)) * 3 // len(dataset))
    assert replace(fold, dataset=large).stopping(0) is None
    y = dataset.y.copy()
    y[fold.training[:2]] = len(dataset.classes)
    rare = replace(dataset, y=y, classes=(*dataset.classes, "zebra"))
    assert not replace(fold, dataset=rare).stopping(0).are_kept[:2].any()
    groups = np.arange(len(dataset)) // 4
    kept = replace(fold, dataset=replace(rare, groups=groups)).stopping(0).are_kept
    of_rows = groups[fold.training]
    assert not np.intersect1d(of_rows[kept], of_rows[~kept]).size
