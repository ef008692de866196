"""The problem of a study: all that may not change in its life.

Light to import: whoever only looks at a study reads its problem.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

from prefect_tune.storage.key import dataset_record, split_record

if TYPE_CHECKING:
    from prefect_tune.optimizers.space.space import Space
    from prefect_tune.tasks.objective.metric import Metric

__all__ = ["Problem", "algorithm_ids"]

AlgorithmIds = tuple[tuple[str, tuple[str, ...]], ...]
"""By step, the ids of its algorithms."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Data, space, metric and seed of a study.

    Attributes:
        dataset: Digest of the data set.
        split: Digest of the split.
        space: Name of the space, or `FILE.py:NAME` of a user's own.
        space_digest: Digest of the space.
        metric: Name of the metric.
        seed: Source of all randomness.
        space_code: Text of the user's file; empty for a space of the catalogue.
        positive: Of two classes, the position of the one to be found.
        algorithms: Ids of the algorithms that each searched step had when the study started, by
            step.
    """

    dataset: str
    split: str
    space: str
    space_digest: str
    metric: str
    seed: int
    space_code: str = ""
    positive: int = 1
    algorithms: AlgorithmIds = ()

    @property
    def records(self) -> tuple[str, str]:
        """Ids of the records of its data and of its split."""
        return dataset_record(self.dataset), split_record(self.split)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        algorithms = {step: list(ids) for step, ids in self.algorithms}
        return {**asdict(self), "algorithms": algorithms}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the inverse of `to_json`."""
        ids = tuple((step, tuple(ids)) for step, ids in document["algorithms"].items())
        return cls(**{**document, "algorithms": ids})

    def find_space(self) -> "Space":
        """Return the space as the study started with it, if it can still be had.

        What the user's own code defines is known to pickle from then on.
        """
        from prefect_tune.tasks.catalogue.spaces import space_named  # noqa: PLC0415 - heavy
        from prefect_tune.tasks.user_space import load_user_space  # noqa: PLC0415 - heavy

        if self.space_code:
            return self.as_started(load_user_space(self.space_code, self.space))
        return self.as_started(space_named(self.space))

    def as_started(self, space: "Space") -> "Space":
        """Return a space without the algorithms that it has got since the study started.

        So a study goes on when its space grows. Whatever else has changed (an algorithm, their
        order, a step) shows in the digest of what is returned.
        """
        if not self.algorithms or space.digest == self.space_digest:
            return space
        return _part_of(space, self.algorithms)

    def find_metric(self) -> "Metric":
        """Return the metric."""
        from prefect_tune.tasks.objective.metric import metric_named  # noqa: PLC0415 - heavy

        return metric_named(self.metric, self.positive)


@lru_cache(maxsize=4)
def _part_of(space: "Space", algorithms: AlgorithmIds) -> "Space":
    try:
        return space.restricted_to(dict(algorithms))
    except (KeyError, ValueError):  # a step is new, or has lost all its algorithms
        return space


def algorithm_ids(space: "Space") -> AlgorithmIds:
    """Return the ids of the algorithms of each searched step."""
    return tuple((step.name, tuple(a.id for a in step.algorithms)) for step in space.searched)
