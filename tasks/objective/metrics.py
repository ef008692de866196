"""The metrics that `--metric` knows by name: our own two, and scikit-learn's scorers.

Cheap to import, because help, completion and views read the declarations.
"""

from collections.abc import Iterator, Mapping

from prefect_tune.optimizers.plugins import Registry
from prefect_tune.tasks.objective.declaration import MetricDeclaration, Target

_METRIC = "prefect_tune.tasks.objective.metric"
_WEIGHTED = "prefect_tune.tasks.objective.weighted"

_ERROR = MetricDeclaration(
    name="error",
    loss=f"{_METRIC}:percent_wrong",
    row_losses=f"{_WEIGHTED}:percent_if_wrong",
    unit="percent",
    symbol=" %",
    upper=100.0,
    score="accuracy",
    best_score=1.0,
    losses_per_score=100.0,
    all_wrong=100.0,
)
_AUROC = MetricDeclaration(
    name="auroc",
    loss=f"{_METRIC}:missed_area",
    bootstrap_losses=f"{_WEIGHTED}:missed_areas",
    unit="1 - area",
    loss_name="1 - auroc",
    upper=1.0,
    score="roc_auc",
    best_score=1.0,
)

_OF_NUMBERS = (
    "d2_absolute_error_score",
    "explained_variance",
    "neg_max_error",
    "neg_mean_absolute_error",
    "neg_mean_absolute_percentage_error",
    "neg_mean_gamma_deviance",
    "neg_mean_poisson_deviance",
    "neg_mean_squared_error",
    "neg_mean_squared_log_error",
    "neg_median_absolute_error",
    "neg_root_mean_squared_error",
    "neg_root_mean_squared_log_error",
    "r2",
)
_CONFUSIONS = (
    "balanced_accuracy",
    "matthews_corrcoef",
    *(
        f"{score}{average}"
        for score in ("f1", "jaccard", "precision", "recall")
        for average in ("", "_macro", "_micro", "_weighted")
    ),
)
"""Scores that follow from counts of classes that are true and predicted."""
_OF_CLASSES = (
    *_CONFUSIONS,
    *("accuracy", "average_precision", "top_k_accuracy"),
    *(f"roc_auc{way}" for way in ("", "_ovr", "_ovo", "_ovr_weighted", "_ovo_weighted")),
    *("neg_brier_score", "neg_log_loss", "d2_brier_score", "d2_log_loss_score"),
)
_UPPER: Mapping[str, float] = {
    **dict.fromkeys((*_OF_NUMBERS, "neg_log_loss"), float("inf")),
    **dict.fromkeys(("d2_brier_score", "d2_log_loss_score"), float("inf")),
    **dict.fromkeys(("matthews_corrcoef", "neg_brier_score"), 2.0),
}
"""Largest losses of scorers, if not 1."""
_ROW_LOSSES: Mapping[str, str] = {
    "accuracy": "one_if_wrong",
    "neg_brier_score": "brier",
    "neg_log_loss": "surprise",
    "neg_mean_absolute_error": "absolute",
    "neg_mean_absolute_percentage_error": "relative",
    "neg_mean_squared_error": "squared",
    "neg_mean_squared_log_error": "squared_log",
}
_BOOTSTRAP_LOSSES: Mapping[str, str] = {
    "neg_root_mean_squared_error": "root_squared",
    "neg_root_mean_squared_log_error": "root_squared_log",
    "r2": "unexplained",
    "roc_auc": "missed_areas",  # of two classes, as scikit-learn has it
    **{name: f"CONFUSIONS.{name}" for name in _CONFUSIONS},
}


def _scorers() -> Iterator[MetricDeclaration]:
    """Yield scikit-learn's scorers; the loss is 1 - score, or what follows `neg_`."""
    for name in sorted((*_OF_NUMBERS, *_OF_CLASSES)):
        is_negated = name.startswith("neg_")
        target: Target = "numbers" if name in _OF_NUMBERS else "classes"
        called = name.removeprefix("neg_") if is_negated else f"1 - {name}"
        rows, bootstraps = _ROW_LOSSES.get(name), _BOOTSTRAP_LOSSES.get(name)
        yield MetricDeclaration(
            name=name,
            target=target,
            row_losses=f"{_WEIGHTED}:{rows}" if rows else "",
            bootstrap_losses=f"{_WEIGHTED}:{bootstraps}" if bootstraps else "",
            unit=called,
            loss_name=called,
            upper=_UPPER.get(name, 1.0),
            score=name,
            best_score=0.0 if is_negated else 1.0,
            guesses=f"{_METRIC}:guesses_of_several" if name == "top_k_accuracy" else "",
            all_wrong=1.0 if name == "accuracy" else None,
            asks_positive=target == "classes" and name not in ("accuracy", "roc_auc"),
            weighs_classes=name.endswith("_weighted"),
        )


METRICS: Registry[MetricDeclaration] = Registry(
    "metric",
    MetricDeclaration,
    {declared.name: declared for declared in (_ERROR, _AUROC, *_scorers())},
)
"""By name, in the order in which they are shown."""
DEFAULT_METRICS: Mapping[Target, str] = {"classes": "error", "numbers": "r2"}
"""By what is predicted."""
