"""Metrics at work: losses of predictions, and the loss of guessing; see `declaration`."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    d2_brier_score,
    d2_log_loss_score,
    f1_score,
    get_scorer,
    jaccard_score,
    log_loss,
    precision_score,
    recall_score,
    roc_auc_score,
    top_k_accuracy_score,
)
from sklearn.utils.metaestimators import available_if

from prefect_tune.optimizers.plugins import loaded
from prefect_tune.optimizers.trials.objective import Objective
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.objective.declaration import METRICS, MetricDeclaration, Target
from prefect_tune.tasks.objective.predictions import Predictions, ScoreMethod

__all__ = ["Metric", "Predictions", "metric_named"]

Loss = Callable[[NDArray[Any], Predictions, int], float]
"""Maps true classes or numbers, predictions and the number of classes to a loss."""
_ScoreOfLabels = Callable[[NDArray[Any], "_Classifier", NDArray[Any]], float]
"""Maps true classes, a model and all classes to a score."""


@dataclass(frozen=True)
class Metric:
    """A measure of predictions as a loss, with `positive` the position of the positive class."""

    declared: MetricDeclaration
    positive: int = 1

    @property
    def name(self) -> str:
        """Word after `--metric`."""
        return self.declared.name

    @property
    def unit(self) -> str:
        """Unit of the loss."""
        return self.declared.unit

    @property
    def target(self) -> Target:
        """Kind of target that the metric judges."""
        return self.declared.target

    def loss(self, y: NDArray[Any], predictions: Predictions, n_classes: int) -> float:
        """Return the loss of predictions of n rows; `n_classes` is 0 for numbers.

        Raises:
            ValueError: If the metric is undefined for these rows, or the scores are not finite.
        """
        y, predictions = self.turned(y, predictions, n_classes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the loss already reflects classes never predicted
            loss = _loss_of(self.declared)(y, predictions, n_classes)
        if not np.isfinite(loss):
            raise ValueError(f"{self.name} is {loss} on {len(y)} held-out rows")
        return loss

    def lacks_rows(self, y: NDArray[Any], predictions: Predictions, n_classes: int) -> bool:
        """Return whether scikit-learn scores a class without rows as 0; arguments as in `loss`.

        Averages over several classes skip such a class instead.
        """
        if self.declared.weighs_classes:
            return False
        y, predictions = self.turned(y, predictions, n_classes)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _loss_of(self.declared)(y, predictions, n_classes)
        return any(text in str(w.message) for w in caught for text in _MISSING_ROWS)

    def score(self, loss: float) -> float:
        """Return the score of a loss in scikit-learn's sense; larger is better.

        >>> metric_named("error").score(5.0), metric_named("r2").score(0.25)
        (0.95, 0.75)
        """
        return self.declared.score_of(loss)

    def turned(
        self, y: NDArray[Any], predictions: Predictions, n_classes: int
    ) -> tuple[NDArray[Any], Predictions]:
        """Return the true values and predictions, with the positive class of two in position 1."""
        if n_classes != 2 or self.positive == 1:
            return y, predictions
        score = predictions.score
        turned = None if score is None else np.ascontiguousarray(score[:, ::-1])
        return 1 - y, Predictions(1 - predictions.label, turned)

    def best_guess(self, y: NDArray[Any], n_classes: int) -> Predictions:
        """Return the constant predictions of n rows with the smallest loss.

        Raises:
            ValueError: If the metric is undefined for these rows.
        """
        guesses = loaded(self.declared.guesses) if self.declared.guesses else guesses_of
        return min(guesses(y, n_classes), key=lambda guess: self.loss(y, guess, n_classes))

    def objective(self, y: NDArray[Any], n_classes: int) -> Objective:
        """Return the metric with the loss of the best guess; raises BadInput if undefined here."""
        try:
            chance = self.loss(y, self.best_guess(y, n_classes), n_classes)
        except ValueError as error:
            of = f"{n_classes} classes" if n_classes else "numbers"
            raise BadInput(
                f"--metric {self.name} is not defined for these {of}: {error}"
            ) from error
        declared = self.declared
        return Objective(self.name, self.unit, declared.lower, declared.upper, chance)


def metric_named(name: str, positive: int = 1) -> Metric:
    """Return a metric by name, with the position of the positive class; may raise UnknownName."""
    return Metric(METRICS.named(name), positive)


@cache
def _loss_of(declared: MetricDeclaration) -> Loss:
    if declared.loss:
        return loaded(declared.loss)
    if declared.score:
        return partial(_loss_of_scorer, declared.score, declared.best_score)
    row_losses = loaded(declared.row_losses)
    return lambda y, predictions, n_classes: float(np.mean(row_losses(y, predictions)))  # noqa: ARG005


_MISSING_ROWS = ("no true", "No positive class")
"""Parts of scikit-learn's warnings about a class without rows."""


