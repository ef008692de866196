"""The problem of a study, which never changes, and the context that workers get with each trial.

The space and the metric are imported when they are asked for: showing a study needs neither.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

from prefect_tune.optimizers.converter import from_document, to_document
from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.storage.key import dataset_record, split_record
from prefect_tune.storage.store import ArtifactStore, StoreAddress
from prefect_tune.tasks.code_behind import NO_CODE_BEHIND, CodeBehind
from prefect_tune.tasks.objective.declaration import Quantity
from prefect_tune.tasks.plugins import UsedPlugin, check_plugins

if TYPE_CHECKING:
    from prefect_tune.optimizers.space.space import Space
    from prefect_tune.tasks.objective.metric import Metric


_SHARE_OF_MEMORY = 0.9
"""The trials' share of a machine's memory; the rest is for the flow and the server."""


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """The most that a trial may take.

    Attributes:
        seconds: Wall time from its start on a worker.
        memory_bytes: Resident memory of its worker's process; None for what the worker was
            started with.
    """

    seconds: float
    memory_bytes: int | None = None


def share_of_memory(n_workers: int, memory_bytes: int | None = None) -> int:
    """Return each worker's share of memory, by default of this machine or container."""
    if memory_bytes is None:
        from distributed.system import MEMORY_LIMIT  # noqa: PLC0415 - plans are read without Dask

        memory_bytes = MEMORY_LIMIT
    return int(_SHARE_OF_MEMORY * memory_bytes / n_workers)


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
        plugins: Declarations of other distributions that the study uses.
        behind: Modules and data files behind the space that no wheel installed.
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
    plugins: tuple[UsedPlugin, ...] = ()
    behind: CodeBehind = NO_CODE_BEHIND

    @property
    def running_plugins(self) -> tuple[UsedPlugin, ...]:
        """The plugins that its trials run with: a format has done its work once data is stored."""
        return tuple(plugin for plugin in self.plugins if plugin.kind != "format")

    @property
    def records(self) -> tuple[str, str]:
        """Ids of the records of its data and of its split."""
        return dataset_record(self.dataset), split_record(self.split)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return to_document(self, algorithms=dict(self.algorithms))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the inverse of `to_json`."""
        algorithms = document["algorithms"].items()
        return from_document(cls, {**document, "algorithms": tuple(algorithms)})

    def find_space(self) -> "Space":
        """Return the space as the study started with it, if it can still be had.

        What the user's own code defines is known to pickle from then on.
        """
        from prefect_tune.tasks.catalogue.spaces import space_named  # noqa: PLC0415 - heavy
        from prefect_tune.tasks.user_space import bound, load_user_space  # noqa: PLC0415 - heavy

        self._check_plugins()
        if self.space_code:
            return self.as_started(load_user_space(self.space_code, self.space, self.behind))
        return self.as_started(bound(space_named(self.space), self.behind))

    def as_started(self, space: "Space") -> "Space":
        """Return a space without the algorithms that it has got since the study started.

        So a study goes on when its space grows. Whatever else has changed (an algorithm, their
        order, a step) shows in the digest of what is returned.
        """
        if not self.algorithms or space.digest == self.space_digest:
            return space
        return _part_of(space, self.algorithms)

    def _check_plugins(self) -> None:
        """Check that the plugins of its trials are the same in this process.

        Raises:
            BadInput: If one is missing or differs; names it and the remedy.
        """
        if running := self.running_plugins:
            check_plugins(running)

    def find_metric(self) -> "Metric":
        """Return the metric."""
        from prefect_tune.tasks.objective.metric import metric_named  # noqa: PLC0415 - heavy

        self._check_plugins()
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


@dataclass(frozen=True, slots=True)
class StudyContext:
    """Everything about a study that travels to a worker with a trial.

    Attributes:
        study: Name of the study.
        problem: Data, space, metric and seed.
        store: Where artifacts and records are.
        use_cache: Whether to look for artifacts, and to keep them.
        memory_limit_bytes: Largest memory estimate that a step may start with; None for the
            machine's memory.
        cache_area: Names artifacts that are shared within the area alone; empty for all others.
        quantities: What to measure beside the loss.
        epochs: Epochs of a full training of iterative models (t_max); None to fit them at once.
        bootstraps: Those that evaluations have the risks of; None for no risks.
        most_threads: Threads that a fit may use if they pay.
    """

    study: str
    problem: Problem
    store: StoreAddress
    use_cache: bool = True
    memory_limit_bytes: int | None = None
    cache_area: str = ""
    quantities: tuple[Quantity, ...] = ()
    epochs: int | None = None
    bootstraps: Bootstraps | None = None
    most_threads: int = 1


@lru_cache(maxsize=4)
def open_store(address: StoreAddress) -> ArtifactStore:
    """Open the store at an address, once per process.

    Raises:
        StoreRefused: If it cannot be used.
    """
    return ArtifactStore(address)
