"""The learning curves of a study, and the few points of each that GP_f is fitted to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from math import isfinite
from typing import Self

import numpy as np

from prefect_tune.optimizers.space.configuration import Choice, Configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.unit_interval import Array
from prefect_tune.optimizers.surrogates.curve_kernel import CurveKernel, Decay
from prefect_tune.optimizers.surrogates.pipeline_inputs import PipelineInputs
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import Objective
from prefect_tune.optimizers.trials.outcome import Evaluation
from prefect_tune.optimizers.trials.trial import Trial

_LEAST_SECONDS = 1e-6


@dataclass(frozen=True)
class LearningCurve:
    """The learning curve of one configuration so far.

    Attributes:
        trials: Its partial trainings, in the order of asking; the last one may be pending.
        is_iterative: Whether its model trains in epochs; any other fit counts as all epochs.
        epochs: Epochs with a known loss, rising, shape (k,).
        losses: Least loss up to each of these epochs, shape (k,).
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
        """Epochs done; 0 before the first result."""
        return self.epochs[-1] if self.epochs else 0

    @property
    def loss(self) -> float:
        """The least loss; inf before the first result."""
        return self.losses[-1] if self.losses else np.inf

    @cached_property
    def is_pending(self) -> bool:
        """Whether a partial training is under way."""
        return not self.trials[-1].is_told

    @property
    def target(self) -> int:
        """Target epoch of the current or latest partial training."""
        return self.trials[-1].query.epochs or self.t_max

    @cached_property
    def is_closed(self) -> bool:
        """Whether the training is over: complete, failed, diverged or infeasible."""
        is_lost = self.has_failed or self.is_infeasible or self.trouble != ""
        return is_lost or self.done >= self.t_max

    @cached_property
    def has_failed(self) -> bool:
        """Whether its latest trial failed."""
        return self.trials[-1].failure is not None

    @cached_property
    def trouble(self) -> str:
        """Reason why the training cannot be resumed; empty if it can."""
        return next((t.evaluation.trouble for t in reversed(self.trials) if t.evaluation), "")

    def loss_at(self, epoch: int) -> float:
        """Return the least loss up to an epoch, or the first known loss for earlier epochs."""
        if not self.epochs:
            return np.inf
        return self.losses[max(int(np.searchsorted(self.epochs, epoch, side="right")) - 1, 0)]

    @cached_property
    def rate(self) -> float | None:
        """Uncached seconds of an epoch of the model, summed over folds; None if unknown."""
        seconds, n_epochs, done = 0.0, 0, 0
        for trial in self.trials:
            evaluation = trial.evaluation
            if evaluation is None:
                continue
            reached = len(evaluation.curve) or trial.query.epochs or self.t_max
            steps = [s for s in evaluation.steps if s.step == self.model_step]
            is_served = _is_served(evaluation, self.model_step)
            since = 0 if is_served else evaluation.resumed_from if evaluation.curve else done
            seconds += sum(s.seconds for s in steps) if steps else evaluation.cost_seconds
            n_epochs += max(reached - since, 0)
            done = max(done, reached)
        return max(seconds / n_epochs, _LEAST_SECONDS) if n_epochs else None

    @property
    def prefix(self) -> tuple[tuple[str, Choice], ...]:
        """The choices of the steps before the model."""
        return prefix_of(self.configuration, self.model_step)

    @cached_property
    def prefix_seconds(self) -> float | None:
        """Uncached seconds of the steps before the model; None if unknown."""
        for trial in self.trials:
            steps = trial.evaluation.steps if trial.evaluation else ()
            before = [s.seconds for s in steps if s.step != self.model_step]
            if before:
                return sum(before)
        return None

    @cached_property
    def load_seconds(self) -> tuple[float, ...]:
        """Seconds of loading a checkpoint, for each trial that resumed from one."""
        return tuple(
            sum(s.load_seconds for s in t.evaluation.steps if s.step == self.model_step)
            for t in self.trials
            if t.evaluation and t.evaluation.resumed_from and t.evaluation.steps
        )

    @cached_property
    def resumptions(self) -> tuple[bool, ...]:
        """Whether the checkpoint was found, for each trial that needed one."""
        found, done = [], 0
        for trial in self.trials:
            if trial.evaluation is None or not trial.evaluation.curve:
                continue
            if done and not _is_served(trial.evaluation, self.model_step):
                found.append(trial.evaluation.resumed_from > 0)
            done = len(trial.evaluation.curve)
        return tuple(found)


