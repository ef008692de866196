"""Metrics and quantities, and the wording of losses.

The module is cheap to import, because every command that shows a study needs it. Functions of
metrics are imported when a loss is computed.
"""

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any, Literal

from prefect_tune.optimizers.registry import REFERENCE, Registry, loaded
from prefect_tune.optimizers.trials.objective import Constraint, Objective
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.user_code import NO_CODE_BEHIND, CodeBehind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefect_tune.tasks.objective.predictions import Array, Predictions

Target = Literal["classification", "regression"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricDeclaration:
    """A metric that `--metric` can name.

    The loss is computed by `loss`. If `loss` is empty, scikit-learn's scorer `score` is used, or
    else the mean of `row_losses`. Functions are given as `module:function` and imported on first
    call. The functions receive true classes (by position) or numbers, shape (n,), and `Predictions`
    for the same rows.

    Attributes:
        name: Name of the metric, as given to `--metric`.
        target: Kind of target that the metric supports.
        loss: Function of true values, predictions and the number of classes (0 for numbers) that
            returns the loss; raises ValueError if the loss is undefined.
        row_losses: Function of true values and predictions that returns the loss of each row, shape
            (n,), for metrics whose loss is the mean over rows; makes bootstraps fast.
        bootstrap_losses: Function of true values, predictions, the number of classes and weights
            (N, n) that returns the losses, shape (N,), of N bootstraps at once. If empty, losses
            are computed from `row_losses`, or one by one.
        unit: Unit of the loss, such as "percent".
        symbol: Unit printed after a loss, such as "%" or " EUR". If `symbol` is empty and the
            metric has a `best_score`, users see the score.
        title: Name of the printed number; if empty, the metric's name.
        lower: Smallest loss possible.
        upper: Largest loss possible.
        score: Name of the scikit-learn score behind the loss; empty if there is none.
        best_score: Score at a loss of 0; 0 if the score is the negated loss.
        losses_per_score: Change in loss when the score changes by 1.
        all_wrong: Loss if every row is wrong, for a metric that counts wrong rows; None for other
            metrics.
        asks_positive: Whether the loss depends on which of two classes is positive.
    """

    name: str
    target: Target = "classification"
    loss: str = ""
    row_losses: str = ""
    bootstrap_losses: str = ""
    unit: str = ""
    symbol: str = ""
    title: str = ""
    lower: float = 0.0
    upper: float = float("inf")
    score: str = ""
    best_score: float = 0.0
    losses_per_score: float = 1.0
    all_wrong: float | None = None
    asks_positive: bool = False

    def __post_init__(self) -> None:
        references = (self.loss, self.row_losses, self.bootstrap_losses)
        is_right = (
            re.fullmatch(r"[a-z][a-z0-9_]*", self.name)
            and self.target in ("classification", "regression")
            and (self.loss or self.row_losses or self.score)
            and all(REFERENCE.fullmatch(reference) for reference in references if reference)
            and self.lower < self.upper
        )
        if not is_right:
            raise ValueError(
                f"{self}: a metric needs a name of lower-case letters, digits and _, the target "
                "classification or regression, a loss, row_losses or a score, functions as "
                "module:function, and lower < upper"
            )

    @property
    def is_quick(self) -> bool:
        """Whether the losses of all bootstraps can be computed at once."""
        return bool(self.bootstrap_losses or self.row_losses)


_RISK = "prefect_tune.tasks.objective.risk"

_ERROR = MetricDeclaration(
    name="error",
    loss=f"{_RISK}:percent_wrong",
    row_losses=f"{_RISK}:percent_if_wrong",
    unit="percent",
    symbol="%",
    upper=100.0,
    score="accuracy",
    best_score=1.0,
    losses_per_score=100.0,
    all_wrong=100.0,
)
_AUROC = MetricDeclaration(
    name="auroc",
    loss=f"{_RISK}:missed_area",
    bootstrap_losses=f"{_RISK}:missed_areas",
    unit="1 - area",
    title="AUROC",
    upper=1.0,
    score="roc_auc",
    best_score=1.0,
)

_NUMBER_SCORERS = (
    *("r2", "explained_variance", "d2_absolute_error_score"),
    *("neg_max_error", "neg_median_absolute_error"),
    *("neg_mean_absolute_error", "neg_mean_absolute_percentage_error"),
    *("neg_mean_gamma_deviance", "neg_mean_poisson_deviance"),
    *("neg_mean_squared_error", "neg_root_mean_squared_error"),
    *("neg_mean_squared_log_error", "neg_root_mean_squared_log_error"),
)
CONFUSION_METRICS = (
    "balanced_accuracy",
    "matthews_corrcoef",
    *(
        f"{score}{average}"
        for score in ("f1", "jaccard", "precision", "recall")
        for average in ("", "_macro", "_micro", "_weighted")
    ),
)
"""Scores that depend only on counts of true and predicted classes."""
_CLASS_SCORERS = (
    *CONFUSION_METRICS,
    *("accuracy", "average_precision"),
    *(f"roc_auc{way}" for way in ("", "_ovr", "_ovo", "_ovr_weighted", "_ovo_weighted")),
    *("neg_brier_score", "neg_log_loss", "d2_brier_score", "d2_log_loss_score"),
)
_UPPER: Mapping[str, float] = {
    **dict.fromkeys((*_NUMBER_SCORERS, "neg_log_loss"), float("inf")),
    **dict.fromkeys(("d2_brier_score", "d2_log_loss_score"), float("inf")),
    **dict.fromkeys(("matthews_corrcoef", "neg_brier_score"), 2.0),
}
"""Largest possible losses of scorers, if not 1."""
_ROW_LOSSES: Mapping[str, str] = {
    "accuracy": "one_if_wrong",
    "neg_brier_score": "brier",
    "neg_log_loss": "surprise",
    "neg_mean_absolute_error": "absolute",
    "neg_mean_squared_error": "squared",
}
_BOOTSTRAP_LOSSES: Mapping[str, str] = {
    "neg_root_mean_squared_error": "root_squared",
    "r2": "unexplained",
    "average_precision": "missed_precisions",
    "roc_auc": "missed_areas",  # two classes only, as in scikit-learn
    "roc_auc_ovr": "missed_mean_areas",
    "roc_auc_ovr_weighted": "missed_areas",
    **{name: f"CONFUSIONS.{name}" for name in CONFUSION_METRICS},
}


def _scorers() -> Iterator[MetricDeclaration]:
    """Yield scikit-learn's scorers; the loss is 1 - score, or the error itself for `neg_`."""
    for name in sorted((*_NUMBER_SCORERS, *_CLASS_SCORERS)):
        is_negated = name.startswith("neg_")
        target: Target = "regression" if name in _NUMBER_SCORERS else "classification"
        called = name.removeprefix("neg_")
        words = called.replace("roc_auc", "AUROC").replace("brier", "Brier").split("_")
        words = [word.upper() if len(word) == 2 else word for word in words]  # such as R2 and F1
        is_mean_error = "mean" in words and words[-1] == "error"  # such as MAE and RMSE
        title = "".join(word[0].upper() for word in words) if is_mean_error else " ".join(words)
        rows, bootstraps = _ROW_LOSSES.get(name), _BOOTSTRAP_LOSSES.get(name)
        yield MetricDeclaration(
            name=name,
            target=target,
            row_losses=f"{_RISK}:{rows}" if rows else "",
            bootstrap_losses=f"{_RISK}:{bootstraps}" if bootstraps else "",
            unit=called if is_negated else f"1 - {name}",
            title=title,
            upper=_UPPER.get(name, 1.0),
            score=name,
            best_score=0.0 if is_negated else 1.0,
            all_wrong=1.0 if name == "accuracy" else None,
            asks_positive=target == "classification" and name not in ("accuracy", "roc_auc"),
        )


METRICS: Registry[MetricDeclaration] = Registry(
    "metric",
    MetricDeclaration,
    {declared.name: declared for declared in (_ERROR, _AUROC, *_scorers())},
)
"""Declarations by name, in the order in which they are listed."""
DEFAULT_METRICS: Mapping[Target, str] = {"classification": "error", "regression": "r2"}
"""Default metric by kind of target."""


@dataclass(frozen=True)
class Metric:
    """A metric's declaration, together with the position of the positive class."""

    declared: MetricDeclaration
    positive: int = 1

    @property
    def name(self) -> str:
        """Name of the metric, as given to `--metric`."""
        return self.declared.name

    @property
    def target(self) -> Target:
        """Kind of target that the metric supports."""
        return self.declared.target

    def loss(self, y: "NDArray[Any]", predictions: "Predictions", n_classes: int) -> float:
        """Return the loss of predictions for n rows; `n_classes` is 0 for numbers.

        Raises:
            ValueError: If the metric is undefined for these rows, or the scores are not finite.
        """
        y, predictions = self.turned(y, predictions, n_classes)
        declared = self.declared
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # classes never predicted still affect the loss
            if declared.loss:
                loss: float = loaded(declared.loss)(y, predictions, n_classes)
            elif declared.score:
                loss = loaded(f"{_RISK}:loss_of_scorer")(declared, y, predictions, n_classes)
            else:
                loss = float(loaded(declared.row_losses)(y, predictions).mean())
        if not isfinite(loss):
            raise ValueError(f"{self.name} is {loss} on {len(y)} held-out rows")
        return loss

    def weighted_losses(
        self, y: "NDArray[Any]", predictions: "Predictions", n_classes: int, weights: "Array"
    ) -> "Array":
        """Return the losses in N bootstraps, shape (N,), for a metric that `is_quick`.

        Each row of `weights`, shape (N, m), sums to 1.

        Raises:
            ValueError: If the metric needs probabilities, but the predictions have none.
        """
        y, predictions = self.turned(y, predictions, n_classes)
        if self.declared.bootstrap_losses:
            return loaded(self.declared.bootstrap_losses)(y, predictions, n_classes, weights)
        return weights @ loaded(self.declared.row_losses)(y, predictions)

    def score(self, loss: float) -> float:
        """Return scikit-learn's score for a loss; larger is better.

        >>> metric_named("error").score(5.0), metric_named("r2").score(0.25)
        (0.95, 0.75)
        """
        return self.declared.best_score - loss / self.declared.losses_per_score

    def turned(
        self, y: "NDArray[Any]", predictions: "Predictions", n_classes: int
    ) -> "tuple[NDArray[Any], Predictions]":
        """Return true values and predictions, moving the positive of two classes to position 1."""
        if n_classes != 2 or self.positive == 1:
            return y, predictions
        score = None if predictions.score is None else predictions.score[:, ::-1].copy()
        return 1 - y, replace(predictions, label=1 - predictions.label, score=score)

    def best_guess(self, y: "NDArray[Any]", n_classes: int) -> "Predictions":
        """Return the constant predictions for n rows with the lowest loss.

        Raises:
            ValueError: If the metric is undefined for these rows.
        """
        guesses = loaded(f"{_RISK}:guesses_of")(y, n_classes)
        return min(guesses, key=lambda guess: self.loss(y, guess, n_classes))

    def objective(self, y: "NDArray[Any]", n_classes: int) -> Objective:
        """Return the metric with the loss of the best constant; may raise `BadInput`."""
        try:
            chance = self.loss(y, self.best_guess(y, n_classes), n_classes)
        except ValueError as error:
            data = f"{n_classes} classes" if n_classes else "numbers"
            raise BadInput(
                f"--metric {self.name} is not defined for these {data}: {error.__cause__ or error}"
            ) from error
        declared = self.declared
        return Objective(self.name, declared.unit, declared.lower, declared.upper, chance)


def metric_named(name: str, positive: int = 1) -> Metric:
    """Return a metric by name, with the position of the positive class; may raise `UnknownName`."""
    return Metric(METRICS.named(name), positive)


def number_text(value: float | None, *, is_signed: bool = False) -> str:
    """Return a number as text with four digits; a dash for None.

    >>> number_text(1 / 3), number_text(123456.0), number_text(None)
    ('0.3333', '123,456', '-')
    """
    if value is None or isnan(value):
        return "-"
    sign = "+" if is_signed else ""
    return f"{value:{sign},.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:{sign}.4g}"


_UNKNOWN = MetricDeclaration(name="unknown", score="unknown")
"""The metric of a plugin that is not installed."""


@dataclass(frozen=True, slots=True)
class LossWords:
    """Wording of losses as the numbers that users expect for a metric.

    >>> LossWords("error").named(1 / 3), LossWords("auroc").named(0.1966)
    ('error 0.3333%', 'AUROC 0.803')
    """

    metric: str

    @property
    def _declared(self) -> MetricDeclaration:
        return METRICS.get(self.metric) or _UNKNOWN

    @property
    def is_score(self) -> bool:
        """Whether the number is a score, with larger values better."""
        return bool(self._declared.best_score) and not self._declared.symbol

    @property
    def name(self) -> str:
        """Name of the number."""
        return self._declared.title or self.metric

    @property
    def axis(self) -> str:
        """Title for an axis or a column, with the unit."""
        unit = self._declared.symbol.strip()
        return f"{self.name} ({unit})" if unit else self.name

    def number(self, loss: float) -> float:
        """Return the number shown to users for a loss: the loss itself or the score."""
        return Metric(self._declared).score(loss) if self.is_score else loss

    def of(self, loss: float | None) -> str:
        """Return the number with its unit; a dash for None."""
        if loss is None or isnan(loss):
            return "-"
        number = self.number(loss)
        is_share = self.is_score and abs(number) <= 1
        return f"{f'{number:z.3f}' if is_share else number_text(number)}{self._declared.symbol}"

    def named(self, loss: float | None) -> str:
        """Return the name and the number with its unit."""
        return f"{self.name} {self.of(loss)}"

    def interval(self, low: float | None, high: float | None) -> str:
        """Return an interval of losses as an interval of the shown numbers, smaller number first.

        >>> LossWords("auroc").interval(0.1, 0.25)
        '0.750 to 0.900'
        """
        return " to ".join(map(self.of, (high, low) if self.is_score else (low, high)))

    def without_equal(self, equal: "EqualRows") -> str:
        """Return a sentence on the test rows that equal training rows."""
        text = f"{equal.n_equal:,} of {equal.n_rows:,} test rows equal a training row"
        if equal.are_left_out:
            return f"{text} and are left out of the test score; {self.named(equal.loss)} with them"
        if equal.loss is None:
            return f"{text}; {self.name} cannot be measured without them"
        return f"{text}; {self.named(equal.loss)} without them"


@dataclass(frozen=True, slots=True)
class EqualRows:
    """Test rows that equal a training row to six digits, if chance does not explain the count.

    Attributes:
        loss: Loss on the test rows without the equal rows or, if `are_left_out`, with them; None if
            undefined.
        are_left_out: Whether the test loss excludes the equal rows, because most rows of the test
            file equal training rows.
    """

    n_equal: int
    n_rows: int
    loss: float | None
    are_left_out: bool


@dataclass(frozen=True, slots=True)
class Usefulness:
    """Losses of a model and of the best constant prediction on the same rows.

    Attributes:
        gain: Loss of the constant minus loss of the model, with 95% interval `low` to `high`.
        p: P-value for the hypothesis that the gain is at most 0.
        n_rare: Number of rows of the rare class; 0 if no class is rare.
        n_found: Number of rows of the rare class that the model predicts correctly.
    """

    loss: float
    constant_loss: float
    gain: float
    low: float
    high: float
    p: float
    n_rare: int = 0
    n_found: int = 0


OF_POSITIVES = ("disparate_impact", "false_positive_rate")
"""Quantities in [0, 1] that depend on the positive class."""


def is_at_least(quantity: str) -> bool:
    """Return whether the bound of a quantity, given as text, is a lower bound."""
    return quantity.startswith("disparate_impact(")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number measured on the held-out rows of a fold for a fitted pipeline.

    Attributes:
        name: Name from `constraints.QUANTITIES`, or `FILE.py:FUNCTION`.
        column: Column whose values or bins define the groups; empty without groups.
        bins: Bin edges in ascending order; empty to make each value a group.
        metric: Name of the metric for comparing groups; empty for the study's metric.
        code: Source of the user's file, which needs the modules in `behind`.
    """

    name: str
    column: str = ""
    bins: tuple[float, ...] = ()
    metric: str = ""
    code: str = ""
    behind: CodeBehind = NO_CODE_BEHIND

    @property
    def text(self) -> str:
        """The quantity as written by users and as named in `Evaluation.constraints`."""
        arguments = [self.column] if self.column else []
        arguments += [f"bins={':'.join(f'{edge:.15g}' for edge in self.bins)}"] if self.bins else []
        arguments += [f"metric={self.metric}"] if self.metric else []
        return f"{self.name}({', '.join(arguments)})" if arguments else self.name

    @property
    def digest(self) -> str:
        """Digest of the quantity, including the user's code."""
        from prefect_tune.storage.code_digest import (  # noqa: PLC0415 - lists need no digest
            code_digest,
        )
        from prefect_tune.storage.keys import content_digest  # noqa: PLC0415

        code = code_digest("code", [self.code, *self.behind.texts])
        return content_digest("quantity", [self.text.encode(), code.encode()])


@dataclass(frozen=True, slots=True)
class QuantityBound:
    """A constraint of a study: a quantity and its largest or smallest allowed value."""

    quantity: Quantity
    bound: float

    @property
    def constraint(self) -> Constraint:
        """The constraint in the form used by optimizers, named by the quantity's text."""
        return Constraint(self.quantity.text, self.bound, is_at_least(self.quantity.text))

    @property
    def operator(self) -> str:
        """Operator `>=` for a lower bound, `<=` for an upper bound."""
        return ">=" if is_at_least(self.quantity.text) else "<="

    @property
    def text(self) -> str:
        """The constraint as written by users."""
        return f"{self.quantity.text}{self.operator}{self.bound:.15g}"
