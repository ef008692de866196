"""Which algorithms were tried at which step, how often, and how well that went."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TypeVar

from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.optimizers.trials.outcome import TrialState

K = TypeVar("K")
_BEST_PATHS = 15


@dataclass(frozen=True, slots=True)
class Use:
    """How often something was tried, and the losses of its full evaluations.

    Attributes:
        n: Configurations that were begun with it.
        n_full: Those that ran in full.
        n_failed: Those that failed.
        median_loss: Of the full ones; None without one.
        best_loss: Likewise.
        best_trial: Number of the trial with that loss.
    """

    n: int
    n_full: int
    n_failed: int
    median_loss: float | None
    best_loss: float | None
    best_trial: int | None


@dataclass(frozen=True, slots=True)
class StepUse:
    """The algorithms of one step, the one with the best loss first."""

    step: str
    algorithms: Mapping[str, Use]


@dataclass(frozen=True, slots=True)
class PathsTried:
    """Paths and algorithms that were tried.

    Attributes:
        n: Different paths.
        steps: The use of each algorithm, by step.
        best: The paths with the least losses, the best first: algorithms by step, and their use.
    """

    n: int
    steps: Sequence[StepUse]
    best: Sequence[tuple[Sequence[str], Use]]


@dataclass(slots=True)
class _Outcome:
    """Where a configuration stands after all of its stretches."""

    path: tuple[str, ...]
    is_failed: bool = False
    loss: float | None = None
    trial: int | None = None


@dataclass(slots=True)
class PathsPass:
    """Takes trials, and joins the stretches of each configuration."""

    _outcomes: dict[bytes, _Outcome] = field(default_factory=dict)
    _steps: Sequence[str] = ()

    def add(self, trial: TrialView) -> None:
        """Take a trial."""
        configuration = trial.configuration
        path = tuple(choice["algorithm"] for choice in configuration.values())
        self._steps = self._steps or list(configuration)
        outcome = self._outcomes.setdefault(trial.configuration_text, _Outcome(path))
        if trial.is_full and (outcome.loss is None or trial.loss < outcome.loss):
            outcome.loss, outcome.trial = trial.loss, trial.number
        outcome.is_failed = trial.state == TrialState.FAILED or (
            outcome.is_failed and not trial.state.is_told
        )

    def found(self) -> PathsTried:
        """Return the use of each algorithm and of the best paths."""
        outcomes = list(self._outcomes.values())
        steps = [
            StepUse(step, _best_first(_grouped(outcomes, [o.path[k] for o in outcomes])))
            for k, step in enumerate(self._steps)
        ]
        paths = _best_first(_grouped(outcomes, [outcome.path for outcome in outcomes]))
        best = [(path, use) for path, use in paths.items() if use.best_loss is not None]
        return PathsTried(len(paths), steps, best[:_BEST_PATHS])


def _grouped(outcomes: Sequence[_Outcome], keys: Sequence[K]) -> dict[K, Use]:
    groups: dict[K, list[_Outcome]] = {}
    for outcome, key in zip(outcomes, keys, strict=True):
        groups.setdefault(key, []).append(outcome)
    return {key: _use(group) for key, group in groups.items()}


def _use(group: Sequence[_Outcome]) -> Use:
    full = [(o.loss, o.trial) for o in group if o.loss is not None and o.trial is not None]
    best_loss, best_trial = min(full, default=(None, None))
    return Use(
        n=len(group),
        n_full=len(full),
        n_failed=sum(outcome.is_failed for outcome in group),
        median_loss=median(loss for loss, _ in full) if full else None,
        best_loss=best_loss,
        best_trial=best_trial,
    )


def _best_first(uses: Mapping[K, Use]) -> dict[K, Use]:
    def rank(use: Use) -> tuple[bool, float, int]:
        return use.best_loss is None, use.best_loss or 0.0, -use.n

    return dict(sorted(uses.items(), key=lambda pair: rank(pair[1])))
