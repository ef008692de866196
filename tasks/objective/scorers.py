"""Names of scikit-learn's scorers that `--metric` takes; light, for help and completion."""

from collections.abc import Mapping

OF_NUMBERS: frozenset[str] = frozenset(
    {
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
    }
)
"""scikit-learn's scorers of predicted numbers; they know no largest loss."""
OF_CLASSES: Mapping[str, float] = {
    **dict.fromkeys(("accuracy", "average_precision", "balanced_accuracy", "top_k_accuracy"), 1.0),
    **{
        f"{score}{average}": 1.0
        for score in ("f1", "jaccard", "precision", "recall")
        for average in ("", "_macro", "_micro", "_weighted")
    },
    **{f"roc_auc{way}": 1.0 for way in ("", "_ovr", "_ovo", "_ovr_weighted", "_ovo_weighted")},
    "matthews_corrcoef": 2.0,
    "neg_brier_score": 2.0,
    "d2_brier_score": float("inf"),
    "d2_log_loss_score": float("inf"),
    "neg_log_loss": float("inf"),
}
"""scikit-learn's scorers of predicted classes, and the largest loss that each can give."""
