"""The learning curves of a study, the selection of points to fit to, and the best curve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from math import isfinite

import numpy as np

from prefect_tune.optimizers.methods.halving import model_of
from prefect_tune.optimizers.models.curve_kernel import Decay
from prefect_tune.optimizers.models.seconds import LEAST_SECONDS
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.vectors import Array
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import Objective
from prefect_tune.optimizers.trials.trial import Trial


@dataclass(frozen=True)
class LearningCurve:
    """The learning curve of one configuration so far.

    Attributes:
        trials: The configuration's partial training runs, in order of trial number. The last trial
            may be pending.
        t_max: Number of epochs in a full training run.
        is_iterative: Whether the model trains in epochs. A fit of any other model counts as a full
            training run.
        epochs: The k epochs with a known loss, in increasing order.
        losses: Lowest loss up to each of the k epochs.
        model_step: Name of the model's step.
        is_infeasible: Whether the latest finished trial violates a constraint.
    """

    configuration: Configuration
    trials: tuple[Trial, ...]
    t_max: int
    is_iterative: bool
    epochs: tuple[int, ...]
    losses: tuple[float, ...]
    model_step: str
    is_infeasible: bool = False

    @property
    def done(self) -> int:
        """Number of epochs done; 0 before the first result."""
        return self.epochs[-1] if self.epochs else 0

    @property
    def loss(self) -> float:
        """The lowest loss; inf before the first result."""
        return self.losses[-1] if self.losses else np.inf

    @cached_property
    def is_pending(self) -> bool:
        """Whether a partial training run is under way."""
        return not self.trials[-1].is_told

    @property
    def target(self) -> int:
        """Target epoch of the current or latest partial training run."""
        return self.trials[-1].query.epochs or self.t_max

    @cached_property
    def is_closed(self) -> bool:
        """Whether training is over: complete, failed, diverged or infeasible."""
        is_lost = self.has_failed or self.is_infeasible or self.trouble != ""
        return is_lost or self.done >= self.t_max

    @cached_property
    def has_failed(self) -> bool:
        """Whether the latest trial has failed."""
        return self.trials[-1].failure is not None

    @cached_property
    def trouble(self) -> str:
        """Reason why training cannot be resumed; empty if it can."""
        return next((t.evaluation.trouble for t in reversed(self.trials) if t.evaluation), "")

    def loss_at(self, epoch: int) -> float:
        """Return the lowest loss up to an epoch, or the first known loss for earlier epochs."""
        if not self.epochs:
            return np.inf
        return self.losses[max(int(np.searchsorted(self.epochs, epoch, side="right")) - 1, 0)]

    @cached_property
    def rate(self) -> float | None:
        """Seconds per epoch of the model without cache, summed over folds; None if unknown."""
        seconds, n_epochs, done = 0.0, 0, 0
        for trial in self.trials:
            if (evaluation := trial.evaluation) is None:
                continue
            reached = len(evaluation.curve) or trial.query.epochs or self.t_max
            steps = [s for s in evaluation.steps if s.step == self.model_step]
            since = evaluation.resumed_from if evaluation.curve else done
            if steps and all(s.hit for s in steps):
                since = 0  # the seconds of a cached model cover all of its epochs
            seconds += sum(s.seconds for s in steps) if steps else evaluation.cost_seconds
            n_epochs += max(reached - since, 0)
            done = max(done, reached)
        return max(seconds, LEAST_SECONDS) / n_epochs if n_epochs else None


def curves_of(
    history: History, space: Space, objective: Objective, t_max: int
) -> Mapping[Configuration, LearningCurve]:
    """Return the learning curves of the configurations, in the order of their first trials."""
    trials_of: dict[Configuration, list[Trial]] = {}
    for trial in history:
        trials_of.setdefault(trial.query.configuration, []).append(trial)
    curves = {}
    for configuration, trials in trials_of.items():
        losses = dict[int, float]()
        for trial in trials:
            if (evaluation := trial.evaluation) is not None:
                known = takewhile(isfinite, evaluation.curve)
                at_end = {trial.query.epochs or t_max: evaluation.loss}
                losses |= dict(enumerate(known, start=1)) if evaluation.curve else at_end
        told = [t for t in trials if t.loss is not None]
        epochs = sorted(losses)
        curves[configuration] = LearningCurve(
            configuration,
            tuple(trials),
            t_max,
            model_of(configuration, space) in objective.iterative,
            tuple(epochs),
            tuple(np.minimum.accumulate([losses[e] for e in epochs]).tolist()),
            space.steps[-1].name,
            is_infeasible=bool(told) and history.violation(told[-1]) > 0,
        )
    return curves


N_POINTS = 3
"""Number of points of each curve to fit to (section 3.4)."""


def chosen_epochs(
    epochs: Sequence[int], n_points: int, t_max: int, *, of_time: Decay, theta: Array, noise: float
) -> list[int]:
    """Return the epochs of a curve to fit to, sorted (section 3.4, after Nguyen et al. 2020).

    The last epoch is chosen first. Then the epoch with the largest conditional variance is added
    until `n_points` are chosen. The variances depend only on the kernel of t, so neither losses nor
    other curves affect the choice.

    Args:
        epochs: Epochs with a loss, in increasing order; at least one.
        n_points: Number of epochs to choose.
        t_max: Number of epochs in a full training run.
        of_time: Kernel of t.
        theta: Parameters of the kernel.
        noise: Variance of the noise of standardized observations.
    """
    t = np.array(epochs) / t_max
    variance = of_time.variance(theta, t)
    chosen = [len(t) - 1]
    while len(chosen) < min(n_points, len(t)):
        across = of_time.covariance(theta, t[chosen], t)
        among = across[:, chosen] + noise * np.eye(len(chosen))
        left = variance - np.einsum("ij,ij->j", across, np.linalg.solve(among, across))
        left[chosen] = -np.inf
        chosen.append(int(np.argmax(left)))
    return [epochs[i] for i in sorted(chosen)]


MOST_POINTS = 150
"""Largest number of points to fit to, over all curves."""


def most_telling(curves: Sequence[LearningCurve]) -> list[LearningCurve]:
    """Return the curves to fit to, in the order of their first trials.

    If more than `MOST_POINTS` curves have results, return `MOST_POINTS` curves: half of them the
    best, the others the newest.
    """
    told = [c for c in curves if c.epochs or c.has_failed]
    if len(told) <= MOST_POINTS:
        return told
    by_loss, half = sorted(told, key=lambda c: c.loss), MOST_POINTS // 2
    newest = sorted(by_loss[half:], key=lambda c: c.trials[-1].number)[-half:]
    kept = {c.configuration for c in (*by_loss[:half], *newest)}
    return [c for c in told if c.configuration in kept]


_WORST = 10.0
"""Cap of losses without an upper bound: distance above the best loss, as a multiple of the median
loss's distance. Losses above the cap come from diverged training and are uninformative."""


