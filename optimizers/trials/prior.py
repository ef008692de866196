"""Observations of earlier runs of a series, and the configurations to evaluate again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeGuard

from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.value_documents import Document
from prefect_tune.optimizers.space.wording import UnknownName

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
        return _newest(self.trials)

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


def _newest(trials: Iterable[PriorTrial]) -> tuple[PriorTrial, ...]:
    newest: dict[Configuration, PriorTrial] = {}
    for trial in trials:
        known = newest.get(trial.configuration)
        if known is None or trial.runs_ago < known.runs_ago:
            newest[trial.configuration] = trial
    return tuple(newest.values())


def best_and_diverse(trials: Sequence[PriorTrial], n: int = N_START) -> tuple[Configuration, ...]:
    """Return n configurations to evaluate again: the best, and in turn the most different good one.

    Good are the better half. Two configurations differ by the number of other algorithms, then by
    the distance of their common numbers in the unit cube of ranks, since values may be logarithmic.
    """
    ranked = sorted(_newest(trials), key=lambda t: (t.loss, t.configuration.canonical))
    best_first = [trial.configuration for trial in ranked]
    n_good = max(n, round(_GOOD * len(best_first)))
    distance = _Distance(best_first)
    chosen: list[Configuration] = []
    left = best_first[:n_good]
    while left and len(chosen) < n:
        is_diverse = len(chosen) % 2 == 1
        far = {c: min(distance(c, other) for other in chosen) for c in left} if is_diverse else {}
        pick = max(left, key=lambda c: far[c]) if is_diverse else left[0]
        chosen.append(pick)
        left.remove(pick)
    return tuple(chosen)


class _Distance:
    """Distance of two configurations of a set: other algorithms, then squared ranks of numbers."""

    def __init__(self, configurations: Iterable[Configuration]) -> None:
        values: dict[tuple[str, str, str], set[float]] = {}
        for configuration in configurations:
            for step, choice in configuration.choices:
                for name, value in choice.documents:
                    if _is_number(value):
                        place = values.setdefault((step, choice.algorithm, name), set())
                        place.add(float(value))
        self._ranks = {
            place: {value: i / max(len(known) - 1, 1) for i, value in enumerate(sorted(known))}
            for place, known in values.items()
        }

    def __call__(self, a: Configuration, b: Configuration) -> tuple[int, float]:
        n_other, squared = 0, 0.0
        for (step, mine), (_, other) in zip(a.choices, b.choices, strict=True):
            if mine.algorithm != other.algorithm:
                n_other += 1
                continue
            others = dict(other.documents)
            for name, value in mine.documents:
                squared += self._squared((step, mine.algorithm, name), value, others.get(name))
        return n_other, squared

    def _squared(self, place: tuple[str, str, str], a: Document, b: Document) -> float:
        if not (_is_number(a) and _is_number(b)):
            return float(a != b)
        ranks = self._ranks[place]
        return (ranks[float(a)] - ranks[float(b)]) ** 2


def _is_number(value: Document) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
