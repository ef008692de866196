"""Losses on held-out rows, on test rows, and in bootstraps."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics
from sklearn.dummy import DummyClassifier
from sklearn.metrics import roc_auc_score
from studies import context_of, draw, epoch_context, evaluate, to_epoch

from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.final.refit import LossOnTest, loss_on_test
from prefect_tune.tasks.objective.metric import METRICS, Metric, metric_named
from prefect_tune.tasks.objective.predictions import Predictions
from prefect_tune.tasks.objective.risk import Resampling, weighted_areas

OF_CLASSES = [name for name, declared in METRICS.items() if declared.target == "classification"]
OF_NUMBERS = [name for name, declared in METRICS.items() if declared.target == "regression"]
OF_TWO = ("f1", "jaccard", "precision", "recall", "roc_auc")
"""Metrics of two classes alone."""


def classes(n: int, n_classes: int, seed: int = 0) -> tuple[np.ndarray, Predictions]:
    """Return true classes and probabilities, which are hundredths, so that ties occur."""
    rng = np.random.default_rng(seed)
    y = np.append(np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)).astype(np.int32)
    score = rng.dirichlet(np.ones(n_classes), n)
    score[np.arange(n), y] += 0.4
    score = np.round(score / score.sum(axis=1, keepdims=True), 2)
    score[:, -1] = 1 - score[:, :-1].sum(axis=1)
    return y, Predictions(score.argmax(axis=1).astype(np.int32), np.clip(score, 0, 1))


def numbers(n: int, seed: int = 0) -> tuple[np.ndarray, Predictions]:
    rng = np.random.default_rng(seed)
    y = rng.exponential(2.0, n)
    return y, Predictions(np.abs(y + rng.normal(0, 0.5, n)))


def scikit_learns(name: str, y: Any, predicted: Predictions, n: int, positive: int) -> float:
    """Return the loss of n classes, computed only with functions of scikit-learn."""
    assert predicted.score is not None
    truth, score = y, predicted.score
    if n == 2:
        truth, score = y == positive, predicted.score[:, positive]
    rate, _, average = name.partition("_")
    if name in ("error", "accuracy"):
        return (100 if name == "error" else 1) * (1 - metrics.accuracy_score(y, predicted.label))
    if rate in OF_TWO:
        how = {"average": average} if average else {"pos_label": positive}
        return 1 - getattr(metrics, f"{rate}_score")(y, predicted.label, **how)
    if "auc" in name or name == "auroc":
        way = "ovo" if "ovo" in name else "ovr"
        average = "weighted" if name == "auroc" or "weighted" in name else "macro"
        how = {"multi_class": way, "average": average} if n > 2 else {}
        return 1 - roc_auc_score(truth, score, **how)
    if name == "neg_brier_score":
        return metrics.brier_score_loss(truth, score, labels=np.unique(truth))
    if name == "neg_log_loss":
        return metrics.log_loss(truth, score)
    function = getattr(metrics, name, None) or getattr(metrics, f"{name}_score")
    of_labels = name in ("balanced_accuracy", "matthews_corrcoef")
    return 1 - (function(y, predicted.label) if of_labels else function(truth, score))


CASES = [
    (name, n, positive)
    for name in OF_CLASSES
    for n, positive in ((2, 1), (2, 0), (3, 1))
    if n == 2 or name not in OF_TWO
]


@pytest.mark.parametrize(("name", "n_classes", "positive"), CASES)
def test_classification_loss_equals_scikit_learn(name, n_classes, positive) -> None:
    y, predicted = classes(80, n_classes)
    expected = scikit_learns(name, y, predicted, n_classes, positive)
    assert metric_named(name, positive).loss(y, predicted, n_classes) == pytest.approx(expected)


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_regression_loss_equals_scikit_learn(name) -> None:
    y, predicted = numbers(100)
    metric, called = metric_named(name), name.removeprefix("neg_")
    function = getattr(metrics, called, None) or getattr(metrics, f"{called}_score", None)
    assert function is not None
    found = function(y, predicted.label)
    loss = metric.loss(y, predicted, 0)
    assert loss == pytest.approx(found if name.startswith("neg_") else 1 - found)
    assert loss < metric.objective(y, 0).chance <= metric.declared.upper


@pytest.mark.parametrize(
    ("name", "chance"),
    [("error", 25), ("f1", 0.6), ("average_precision", 0.75), ("neg_brier_score", 0.1875)],
)
def test_chance_loss_is_the_loss_of_the_best_constant_guess(name, chance) -> None:
    objective = metric_named(name).objective(np.array([0] * 30 + [1] * 10), 2)
    assert objective.chance == pytest.approx(chance)
    assert objective.lower <= objective.chance <= objective.upper


def test_metric_of_two_classes_is_refused_for_three_with_a_single_reason() -> None:
    with pytest.raises(BadInput) as refused:
        metric_named("f1").objective(np.array([0, 1, 2] * 4), 3)
    assert str(refused.value).count("f1") == 1


def test_labels_without_scores_have_an_auroc_but_no_probability_loss() -> None:
    y, predicted = classes(80, 3)
    votes = Predictions(predicted.label, np.eye(3)[predicted.label])
    auroc, alone = metric_named("auroc"), Predictions(predicted.label)
    assert auroc.loss(y, alone, 3) == auroc.loss(y, votes, 3)
    decisions = Predictions(predicted.label, 3 * predicted.score)
    assert auroc.loss(y, decisions, 3) == auroc.loss(y, predicted, 3)
    for name in ("neg_log_loss", "neg_brier_score", "roc_auc_ovr"):
        for without in (alone, decisions):
            with pytest.raises(ValueError, match="needs probabilities"):
                metric_named(name).loss(y, without, 3)


class FirstColumn(DummyClassifier):
    """Predicts the first column."""

    def predict(self, X: Any) -> Any:
        return self.classes_[np.asarray(X)[:, 0].astype(int)]


def scored(name: str, test: list[int], predicted: list[int], classes: Any) -> LossOnTest:
    y = np.array([*np.arange(20) % len(classes), *test])
    X = pd.DataFrame({"a": [*y[:20], *predicted]})
    model = FirstColumn(strategy="uniform", random_state=0).fit(X, np.array(classes)[y])
    dataset = Dataset("d", "table", X, y.astype(np.int32), tuple(classes))
    rows: Any = SimpleNamespace(
        equal=None, seed=0, is_training=np.arange(30) < 20, held_out=lambda _: np.arange(20, 30)
    )
    return loss_on_test(model, dataset, rows, metric_named(name))


@pytest.mark.parametrize(
    "name", ["recall", "f1", "average_precision", "roc_auc", "auroc", "d2_log_loss_score"]
)
def test_loss_is_undefined_without_a_row_of_the_positive_class(name) -> None:
    found = scored(name, [0] * 10, [0, 1] * 5, ["no", "yes"])
    assert found.loss is None
    assert f"{name} " in found.undefined


@pytest.mark.parametrize("name", ["recall", "f1", "precision", "jaccard"])
def test_class_without_rows_is_excluded_from_the_mean_over_classes(name) -> None:
    y, predicted = [0, 2] * 5, [0, 1, 2, 2, 0] * 2
    score = getattr(metrics, f"{name}_score")
    present = score(y, predicted, labels=[0, 2], average="macro")
    found = scored(f"{name}_macro", y, predicted, ["a", "b", "c"])
    assert found == LossOnTest(pytest.approx(1 - present))
    weighted = score(y, predicted, average="weighted", zero_division=0)
    found = scored(f"{name}_weighted", y, predicted, ["a", "b", "c"])
    assert found.loss == pytest.approx(1 - weighted)


@pytest.mark.parametrize("name", ["auroc", "roc_auc_ovr", "average_precision", "neg_log_loss"])
def test_auroc_is_averaged_over_classes_with_rows(name) -> None:
    y, predicted = classes(60, 4)
    beside = Predictions(predicted.label, np.hstack([predicted.score, np.zeros((60, 1))]))
    metric = metric_named(name)
    assert metric.loss(y, beside, 5) == pytest.approx(metric.loss(y, predicted, 4))


QUICK = [name for name, declared in METRICS.items() if declared.is_quick]
MEANS = [name for name in QUICK if METRICS.named(name).row_losses]


def drawn(
    metric: Metric,
    y: np.ndarray,
    n_classes: int,
    bootstraps: Bootstraps = Bootstraps(20, 0.5),  # noqa: B008 - it is frozen
    n_folds: int = 1,
) -> Resampling:
    """Return bootstrap samples of rows that are assigned to folds in turn."""
    held_out = [np.arange(fold, len(y), n_folds) for fold in range(n_folds)]
    dataset: Any = SimpleNamespace(y=y, classes=tuple(range(n_classes)))
    split: Any = SimpleNamespace(n_folds=n_folds, held_out=held_out.__getitem__)
    return Resampling.of(dataset, split, metric, bootstraps, np.random.default_rng(0))


def check_risks(name: str, y: np.ndarray, predicted: Predictions, n_classes: int, **more) -> None:
    """Check that a risk is the metric of the rows drawn."""
    metric = metric_named(name)
    resampling = drawn(metric, y, n_classes, **more)
    drawn_rows = [np.repeat(np.arange(len(y)), counts) for counts in resampling.counts[0]]
    expected = [metric.loss(y[rows], predicted.take(rows), n_classes) for rows in drawn_rows]
    assert resampling.risks([predicted]) == pytest.approx(np.array(expected))


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, pytest.param(3, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", [*QUICK, "d2_log_loss_score", "roc_auc_ovo", "explained_variance"])
def test_risk_is_the_loss_of_the_rows_drawn(name: str, n_classes: int) -> None:
    if name in OF_NUMBERS:
        check_risks(name, *numbers(60), 0)
        return
    n_classes = 2 if name in OF_TWO else n_classes
    check_risks(name, *classes(80, n_classes), n_classes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n for n in QUICK if n in OF_CLASSES and n not in (*MEANS, "auroc", "roc_auc")]
)
def test_risk_is_correct_for_classes_without_predictions_or_rows(name: str) -> None:
    n_classes = 2 if name in OF_TWO else 4
    y = np.arange(40, dtype=np.int32) % min(n_classes, 3)  # of four classes, one has no rows
    y[:30] = 0
    for label in (np.zeros(40, dtype=np.int32), np.arange(40, dtype=np.int32)[::-1] % n_classes):
        predicted = Predictions(label, np.eye(n_classes)[label])
        check_risks(name, y, predicted, n_classes, bootstraps=Bootstraps(20, 0.2))


def test_weighted_auroc_matches_the_worked_example() -> None:
    score = np.array([0.1, 0.4, 0.35, 0.8, 0.4, 0.7])
    y = np.array([0, 0, 1, 1, 1, 0])
    counts = np.array([[1, 1, 1, 1, 1, 1], [2, 0, 1, 1, 1, 1], [1, 2, 0, 1, 2, 0]])
    areas = weighted_areas(score, y == 1, counts / counts.sum(axis=1, keepdims=True))
    assert areas == pytest.approx([0.611111, 0.777778, 0.777778], abs=1e-6)
    check_risks("auroc", *classes(80, 3), 3)


@pytest.mark.parametrize(("share", "n_draws"), [(0.5, (12, 12)), (1.0, (25, 24))])
def test_each_fold_has_a_proportional_share_of_draws(
    share: float, n_draws: tuple[int, int]
) -> None:
    y, _ = classes(49, 2)
    resampling = drawn(metric_named("error"), y, 2, Bootstraps(7, share), n_folds=2)
    for counts, n in zip(resampling.counts, n_draws, strict=True):
        assert (counts.sum(axis=1) == n).all()
    assert len({c.tobytes() for c in resampling.counts[0]}) == 7


def test_bootstraps_draw_from_all_rows_for_means_and_within_classes_otherwise() -> None:
    y = np.array([1] * 2 + [0] * 58)
    by_error = drawn(metric_named("error"), y, 2, Bootstraps(200, 0.5)).counts[0]
    by_area = drawn(metric_named("auroc"), y, 2, Bootstraps(200, 0.5)).counts[0]
    assert (by_error[:, :2].sum(axis=1) == 0).any()
    assert (by_area[:, :2].sum(axis=1) == 1).all()
    assert (by_area[:, 2:].sum(axis=1) == 29).all()


def test_loss_of_the_fold_replaces_undefined_losses_of_bootstraps() -> None:
    y = np.array([1.0, 5.0])
    predicted = Predictions(np.array([1.5, 4.0]))
    metric = metric_named("r2")
    resampling = drawn(metric, y, 0, Bootstraps(40, 0.5))  # of one draw each
    assert resampling.risks([predicted]) == pytest.approx(metric.loss(y, predicted, 0))


def test_bootstraps_of_many_rows_are_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    y, predicted = classes(60, 2)
    resampling = drawn(metric_named("auroc"), y, 2)
    at_once = resampling.risks([predicted])
    monkeypatch.setattr("prefect_tune.tasks.objective.risk.MOST_WEIGHTS", 3 * 60)
    assert resampling.risks([predicted]) == pytest.approx(at_once)


@pytest.mark.slow
def test_evaluation_has_the_risks_requested_by_the_method(tmp_path: Path) -> None:
    context = replace(context_of(tmp_path), bootstraps=Bootstraps(400, 1.0))
    query = draw(context, 1)
    told = evaluate(context, query)
    assert len(told.risks) == 400
    # Errors of 40 held-out rows in each of three folds: a deviation of 3 and a mean near the loss.
    assert np.mean(told.risks) == pytest.approx(told.loss, abs=1.0)
    assert 1 < np.std(told.risks) < 8
    again = evaluate(context, query)
    assert again.risks == told.risks
    assert evaluate(replace(context, bootstraps=None), query).risks == ()
    whole = evaluate(replace(context, bootstraps=Bootstraps(1, 0.0)), query)
    assert whole.risks == pytest.approx((told.loss,))


@pytest.mark.slow
def test_full_training_has_risks_of_the_best_epoch_and_a_rung_has_no_risks(tmp_path: Path) -> None:
    context = epoch_context(tmp_path, bootstraps=Bootstraps(1, 0.0))
    queries = (draw(context, seed) for seed in range(50))
    query = next(query for query in queries if query.configuration.path[-1] == "sgd")
    assert evaluate(context, to_epoch(query, 3)).risks == ()
    full = evaluate(context, query)
    assert full.risks == pytest.approx((full.loss,))
