"""Observations of earlier runs of a series, their weight, and the configurations to evaluate again.

Older losses are mapped to this study by a robust line through the configurations evaluated in both
(Theil 1950, Sen 1968). An older observation counts as w = v / (v + s^2) of a new one, with v the
variance of all older losses after the map, and s^2 the variance of the pairs around the line.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Self, TypeGuard

import numpy as np
from scipy.stats import spearmanr, theilslopes

from prefect_tune.optimizers.documents import Document, UnknownName
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.vectors import Array
from prefect_tune.optimizers.trials.outcome import Evaluation
from prefect_tune.optimizers.trials.trial import Trial

N_START = 8
"""Default number of configurations to repeat."""
AMPLE = 10
"""Number of older configurations from which they replace a method's own start."""
EARLIER = "earlier run"
_GOOD = 0.5
"""Share of the older configurations that count as good."""


@dataclass(frozen=True, slots=True)
class PriorTrial:
    """A full evaluation of an earlier run, `runs_ago` runs before this one (at least 1)."""

    configuration: Configuration
    loss: float
    runs_ago: int = 1

    def __post_init__(self) -> None:
        if self.runs_ago < 1:
            raise ValueError(f"an earlier run is at least 1 run ago; got {self.runs_ago}")


@dataclass(frozen=True, slots=True)
class Prior:
    """Older observations of a study."""

    trials: tuple[PriorTrial, ...] = ()
    start: tuple[Configuration, ...] = ()
    name: str = EARLIER
    n_skipped: int = 0
    losses: Mapping[Configuration, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", tuple(dict.fromkeys(self.start)))
        newest = {trial.configuration: trial.loss for trial in self.newest}
        object.__setattr__(self, "losses", newest)

    @property
    def newest(self) -> tuple[PriorTrial, ...]:
        """The newest observation of each configuration, in their order."""
        newest: dict[Configuration, PriorTrial] = {}
        for trial in self.trials:
            known = newest.get(trial.configuration)
            if known is None or trial.runs_ago < known.runs_ago:
                newest[trial.configuration] = trial
        return tuple(newest.values())

    @property
    def is_ample(self) -> bool:
        """Whether the observations are enough to replace a method's own start."""
        return len(self.losses) >= AMPLE

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        trials = [
            {
                "configuration": trial.configuration.to_json(),
                "loss": float(trial.loss),
                "runs_ago": trial.runs_ago,
            }
            for trial in self.trials
        ]
        start = [configuration.to_json() for configuration in self.start]
        return {"name": self.name, "trials": trials, "start": start, "n_skipped": self.n_skipped}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], space: Space) -> Self:
        """Read a document of `to_json`; skip and count configurations outside the space."""
        given = [
            (_inside(space, trial["configuration"]), trial) for trial in document.get("trials", ())
        ]
        trials = tuple(
            PriorTrial(configuration, float(trial["loss"]), int(trial.get("runs_ago", 1)))
            for configuration, trial in given
            if configuration is not None
        )
        start = [_inside(space, repeated) for repeated in document.get("start", ())]
        if not isinstance(name := document.get("name", EARLIER), str):
            raise TypeError(f"the name of an earlier run is a text; got {name!r}")
        return cls(
            trials,
            tuple(configuration for configuration in start if configuration is not None),
            name,
            document.get("n_skipped", 0) + len(given) - len(trials),
        )


def _inside(space: Space, document: Mapping[str, Any]) -> Configuration | None:
    if not document:
        raise ValueError("a configuration of a prior is empty")
    try:
        return Configuration.from_json(document, space)
    except (UnknownName, ValueError):
        return None


def best_and_diverse(trials: Sequence[PriorTrial], n: int = N_START) -> tuple[Configuration, ...]:
    """Return n configurations to evaluate again: the best, and in turn the most different good one.

    Good are the better half. Two configurations differ by the number of other algorithms, then by
    the distance of their common numbers in the unit cube of ranks, since values may be logarithmic.
    """
    newest = Prior(tuple(trials)).newest
    ranked = sorted(newest, key=lambda t: (t.loss, t.configuration.canonical))
    best_first = [trial.configuration for trial in ranked]
    n_good = max(n, round(_GOOD * len(best_first)))
    distance = _distances(best_first)
    chosen: list[Configuration] = []
    left = best_first[:n_good]
    while left and len(chosen) < n:
        is_diverse = len(chosen) % 2 == 1
        far = {c: min(distance(c, other) for other in chosen) for c in left} if is_diverse else {}
        pick = max(left, key=lambda c: far[c]) if is_diverse else left[0]
        chosen.append(pick)
        left.remove(pick)
    return tuple(chosen)


