"""The part of a program that judges a fitted pipeline as a study did."""

from collections.abc import Iterator
from typing import Any

from prefect_tune.tasks.objective.metric import Metric

__all__ = ["Scoring"]

_OF_POSITIVE = {
    "f1": "f1_score",
    "jaccard": "jaccard_score",
    "precision": "precision_score",
    "recall": "recall_score",
}
"""Scores of one class, and scikit-learn's functions of them."""
_OF_SCORES = {"average_precision": "average_precision_score", "roc_auc": "roc_auc_score"}
"""Scores of how a model orders rows of two classes."""


class Scoring:
    """How a program computes the loss of predictions.

    Args:
        metric: The study's.
        n_classes: How many classes there are; 0 for numbers.
        model: The unfitted model, which shows what it predicts.
    """

    def __init__(self, metric: Metric, n_classes: int, model: Any) -> None:
        self._metric, self._n_classes = metric, n_classes
        self._scores = _scores_of(model)

    @property
    def imports(self) -> dict[str, tuple[str, ...]]:
        """By module, the names that it imports."""
        name = self._metric.name
        if name == "error":
            return {}
        if name == "auroc" or self._is_of_two(_OF_SCORES):
            return {"sklearn.metrics": (_OF_SCORES.get(name, "roc_auc_score"),)}
        if self._is_of_two(_OF_POSITIVE):
            return {"sklearn.metrics": (_OF_POSITIVE[name],)}
        return {"sklearn.metrics": ("get_scorer",)}

    def functions(self) -> Iterator[str]:
        """Yield the lines of the function that computes the loss."""
        name, positive = self._metric.name, self._metric.positive
        yield "def loss(model, X, y):"
        yield f'    """Return {self._said()}; less is better."""'
        if name == "error":
            yield "    return 100 * np.mean(model.predict(X) != y)"
        elif self._is_of_two(_OF_POSITIVE):
            function = _OF_POSITIVE[name]
            yield f"    return 1 - {function}(y, model.predict(X), pos_label={positive})"
        elif name == "auroc" or self._is_of_two(_OF_SCORES):
            yield from (f"    {line}" for line in self._scores)
            yield from (f"    {line}" for line in self._area())
        else:
            is_loss = name.startswith("neg_") or name == "max_error"
            best = "-" if is_loss else "1 - "
            yield f'    return {best}get_scorer("{name}")(model, X, y)'

    def _area(self) -> Iterator[str]:
        """Yield the lines that compute the loss from a column of scores for each class."""
        positive = self._metric.positive if self._n_classes == 2 else None
        function = _OF_SCORES.get(self._metric.name, "roc_auc_score")
        if positive is not None:
            yield f"return 1 - {function}(y == {positive}, scores[:, {positive}])"
            return
        yield "shares = np.bincount(y, minlength=len(CLASSES)) / len(y)"
        yield "areas = [roc_auc_score(y == c, scores[:, c]) for c in range(len(CLASSES))]"
        yield "return 1 - shares @ areas"

    def _is_of_two(self, names: dict[str, str]) -> bool:
        return self._n_classes == 2 and self._metric.name in names

    def _said(self) -> str:
        name = self._metric.name
        if name == "error":
            return "the percentage of wrong predictions"
        if name == "auroc":
            several = ", one class against the rest, weighted" if self._n_classes > 2 else ""
            return f"1 - the area under the ROC curve{several}"
        return f"{name.removeprefix('neg_')}" if name.startswith("neg_") else f"1 - {name}"


def _scores_of(model: Any) -> list[str]:
    """Return the lines that get a column of scores for each class from a model."""
    if hasattr(model, "predict_proba"):
        return ["scores = model.predict_proba(X)"]
    if hasattr(model, "decision_function"):
        return [
            "scores = model.decision_function(X)",
            "if scores.ndim == 1:",
            "    scores = np.column_stack([-scores, scores])",
        ]
    return ["scores = np.eye(len(CLASSES))[model.predict(X)]"]
