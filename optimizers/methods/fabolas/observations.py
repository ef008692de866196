"""The results that Fabolas learns from, as arrays: configurations, sizes, losses and seconds."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from prefect_tune.optimizers.methods.fabolas.recipe import Sizes
from prefect_tune.optimizers.methods.fabolas.rules import RULES
from prefect_tune.optimizers.space.candidate_space import Candidates
from prefect_tune.optimizers.space.unit_interval import Array
from prefect_tune.optimizers.surrogates.pipeline_inputs import PipelineInputs
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import Objective
from prefect_tune.optimizers.trials.prior import OlderTrials
from prefect_tune.optimizers.trials.trial import Trial


@dataclass(frozen=True, slots=True)
class LossScale:
    """The scale on which losses are learned: standardised, with errors as logarithms.

    `floor` is the least loss before taking logarithms, None without logarithms; `cap` is the
    largest loss.
    """

    floor: float | None
    cap: float = np.inf
    mean: float = 0.0
    deviation: float = 1.0

    @classmethod
    def of(cls, losses: Array, objective: Objective, *, is_log: bool) -> "LossScale":
        """Return the scale of one or more losses, shape (n,); logarithms are of percents.

        The floor is half a misclassified row. Losses that are not errors are capped at three
        interquartile ranges above the median.
        """
        floor, cap = None, np.inf
        if is_log:
            floor = 50.0 / (objective.n_held_out or RULES.unknown_held_out)
        else:
            low, middle, high = np.quantile(losses, (0.25, 0.5, 0.75))
            cap = float(middle + RULES.cap_ranges * (high - low)) if high > low else np.inf
        flat = cls(floor, cap).learned(losses)
        deviation = float(flat.std())
        return cls(floor, cap, float(flat.mean()), deviation if deviation > 1e-12 else 1.0)

    def learned(self, losses: Array) -> Array:
        """Return standardised losses, shape (n,)."""
        return (self.flat(losses) - self.mean) / self.deviation

    def flat(self, losses: Array) -> Array:
        """Return losses before standardisation, shape (n,)."""
        capped = np.clip(losses, -RULES.largest_loss, min(self.cap, RULES.largest_loss))
        return capped if self.floor is None else np.log(np.maximum(capped, self.floor))

    def loss(self, mean: Array) -> Array:
        """Return the losses of standardised values, shape (n,)."""
        flat = self.mean + self.deviation * mean
        return flat if self.floor is None else np.exp(flat)


@dataclass(frozen=True, slots=True)
class SubsetObservations:
    """Trials that have ended, in the order of asking.

    Inputs have s as the last column, (n, width + 1). Failed trials have the worst finite loss, or
    nan if the failure is not informative. `log_seconds` are ln seconds of one fold, shape (n,).
    """

    trials: tuple[Trial, ...]
    candidates: Candidates
    inputs: Array
    losses: Array
    log_seconds: Array
    older: OlderTrials | None = None

    @classmethod
    def of(
        cls, history: History, sizes: Sizes, inputs: PipelineInputs, n_folds: int
    ) -> "SubsetObservations":
        """Return the observations of a study with `n_folds` folds."""
        trials = tuple(t for t in history if t.is_told)
        candidates = inputs.encode(t.query.configuration for t in trials)
        s = np.array([float(sizes.s(t.query.subset)) for t in trials])
        excused = _excused(trials)
        worst = max((t.loss for t in trials if t.loss is not None), default=np.nan)
        losses = [
            t.loss if t.loss is not None else np.nan if t.number in excused else worst
            for t in trials
        ]
        seconds = np.array([_seconds(t) / (t.query.folds or n_folds) for t in trials])
        return cls(
            trials,
            candidates,
            inputs.at(candidates, s),
            np.array(losses, dtype=np.float64),
            np.log(np.maximum(seconds, RULES.least_seconds)),
            history.older,
        )

    def __len__(self) -> int:
        return len(self.trials)

    def __getitem__(self, rows: Any) -> "SubsetObservations":
        places = np.arange(len(self))[rows]
        return SubsetObservations(
            tuple(self.trials[i] for i in places),
            self.candidates[rows],
            self.inputs[rows],
            self.losses[rows],
            self.log_seconds[rows],
            self.older,
        )

    @property
    def s(self) -> Array:
        """Sizes, shape (n,)."""
        return self.inputs[:, -1]

    def thinned(self, most: int) -> "SubsetObservations":
        """Return at most `most` rows: large subsets, the best hundred, then the newest others."""
        if len(self) <= most:
            return self
        rank = np.argsort(np.argsort(np.nan_to_num(self.losses, nan=np.inf), kind="stable"))
        is_first = (self.s >= RULES.large_subset) | (rank < RULES.best_kept)
        order = np.lexsort((-np.arange(len(self)), ~is_first))
        return self[np.sort(order[:most])]


def _seconds(trial: Trial) -> float:
    if trial.evaluation is None:
        return trial.cost_seconds
    return trial.evaluation.cost_uncached_seconds or trial.evaluation.cost_seconds


def _excused(trials: tuple[Trial, ...]) -> set[int]:
    """Failures on subsets that tell nothing about the configuration on all rows.

    A path that fails on few rows, for example without some class, may be the best on all rows. Its
    failures are excused if it succeeded on a larger subset. If not, only a few are.
    """
    largest: dict[tuple[str, ...], float] = {}
    for t in trials:
        if t.loss is not None:
            path = t.query.configuration.path
            largest[path] = max(largest.get(path, 0.0), t.query.subset)
    granted: Counter[tuple[str, ...]] = Counter()
    excused = set[int]()
    for t in trials:
        if t.failure is None or t.query.is_full or t.failure.kind.grows_with_rows:
            continue
        path = t.query.configuration.path
        if largest.get(path, 0.0) > t.query.subset:
            excused.add(t.number)
        elif path not in largest and granted[path] < RULES.most_excused:
            granted[path] += 1
            excused.add(t.number)
    return excused
