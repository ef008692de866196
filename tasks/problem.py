"""What a study is about: everything that may not change in its life.

Light to import: whoever only looks at a study reads its problem.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from prefect_tune.storage.record_ids import dataset_record, split_record

if TYPE_CHECKING:
    from prefect_tune.optimizers.space.space import Space
    from prefect_tune.tasks.objective.metric import Metric

__all__ = ["Problem"]


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
    """

    dataset: str
    split: str
    space: str
    space_digest: str
    metric: str
    seed: int
    space_code: str = ""
    positive: int = 1

    @property
    def records(self) -> tuple[str, str]:
        """Ids of the records of its data and of its split."""
        return dataset_record(self.dataset), split_record(self.split)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the inverse of `to_json`."""
        return cls(**document)

    def find_space(self) -> "Space":
        """Return the space, and make what the user's own code defines known to pickle."""
        from prefect_tune.tasks.catalogue.spaces import space_named  # noqa: PLC0415 - heavy
        from prefect_tune.tasks.user_space import load_user_space  # noqa: PLC0415 - heavy

        if self.space_code:
            return load_user_space(self.space_code, self.space)
        return space_named(self.space)

    def find_metric(self) -> "Metric":
        """Return the metric."""
        from prefect_tune.tasks.objective.metric import metric_named  # noqa: PLC0415 - heavy

        return metric_named(self.metric, self.positive)