def _distances(
    configurations: Iterable[Configuration],
) -> Callable[[Configuration, Configuration], tuple[int, float]]:
    """Distance of two configurations of a set: other algorithms, then squared ranks of numbers."""
    values = {
        configuration: {
            (step, choice.algorithm, name): value
            for step, choice in configuration.choices
            for name, value in choice.documents
        }
        for configuration in configurations
    }
    numbers: dict[tuple[str, str, str], set[float]] = defaultdict(set)
    for place, value in chain(*(each.items() for each in values.values())):
        if _is_number(value):
            numbers[place].add(float(value))
    ranks = {
        place: {value: i / max(len(known) - 1, 1) for i, value in enumerate(sorted(known))}
        for place, known in numbers.items()
    }

    def distance(a: Configuration, b: Configuration) -> tuple[int, float]:
        pairs = zip(a.choices, b.choices, strict=True)
        other = {step for (step, mine), (_, its) in pairs if mine.algorithm != its.algorithm}
        squared = 0.0
        for place, mine in values[a].items():
            its = values[b].get(place)
            if place[0] in other:
                continue
            if _is_number(mine) and _is_number(its):
                squared += (ranks[place][mine] - ranks[place][its]) ** 2
            else:
                squared += float(mine != its)
        return len(other), squared

    return distance


def _is_number(value: Document) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


LEAST_PAIRS = 4
"""Number of pairs from which the discount is estimated. An unchanged scale, a slope of 1, is worth
as many."""
LEAST_CORRELATION = 0.3
"""Rank correlation below which the prior is dropped."""
_CAUTIOUS = 0.3
"""Weight before there are enough pairs."""
_LARGEST = 0.95
_STEEPEST = 3.0
_MAD = 1.4826
"""Standard deviation of a normal variable in median absolute deviations."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """The map from older to new losses, and the weight of an older observation."""

    n_pairs: int = 0
    correlation: float | None = None  # None for too few or constant pairs
    slope: float = 1.0
    intercept: float = 0.0
    weight: float = _CAUTIOUS

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]], older: Array) -> Self:
        """Return the transfer of pairs (older, new loss), given all older losses, shape (n,)."""
        if not pairs:
            return cls()
        x, y = np.array(pairs, dtype=np.float64).T
        n_pairs = len(pairs)
        if n_pairs < LEAST_PAIRS or not (np.ptp(x) and np.ptp(y)):
            return cls(n_pairs, None, 1.0, float(np.median(y - x)))
        correlation = float(spearmanr(x, y).statistic)
        found = float(np.clip(theilslopes(y, x).slope, 1 / _STEEPEST, _STEEPEST))
        slope = (n_pairs * found + LEAST_PAIRS) / (n_pairs + LEAST_PAIRS)
        intercept = float(np.median(y - slope * x))
        noise = _deviation(y - intercept - slope * x) ** 2 * n_pairs / (n_pairs - 2)
        # More than half of the losses may be equal.
        deviation = _deviation(older - np.median(older)) or float(older.std())
        spread = (slope * deviation) ** 2
        is_kept = correlation >= LEAST_CORRELATION and spread > 0
        weight = min(spread / (spread + noise), _LARGEST) if is_kept else 0.0
        return cls(n_pairs, correlation, slope, intercept, weight)

    @property
    def is_dropped(self) -> bool:
        """Whether the older observations no longer count."""
        return self.weight == 0

    def mapped(self, losses: Array) -> Array:
        """Return older losses on the scale of this study."""
        return self.intercept + self.slope * losses


def _deviation(distances: Array) -> float:
    return float(_MAD * np.median(np.abs(distances)))


@dataclass(frozen=True, slots=True)
class OlderTrials:
    """Older observations as models use them now; none if there is no prior or it was dropped."""

    configurations: tuple[Configuration, ...]
    raw: Array
    weights: Array  # a new observation has weight 1
    transfer: Transfer

    @classmethod
    def of(cls, prior: Prior | None, transfer: Transfer) -> Self:
        """Return the newest observation of each configuration with its weight."""
        if prior is None or transfer.is_dropped:
            return cls((), np.empty(0), np.empty(0), transfer)
        trials = prior.newest
        return cls(
            tuple(trial.configuration for trial in trials),
            np.array([trial.loss for trial in trials]),
            np.array([transfer.weight**trial.runs_ago for trial in trials]),
            transfer,
        )

    def __len__(self) -> int:
        return len(self.configurations)

    def on(self, path: Path) -> "OlderTrials":
        """Return the observations of a path."""
        rows = [i for i, known in enumerate(self.configurations) if known.path == path]
        chosen = tuple(self.configurations[i] for i in rows)
        return OlderTrials(chosen, self.raw[rows], self.weights[rows], self.transfer)

    @property
    def losses(self) -> Array:
        """Losses on the scale of this study, shape (n,)."""
        return self.transfer.mapped(self.raw)

    def subsample(self, limits: dict[str, float] | None = None) -> list[Trial]:
        """Return as many of the observations as their weights sum to, evenly over their losses."""
        # For models without weights; unknown constrained quantities are at their `limits`.
        order = np.argsort(self.raw, kind="stable")
        reached = np.floor(np.cumsum(self.weights[order]) + 0.5)
        taken = order[np.diff(reached, prepend=0.0) > 0]
        losses = self.losses
        return [
            Trial(int(i) - len(self), Query(self.configurations[i])).completed(
                Evaluation(float(losses[i]), constraints=limits or {})
            )
            for i in sorted(taken)
        ]
