"""The declaration of a metric: all that is known of it without computing anything.

Cheap to import, because every command that shows a loss reads it.
"""

import re
from dataclasses import dataclass
from typing import Literal

from prefect_tune.optimizers.plugins import REFERENCE

Target = Literal["classes", "numbers"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricDeclaration:
    """A metric, as `--metric` names it.

    Its loss is computed by `loss`; without that, from scikit-learn's scorer named `score`; without
    either, as the mean of `row_losses`. Functions are references `module:function`, imported when
    they are first called. They get true classes (by position) or numbers, shape (n,), and
    `Predictions` for the same rows.

    Attributes:
        name: Word after `--metric`.
        target: Kind of target that the metric judges.
        loss: Function of true values, predictions and the number of classes (0 for numbers) that
            returns the loss; raises ValueError where it is not defined.
        row_losses: Function of true values and predictions that returns the loss of each row,
            shape (n,), if the metric's loss is their mean. Bootstraps are quick with it.
        bootstrap_losses: Function of true values, predictions, the number of classes and weights
            (N, n) that returns the losses, shape (N,), of N bootstraps at once. Without it they
            are computed from `row_losses`, or one by one.
        unit: Unit of the loss, for instance "percent".
        symbol: Unit as it is printed behind a loss, for instance " %".
        loss_name: Name of the loss in texts; that of the metric if empty.
        lower: Smallest loss possible.
        upper: Largest loss possible.
        score: Score behind the loss, as scikit-learn calls it; empty if it has none.
        best_score: Score of a loss of 0; 0 if the score is the loss with its sign changed.
        losses_per_score: Loss that corresponds to a difference of 1 in the score.
        guesses: Function of true values and the number of classes that returns the constant
            predictions whose best loss is that of guessing. By default those are the mean and the
            median, or the shares of the classes.
        all_wrong: Loss if every row is wrong, for a metric that counts wrong rows; None otherwise.
        asks_positive: Whether the loss depends on which of two classes is the positive one.
        weighs_classes: Whether the loss averages over classes by their rows, so that a class
            without rows does not matter.
    """

    name: str
    target: Target = "classes"
    loss: str = ""
    row_losses: str = ""
    bootstrap_losses: str = ""
    unit: str = ""
    symbol: str = ""
    loss_name: str = ""
    lower: float = 0.0
    upper: float = float("inf")
    score: str = ""
    best_score: float = 0.0
    losses_per_score: float = 1.0
    guesses: str = ""
    all_wrong: float | None = None
    asks_positive: bool = False
    weighs_classes: bool = False

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise ValueError(
                f"a metric's name is lower-case letters, digits and _; got {self.name!r}"
            )
        if self.target not in ("classes", "numbers"):
            raise ValueError(
                f"metric {self.name!r} judges classes or numbers; got target {self.target!r}"
            )
        if not (self.loss or self.row_losses or self.score):
            raise ValueError(f"metric {self.name!r} declares a loss, row_losses or a score")
        if self.score and not self.loss and self.losses_per_score != 1:
            raise ValueError(
                f"metric {self.name!r} has its loss from its score, 1 for 1; to declare "
                "losses_per_score, declare a loss"
            )
        for field in ("loss", "row_losses", "bootstrap_losses", "guesses"):
            reference = getattr(self, field)
            if reference and not REFERENCE.fullmatch(reference):
                raise ValueError(
                    f"metric {self.name!r} names its {field} as module:function; got {reference!r}"
                )
        if not self.lower < self.upper:
            raise ValueError(
                f"metric {self.name!r} has losses from {self.lower} to {self.upper}; "
                "lower must be less than upper"
            )

    @property
    def called(self) -> str:
        """The name of the loss in texts."""
        return self.loss_name or self.name

    @property
    def is_error(self) -> bool:
        """Whether the loss itself is what others report, rather than the score behind it."""
        return self.best_score == 0

    def score_of(self, loss: float) -> float:
        """Return the score of a loss as scikit-learn counts it, larger is better."""
        return self.best_score - loss / self.losses_per_score
