"""Losses by name, computed with scikit-learn's functions alone: what ours must equal."""

import warnings
from dataclasses import dataclass
from functools import partial

import numpy as np
from sklearn import metrics


@dataclass
class Judged:
    """Positions of true and predicted classes, and scores by class or None."""

    y: np.ndarray
    label: np.ndarray
    score: np.ndarray | None
    n_classes: int
    positive: int = 1

    @property
    def scores(self):
        if self.score is None:
            raise ValueError("no scores")
        return self.score

    @property
    def probabilities(self):
        if self.scores.min() < 0 or abs(self.scores.sum(axis=1) - 1).max() > 1e-4:
            raise ValueError("no probabilities")
        return self.scores

    @property
    def truth(self):
        """True classes; of two, whether it is the positive one."""
        return self.y == self.positive if self.n_classes == 2 else self.y

    def of_positive(self, scores):
        """Scores by class; of two, those of the positive one."""
        return scores[:, self.positive] if self.n_classes == 2 else scores

    @property
    def labels(self):
        return [False, True] if self.n_classes == 2 else np.arange(self.n_classes)


def _area(of):
    score = np.eye(of.n_classes)[of.label] if of.score is None else of.score
    if of.n_classes == 2:
        return metrics.roc_auc_score(of.truth, score[:, of.positive])
    areas = [metrics.roc_auc_score(of.y == c, score[:, c]) for c in range(of.n_classes)]
    return np.average(areas, weights=np.bincount(of.y, minlength=of.n_classes))


def _roc_auc(of):
    if of.n_classes != 2:
        raise ValueError("of two classes")
    return metrics.roc_auc_score(of.truth, of.of_positive(of.scores))


def _roc_auc_of_several(way, average, of):
    given = of.of_positive(of.probabilities)
    how = {"multi_class": way, "average": average} if of.n_classes > 2 else {}
    return metrics.roc_auc_score(of.truth, given, **how)


def _averaged(function, average, of):
    how = {"average": average} if average else {"pos_label": of.positive}
    return function(of.y, of.label, **how)


def _of_probabilities(function, of):
    return function(of.truth, of.of_positive(of.probabilities), labels=of.labels)


def _of_log(function, of):
    return function(of.y, of.probabilities, labels=np.arange(of.n_classes))


SCORES = {
    "accuracy": lambda of: metrics.accuracy_score(of.y, of.label),
    "balanced_accuracy": lambda of: metrics.balanced_accuracy_score(of.y, of.label),
    "matthews_corrcoef": lambda of: metrics.matthews_corrcoef(of.y, of.label),
    "auroc": _area,
    "roc_auc": _roc_auc,
    **{
        f"roc_auc_{way}{suffix}": partial(_roc_auc_of_several, way, suffix[1:] or "macro")
        for way in ("ovr", "ovo")
        for suffix in ("", "_weighted")
    },
    "average_precision": lambda of: metrics.average_precision_score(
        of.truth, of.of_positive(of.scores)
    ),
    "d2_brier_score": partial(_of_probabilities, metrics.d2_brier_score),
    "d2_log_loss_score": partial(_of_log, metrics.d2_log_loss_score),
    **{
        f"{name}{suffix}": partial(_averaged, function, suffix[1:])
        for name, function in (
            ("f1", metrics.f1_score),
            ("jaccard", metrics.jaccard_score),
            ("precision", metrics.precision_score),
            ("recall", metrics.recall_score),
        )
        for suffix in ("", "_macro", "_micro", "_weighted")
    },
}
OF_CLASSES = {
    "error": lambda of: 100 * (1 - metrics.accuracy_score(of.y, of.label)),
    "neg_brier_score": partial(_of_probabilities, metrics.brier_score_loss),
    "neg_log_loss": partial(_of_log, metrics.log_loss),
    **{name: (lambda of, score=score: 1 - score(of)) for name, score in SCORES.items()},
}
OF_NUMBERS = {
    "d2_absolute_error_score": lambda y, p: 1 - metrics.d2_absolute_error_score(y, p),
    "explained_variance": lambda y, p: 1 - metrics.explained_variance_score(y, p),
    "neg_max_error": metrics.max_error,
    "neg_mean_absolute_error": metrics.mean_absolute_error,
    "neg_mean_absolute_percentage_error": metrics.mean_absolute_percentage_error,
    "neg_mean_gamma_deviance": metrics.mean_gamma_deviance,
    "neg_mean_poisson_deviance": metrics.mean_poisson_deviance,
    "neg_mean_squared_error": metrics.mean_squared_error,
    "neg_mean_squared_log_error": metrics.mean_squared_log_error,
    "neg_median_absolute_error": metrics.median_absolute_error,
    "neg_root_mean_squared_error": metrics.root_mean_squared_error,
    "neg_root_mean_squared_log_error": metrics.root_mean_squared_log_error,
    "r2": lambda y, p: 1 - metrics.r2_score(y, p),
}


def sklearn_loss(name, judged):
    """The loss; None if scikit-learn has none for these rows."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if judged.n_classes:
                loss = float(OF_CLASSES[name](judged))
            else:
                loss = float(OF_NUMBERS[name](judged.y, judged.label))
    except ValueError:
        return None
    return loss if np.isfinite(loss) else None