def guesses_of(y: NDArray[Any], n_classes: int) -> list[Predictions]:
    """Return constant predictions derived from the target alone."""
    if not n_classes:
        return [Predictions(np.full(len(y), guess(y))) for guess in (np.mean, np.median)]
    shares = np.bincount(y, minlength=n_classes) / len(y)
    score = np.tile(shares, (len(y), 1))
    # For scores of a positive class, such as f1, always predicting the rare class may be best.
    labels = (0, 1) if n_classes == 2 else (np.argmax(shares),)
    return [Predictions(np.full(len(y), label, dtype=np.int32), score) for label in labels]


def guesses_of_several(y: NDArray[Any], n_classes: int) -> list[Predictions]:
    """Return constant predictions for a metric undefined for two classes, or raise ValueError."""
    if n_classes == 2:
        raise ValueError("with two classes, the true class is always among the two best scores")
    return guesses_of(y, n_classes)


def percent_wrong(y: NDArray[Any], predictions: Predictions, n_classes: int) -> float:  # noqa: ARG001
    """Return the share of wrong predictions, in percent."""
    return float(100 * np.mean(predictions.label != y))


def missed_area(y: NDArray[Any], predictions: Predictions, n_classes: int) -> float:
    """Return 1 - AUROC; with several classes, one against the rest, weighted by class shares."""
    score = predictions.score
    if score is None:
        score = np.eye(n_classes)[predictions.label]
    if n_classes == 2:
        return 1 - float(roc_auc_score(y, score[:, 1]))
    shares = np.bincount(y, minlength=n_classes) / len(y)
    areas = [roc_auc_score(y == c, score[:, c]) if shares[c] else 0.0 for c in range(n_classes)]
    return 1 - float(shares @ areas)


def _loss_of_scorer(
    name: str, best: float, y: NDArray[Any], predictions: Predictions, n_classes: int
) -> float:
    """Return the distance of a scikit-learn score from its best value."""
    is_short = bool(n_classes) and len(np.unique(y)) < n_classes
    model = _Classifier(predictions, n_classes) if n_classes else _Regressor(predictions)
    if is_short and name.startswith("d2_") and len(np.unique(y)) == 1:  # avoids dividing by zero
        raise ValueError(f"{name} is not defined on {len(y)} rows of one class")
    try:
        if is_short and (score := _short_score(name, n_classes)):
            return best - score(y, model, np.arange(n_classes))
        return best - float(get_scorer(name)(model, np.empty((len(y), 1)), y))
    except AttributeError as error:
        why = predictions.why_no_probabilities
        raise ValueError(f"{name} needs probabilities, and {why}") from error
    except ZeroDivisionError as error:  # every class weight is 0
        raise ValueError(f"{name} is not defined on these {len(y)} rows: {error}") from error


def _probable(compute: Callable[..., Any], sign: float = 1.0, **arguments: Any) -> _ScoreOfLabels:
    """Return a score of probabilities that receives all classes."""
    return lambda y, model, labels: (
        sign * float(compute(y, model.predict_proba(None), labels=labels, **arguments))
    )


def _among_best(y: NDArray[Any], model: "_Classifier", labels: NDArray[Any]) -> float:
    """Return the share of rows whose true class has one of the two best scores."""
    return float(top_k_accuracy_score(y, model.decision_function(None), labels=labels))


