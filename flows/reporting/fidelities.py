"""Evaluations of less than all folds, rows or epochs: how many at each level, and the curves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.optimizers.space.wording import fidelity_text
from prefect_tune.optimizers.trials.outcome import TrialState

_MOST_CURVES = 120


@dataclass(slots=True)
class Level:
    """Evaluations of the same part of the whole.

    Attributes:
        text: How much of the whole that is; empty for all of it.
        share: Share of rows, folds and epochs together, by which levels are sorted.
        ended: Evaluations with a loss.
        failed: Those without.
        seconds: What they took in all.
    """

    text: str
    share: float
    ended: int = 0
    failed: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class TrainingCurve:
    """The losses of one configuration after each epoch, its stretches joined.

    Attributes:
        trial: Number of the trial that trained it last.
        trials: All of its trials.
        stops: Epochs at which it was stopped, and gone on with or not.
        losses: After each epoch from the first.
        is_complete: Whether it was trained to the end.
        model: Algorithm of the last step.
    """

    trial: int
    trials: Sequence[int]
    stops: Sequence[int]
    losses: Sequence[float]
    is_complete: bool
    model: str


@dataclass(frozen=True, slots=True)
class Fidelities:
    """Levels and curves.

    Attributes:
        levels: From the least part to the whole.
        n_curves: Configurations that were trained in epochs.
        curves: Those with the least losses, and others evenly chosen, in the order of trials.
    """

    levels: Sequence[Level] = ()
    n_curves: int = 0
    curves: Sequence[TrainingCurve] = ()


@dataclass(slots=True)
class _Training:
    trials: list[int]
    stops: list[int]
    losses: Sequence[float]
    is_complete: bool
    model: str


@dataclass(slots=True)
class FidelitiesPass:
    """Takes trials, and joins the curves of each configuration.

    Args:
        plan: Of the study.
    """

    plan: StudyPlan
    _levels: dict[str, Level] = field(default_factory=dict)
    _trainings: dict[bytes, _Training] = field(default_factory=dict)

    def add(self, trial: TrialView) -> None:
        """Take a trial."""
        if not trial.state.is_told:
            return
        query = trial.document["query"]
        text = fidelity_text(query, self.plan.options.folds, self.plan.options.epochs)
        level = self._levels.setdefault(text, Level(text, self._share(query)))
        level.seconds += trial.cost_seconds
        if trial.state == TrialState.FAILED:
            level.failed += 1
            return
        level.ended += 1
        if curve := trial.document["evaluation"].get("curve"):
            self._join(trial, curve)

    def found(self) -> Fidelities:
        """Return the levels, and as many curves as can be told apart."""
        ordered = sorted(self._trainings.values(), key=lambda training: min(training.losses))
        best, others = ordered[: _MOST_CURVES // 2], ordered[_MOST_CURVES // 2 :]
        stride = max(1, -(-len(others) // (_MOST_CURVES // 2)))
        chosen = sorted([*best, *others[::stride]], key=lambda training: training.trials[0])
        levels = sorted(self._levels.values(), key=lambda level: level.share)
        return Fidelities(levels, len(self._trainings), [_curve(training) for training in chosen])

    def _share(self, query: Mapping[str, Any]) -> float:
        folds, epochs = query.get("folds"), query.get("epochs")
        share = float(query.get("subset", 1.0))
        share *= 1.0 if folds is None else folds / max(self.plan.options.folds or folds, 1)
        return share * (
            1.0 if epochs is None else epochs / max(self.plan.options.epochs or epochs, 1)
        )

    def _join(self, trial: TrialView, curve: Sequence[float]) -> None:
        """Take the curve of a stretch; it has the epochs of those before."""
        *_, choice = trial.configuration.values()
        key = trial.configuration_text
        known = self._trainings.setdefault(
            key, _Training([], [], curve, is_complete=False, model=choice["algorithm"])
        )
        known.trials.append(trial.number)
        if len(curve) >= len(known.losses):
            known.losses = curve
        if trial.state == TrialState.COMPLETE:
            known.is_complete = True
        else:
            known.stops.append(len(curve))


def _curve(training: _Training) -> TrainingCurve:
    return TrainingCurve(
        training.trials[-1],
        training.trials,
        sorted(set(training.stops)),
        [float(f"{loss:.6g}") for loss in training.losses],
        training.is_complete,
        training.model,
    )
