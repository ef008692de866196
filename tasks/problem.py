"""What a study is about, and what a worker needs to know to evaluate its trials."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Self

from prefect_tune.optimizers.space.space import Space
from prefect_tune.storage.record_ids import dataset_record, split_record
from prefect_tune.storage.store import ArtifactStore, StoreAddress
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.objective.constraint import Quantity
from prefect_tune.tasks.objective.metric import Metric, metric_named
from prefect_tune.tasks.user_space import load_user_space

__all__ = ["Problem", "StudyContext", "open_store", "records_of"]


@dataclass(frozen=True, slots=True)
class Problem:
    """What may not change in the life of a study.

    Attributes:
        dataset: Digest of the data set.
        split: Digest of the split.
        space: Name of the space, or `FILE.py:NAME` of a user's own.
        space_digest: What the space is.
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

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(**document)

    def find_space(self) -> Space:
        """The space itself.

        What the user's own code made can be unpickled from then on.
        """
        if self.space_code:
            return load_user_space(self.space_code, self.space)
        return space_named(self.space)

    def find_metric(self) -> Metric:
        """The metric itself."""
        return metric_named(self.metric, self.positive)


@dataclass(frozen=True, slots=True)
class StudyContext:
    """What travels to a worker with every trial.

    Attributes:
        study: Name of the study.
        problem: What it is about.
        store: Where artifacts and records are.
        use_cache: Whether to look for artifacts, and to keep them.
        memory_limit_bytes: Most memory that a step may be foreseen to take; None for that of the
            machine.
        cache_area: Names artifacts that are shared within the area alone; empty for all others.
        quantities: What to measure besides the loss.
    """

    study: str
    problem: Problem
    store: StoreAddress
    use_cache: bool = True
    memory_limit_bytes: int | None = None
    cache_area: str = ""
    quantities: tuple[Quantity, ...] = ()


def records_of(problem: Mapping[str, Any]) -> tuple[str, str]:
    """Ids of the records of a problem's data and split."""
    return dataset_record(problem["dataset"]), split_record(problem["split"])


@lru_cache(maxsize=4)
def open_store(address: StoreAddress) -> ArtifactStore:
    """The store at an address, opened once per process.

    Raises:
        StoreRefused: If it cannot be used.
    """
    return ArtifactStore(address)