def prefix_of(configuration: Configuration, model_step: str) -> tuple[tuple[str, Choice], ...]:
    """Return a configuration's choices for the steps before the model."""
    return tuple((step, choice) for step, choice in configuration.choices if step != model_step)


def trains_in_epochs(configuration: Configuration, space: Space, objective: Objective) -> bool:
    """Return whether a configuration's model trains in epochs."""
    last = space.steps[-1]
    model = last.algorithms[0].id if last.fixed else configuration.path[-1]
    return model in objective.iterative


def curves_of(
    history: History, space: Space, objective: Objective, t_max: int
) -> Mapping[Configuration, LearningCurve]:
    """Return the curve of each configuration, in the order of their start."""
    stretches: dict[Configuration, list[Trial]] = {}
    for trial in history:
        stretches.setdefault(trial.query.configuration, []).append(trial)
    model_step = space.steps[-1].name
    curves = {}
    for configuration, trials in stretches.items():
        told = [t for t in trials if t.loss is not None]
        curves[configuration] = _curve(
            trials,
            t_max,
            model_step,
            is_iterative=trains_in_epochs(configuration, space, objective),
            is_infeasible=bool(told) and history.violation(told[-1]) > 0,
        )
    return curves


def _curve(
    trials: list[Trial], t_max: int, model_step: str, *, is_iterative: bool, is_infeasible: bool
) -> LearningCurve:
    losses = dict[int, float]()
    for trial in trials:
        losses |= _losses(trial, t_max)
    epochs = sorted(losses)
    least = np.minimum.accumulate([losses[e] for e in epochs]) if epochs else np.empty(0)
    return LearningCurve(
        trials[0].query.configuration,
        tuple(trials),
        t_max,
        is_iterative,
        tuple(epochs),
        tuple(float(x) for x in least),
        model_step,
        is_infeasible,
    )


def _losses(trial: Trial, t_max: int) -> dict[int, float]:
    evaluation = trial.evaluation
    if evaluation is None:
        return {}
    if evaluation.curve:
        finite = takewhile(isfinite, evaluation.curve)
        return dict(enumerate(finite, start=1))
    return {trial.query.epochs or t_max: evaluation.loss}


def _is_served(evaluation: Evaluation, model_step: str) -> bool:
    hits = [s.hit for s in evaluation.steps if s.step == model_step]
    return bool(hits) and all(hits)


_MOST_EPOCHS = 50
"""Largest number of epochs to choose among; longer curves are sampled evenly by logarithm."""


def chosen_epochs(
    epochs: Sequence[int], n_points: int, t_max: int, *, of_time: Decay, theta: Array, noise: float
) -> list[int]:
    """Return the last epoch, then greedily the epochs of largest conditional variance, sorted.

    This is the paper's selection of data points (section 3.4), after Nguyen et al. 2020. It uses
    the kernel of t alone, so it depends on neither losses nor other curves. `epochs` are rising and
    not empty; `noise` is the variance of standardised observations.
    """
    if len(epochs) <= n_points:
        return list(epochs)
    if len(epochs) > _MOST_EPOCHS:
        places = np.unique(np.geomspace(1, len(epochs), _MOST_EPOCHS).round().astype(int)) - 1
        epochs = [epochs[i] for i in places]
    t = np.array(epochs) / t_max
    covariance = of_time.covariance(theta, t, t)
    chosen = [len(t) - 1]
    while len(chosen) < n_points:
        among = covariance[np.ix_(chosen, chosen)] + noise * np.eye(len(chosen))
        across = covariance[chosen]
        explained = np.einsum("ij,ij->j", across, np.linalg.solve(among, across))
        left = np.diag(covariance) - explained
        left[chosen] = -np.inf
        chosen.append(int(np.argmax(left)))
    return [epochs[i] for i in sorted(chosen)]