def largest_informative_loss(losses: Array, objective: Objective) -> float:
    """Return the loss above which training counts as diverged.

    The loss is the metric's upper bound or, without a bound, depends on the spread of `losses`.
    """
    if np.isfinite(objective.upper):
        return objective.upper
    best, typical = np.quantile(losses, (0.0, 0.5))
    return float(best + _WORST * (typical - best)) if typical > best else np.inf


def steady_loss(losses: Sequence[float], width: int) -> float:
    """Return the lowest mean loss over a window of `width` epochs.

    The lowest of hundreds of losses is optimistic, and averaging over neighboring epochs reduces
    the bias. If the curve is shorter than the window, the window is the whole curve.
    """
    width = min(width, len(losses))
    return float(np.lib.stride_tricks.sliding_window_view(losses, width).mean(axis=1).min())


def best_training(
    curves: Sequence[LearningCurve], history: History, *, width: int = 1
) -> Trial | None:
    """Return the feasible trial with the lowest mean loss over a window of `width` epochs."""
    best: tuple[float, float, int] | None = None
    for curve in curves:
        feasible = [t for t in curve.trials if t.loss is not None and history.violation(t) <= 0]
        if not feasible:
            continue
        trial = min(feasible, key=lambda t: (t.loss, t.number))
        least = trial.loss or 0.0
        longest = max((t.evaluation.curve for t in feasible if t.evaluation), key=len)
        ranked = (steady_loss(longest or (least,), width), least, trial.number)
        best = ranked if best is None else min(best, ranked)
    return None if best is None else history[best[2]]
