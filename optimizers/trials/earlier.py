"""Observations of earlier runs of a series, their weights, and configurations to re-evaluate.

Older losses are mapped to the scale of this study by a robust line through the configurations
evaluated in both studies (Theil 1950, Sen 1968). Relative to a new observation, an older
observation has weight w = v / (v + s^2), where v is the variance of all mapped older losses and s^2
is the variance of the pairs around the line.
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
"""Default number of configurations to re-evaluate, and number of older configurations that suffice
to replace a method's own start."""
EARLIER = "earlier run"


@dataclass(frozen=True, slots=True)
class PriorTrial:
    """A full evaluation of an earlier run, `runs_ago` runs before this one (at least 1)."""

    configuration: Configuration
    loss: float
    runs_ago: int = 1

    def __post_init__(self) -> None:
        if self.runs_ago < 1:
            raise ValueError(f"runs_ago must be at least 1; got {self.runs_ago}")


@dataclass(frozen=True, slots=True)
class Prior:
    """Prior knowledge of a study: observations of earlier runs.

    Attributes:
        trials: Observations of earlier runs.
        start: Configurations to re-evaluate first.
        name: Description of the earlier runs for users.
        n_skipped: Number of observations outside the space.
        losses: Newest loss of each configuration.
    """

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
        """The newest observation of each configuration."""
        newest: dict[Configuration, PriorTrial] = {}
        for trial in self.trials:
            known = newest.get(trial.configuration)
            if known is None or trial.runs_ago < known.runs_ago:
                newest[trial.configuration] = trial
        return tuple(newest.values())

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
        """Return the prior from a document of `to_json`.

        Configurations outside the space are skipped and counted. Raises TypeError if the name is
        not a string, and ValueError if a configuration is empty.
        """
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
            raise TypeError(f"the name of an earlier run must be a string; got {name!r}")
        return cls(
            trials,
            tuple(configuration for configuration in start if configuration is not None),
            name,
            document.get("n_skipped", 0) + len(given) - len(trials),
        )


def _inside(space: Space, document: Mapping[str, Any]) -> Configuration | None:
    if not document:
        raise ValueError("a configuration of an earlier run is empty")
    try:
        return Configuration.from_json(document, space)
    except (UnknownName, ValueError):
        return None


def best_and_diverse(trials: Sequence[PriorTrial], n: int = N_START) -> tuple[Configuration, ...]:
    """Return n good and diverse configurations to re-evaluate.

    Configurations no worse than the median are considered. Choices alternate between the best
    remaining configuration and the configuration most different from all chosen ones. The
    difference between two configurations is the number of steps with different algorithms, with
    ties broken by the distance between shared hyperparameters. Numbers are compared by rank,
    because their scale may be logarithmic.
    """
    newest = Prior(tuple(trials)).newest
    ranked = sorted(newest, key=lambda t: (t.loss, t.configuration.canonical))
    best_first = [trial.configuration for trial in ranked]
    typical = np.median([trial.loss for trial in ranked]) if ranked else 0.0
    n_good = max(n, sum(trial.loss <= typical for trial in ranked))
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
    """Return a function that measures the distance between two of the configurations.

    The distance is a pair: the number of steps with different algorithms, and the squared distance
    between shared hyperparameters, with numbers compared by rank.
    """
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


LEAST_FITTED = 4
"""Number of observations, or of pairs, needed to fit a model. As a number of pairs, also the weight
of the prior assumption that the slope is 1."""
LEAST_CORRELATION = 0.3
"""Rank correlation below which the prior is dropped, and weight while pairs are too few."""
_STEEPEST = 3.0
"""Upper bound of the slope. Pairs of similar losses can have a steep slope by chance."""
_MAD = 1.4826
"""Ratio of standard deviation to median absolute deviation for a normal variable."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """The linear map from older to new losses, and the weight of older observations.

    Attributes:
        n_pairs: Number of configurations evaluated in both studies.
        correlation: Rank correlation of the pairs; None if the pairs are too few or constant.
        slope: Slope of the map.
        intercept: Intercept of the map.
        weight: Weight of an observation of the previous run; 0 if older observations are dropped.
    """

    n_pairs: int = 0
    correlation: float | None = None  # None if the pairs are too few or constant
    slope: float = 1.0
    intercept: float = 0.0
    weight: float = LEAST_CORRELATION

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]], older: Array) -> Self:
        """Return the transfer from pairs of older and new losses, and all older losses."""
        if not pairs:
            return cls()
        x, y = np.array(pairs, dtype=np.float64).T
        n_pairs = len(pairs)
        if n_pairs < LEAST_FITTED or not (np.ptp(x) and np.ptp(y)):
            return cls(n_pairs, None, 1.0, float(np.median(y - x)))
        correlation = float(spearmanr(x, y).statistic)
        found = float(np.clip(theilslopes(y, x).slope, 0.0, _STEEPEST))
        slope = (n_pairs * found + LEAST_FITTED) / (n_pairs + LEAST_FITTED)
        intercept = float(np.median(y - slope * x))
        noise = _deviation(y - intercept - slope * x) ** 2 * n_pairs / (n_pairs - 2)
        # More than half of the losses may be equal, which makes the usual spread 0.
        deviation = _deviation(older - np.median(older)) or float(older.std())
        spread = (slope * deviation) ** 2
        weight = spread / (spread + noise) if correlation >= LEAST_CORRELATION and spread else 0.0
        return cls(n_pairs, correlation, slope, intercept, weight)

    @property
    def is_dropped(self) -> bool:
        """Whether the older observations are no longer used."""
        return self.weight == 0

    def mapped(self, losses: Array) -> Array:
        """Return older losses on the scale of this study."""
        return self.intercept + self.slope * losses


def _deviation(distances: Array) -> float:
    return float(_MAD * np.median(np.abs(distances)))


@dataclass(frozen=True, slots=True)
class OlderTrials:
    """Older observations for models; empty if there is no prior or the prior was dropped.

    Attributes:
        configurations: Configurations of the n observations.
        raw: Losses as observed, shape (n,).
        weights: Weights relative to a new observation, shape (n,).
        transfer: Map from older to new losses.
    """

    configurations: tuple[Configuration, ...]
    raw: Array
    weights: Array  # a new observation has weight 1
    transfer: Transfer

    @classmethod
    def of(cls, prior: Prior | None, transfer: Transfer) -> Self:
        """Return the newest observation of each configuration, with weights."""
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
        """Return the observations of one path."""
        rows = [i for i, known in enumerate(self.configurations) if known.path == path]
        chosen = tuple(self.configurations[i] for i in rows)
        return OlderTrials(chosen, self.raw[rows], self.weights[rows], self.transfer)

    @property
    def losses(self) -> Array:
        """Losses on the scale of this study, shape (n,)."""
        return self.transfer.mapped(self.raw)

    def subsample(self, limits: dict[str, float] | None = None) -> list[Trial]:
        """Return a sample of the observations as trials, for models without weights.

        The sample size is the sum of the weights, and the sample is spread evenly over the losses.
        The constrained quantities of the sampled trials are set to `limits`.
        """
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