def thinned(counts: Sequence[int], losses: Sequence[float], most: int) -> list[bool]:
    """Return which curves keep only their last point, so that all have at most `most` points.

    Curves with the largest losses are reduced first; the best curve never is. Every curve keeps a
    point, so the total may exceed `most`.
    """
    total, is_thinned = sum(counts), [False] * len(counts)
    for i in sorted(range(len(losses)), key=lambda i: (-losses[i], -i))[:-1]:
        if total <= most:
            break
        total -= counts[i] - 1
        is_thinned[i] = True
    return is_thinned


_MOST_POINTS = 150
_MOST_CURVES = 150
_BEST_CURVES = 100
"""Number of best curves to learn from if there are too many; the others are the newest."""
_WORST = 10.0
"""Cap of losses without bounds, as a multiple of the loss of chance, or else of the distance from
the best to the median. Beyond it, a diverged training is not informative."""


def largest_informative_loss(losses: Array, objective: Objective) -> float:
    """Return the loss, by bound, chance or spread, above which a training counts as diverged."""
    if np.isfinite(objective.upper):
        return objective.upper
    if objective.chance is not None and objective.chance > 0:
        return _WORST * objective.chance
    best, typical = np.quantile(losses, (0.0, 0.5))
    return float(best + _WORST * (typical - best)) if typical > best else np.inf


@dataclass(frozen=True)
class CurveObservations:
    """Points of curves: inputs with the share trained, (n, width + 1), and least losses, (n,)."""

    inputs: Array
    losses: Array

    @classmethod
    def of(
        cls,
        curves: Sequence[LearningCurve],
        inputs: PipelineInputs,
        kernel: CurveKernel,
        theta: Array,
        *,
        objective: Objective,
        n_points: int,
        t_max: int,
    ) -> Self:
        """Return at most `n_points` points of each curve; some curve has points or has failed.

        The time part of the kernel selects the most informative epochs, and the objective decides
        where losses are capped.
        """
        p, of_time = len(kernel.parameters), kernel.of_time
        outer, noise = theta[p - len(of_time.parameters) : p], float(np.exp(theta[p]))
        curves = most_telling(curves)
        known = [c for c in curves if c.epochs and not c.is_infeasible]
        chosen = {
            n: chosen_epochs(n, n_points, t_max, of_time=of_time, theta=outer, noise=noise)
            for n in {c.epochs for c in known}
        }
        epochs = [chosen[c.epochs] for c in known]
        is_thinned = thinned([len(e) for e in epochs], [c.loss for c in known], _MOST_POINTS)
        epochs = [e[-1:] if cut else e for e, cut in zip(epochs, is_thinned, strict=True)]
        rows = [(c, e, c.loss_at(e)) for c, es in zip(known, epochs, strict=True) for e in es]
        # Failed and infeasible trainings count as the worst loss, so that similar ones are avoided.
        worst = max((c.losses[0] for c in curves if c.epochs), default=0.0)
        useless = [c for c in curves if c.is_infeasible or (c.has_failed and not c.epochs)]
        rows += [(c, t_max, worst) for c in useless]
        candidates = inputs.encode(c.configuration for c, _, _ in rows)
        t = np.array([e for _, e, _ in rows]) / t_max
        losses = np.array([y for _, _, y in rows])
        largest = largest_informative_loss(losses, objective)
        return cls(inputs.at(candidates, t), np.minimum(losses, largest))


def most_telling(curves: Sequence[LearningCurve]) -> list[LearningCurve]:
    """Return the curves to learn from, in their order: the best and the newest."""
    told = [c for c in curves if c.epochs or c.has_failed]
    if len(told) <= _MOST_CURVES:
        return told
    rank = np.argsort(np.argsort([c.loss for c in told], kind="stable"))
    by_age = sorted(range(len(told)), key=lambda i: told[i].trials[-1].number)
    others = [i for i in by_age if rank[i] >= _BEST_CURVES]
    newest = set(others[_BEST_CURVES - _MOST_CURVES :])
    return [c for i, c in enumerate(told) if rank[i] < _BEST_CURVES or i in newest]