def _over_present_classes(compute: Callable[..., Any]) -> _ScoreOfLabels:
    return lambda y, model, labels: (  # noqa: ARG005
        float(compute(y, model.predict(None), labels=np.unique(y), average="macro"))
    )


def _one_against_rest(
    compute: Callable[..., Any],
    scores_of: ScoreMethod = "predict_proba",
    *,
    is_weighted: bool = False,
) -> _ScoreOfLabels:
    """Return the average over classes with rows of a score of one class against the rest."""

    def score(y: NDArray[Any], model: "_Classifier", labels: NDArray[Any]) -> float:  # noqa: ARG001
        scores = getattr(model, scores_of)(None)
        present, counts = np.unique(y, return_counts=True)
        found = [compute(y == c, scores[:, c]) for c in present]
        return float(np.average(found, weights=counts if is_weighted else None))

    return score


def _one_against_one(*, is_weighted: bool = False) -> _ScoreOfLabels:
    """Return the average area over all pairs of classes with rows (Hand and Till 2001)."""

    def score(y: NDArray[Any], model: "_Classifier", labels: NDArray[Any]) -> float:  # noqa: ARG001
        scores, areas, counts = model.predict_proba(None), [], []
        for pair in combinations(np.unique(y), 2):
            rows = np.isin(y, pair)
            areas.append(np.mean([roc_auc_score(y[rows] == c, scores[rows, c]) for c in pair]))
            counts.append(np.count_nonzero(rows))
        return float(np.average(areas, weights=counts if is_weighted else None))

    return score


class _Regressor(RegressorMixin, BaseEstimator):
    """A fitted model that repeats given predictions, for scikit-learn's scorers."""

    def __init__(self, predictions: Predictions) -> None:
        self.predictions = predictions
        self.fitted_ = True

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: ARG002
        return self.predictions.label


class _Classifier(ClassifierMixin, BaseEstimator):
    """A fitted classifier of class positions that repeats given predictions."""

    def __init__(self, predictions: Predictions, n_classes: int) -> None:
        self.predictions, self.n_classes = predictions, n_classes
        self.classes_ = np.arange(n_classes)

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: ARG002
        return self.predictions.label

    @available_if(lambda self: self.predictions.score is not None)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Any:  # noqa: ARG002
        score = self.predictions.score
        return score if score is None or self.n_classes != 2 else score[:, 1]

    @available_if(lambda self: self.predictions.are_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:  # noqa: ARG002
        return self.predictions.score


_LABEL_AWARE_SCORES: Mapping[str, _ScoreOfLabels] = {
    "d2_brier_score": _probable(d2_brier_score),
    "d2_log_loss_score": _probable(d2_log_loss_score),
    "neg_brier_score": _probable(brier_score_loss, -1.0),
    "neg_log_loss": _probable(log_loss, -1.0),
    "top_k_accuracy": _among_best,
}
"""Scores for rows that lack some classes; unlike scikit-learn's scorers, they get all classes."""
_PRESENT_CLASS_AVERAGES: Mapping[str, _ScoreOfLabels] = {
    "average_precision": _one_against_rest(average_precision_score, "decision_function"),
    "f1_macro": _over_present_classes(f1_score),
    "jaccard_macro": _over_present_classes(jaccard_score),
    "precision_macro": _over_present_classes(precision_score),
    "recall_macro": _over_present_classes(recall_score),
    "roc_auc_ovr": _one_against_rest(roc_auc_score),
    "roc_auc_ovr_weighted": _one_against_rest(roc_auc_score, is_weighted=True),
    "roc_auc_ovo": _one_against_one(),
    "roc_auc_ovo_weighted": _one_against_one(is_weighted=True),
}
"""Averages over the classes with rows, for three classes or more. scikit-learn's scorers are
undefined here, or count a class without rows as a class without hits."""


def _short_score(name: str, n_classes: int) -> _ScoreOfLabels | None:
    """Return the score to use if rows lack some classes; None if the scorer itself works."""
    is_average = n_classes > 2 and name in _PRESENT_CLASS_AVERAGES
    return _PRESENT_CLASS_AVERAGES[name] if is_average else _LABEL_AWARE_SCORES.get(name)
