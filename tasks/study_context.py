"""Everything about a study that a worker needs to evaluate its trials."""

from dataclasses import dataclass
from functools import lru_cache

from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.storage.store import ArtifactStore, StoreAddress
from prefect_tune.tasks.objective.quantity import Quantity
from prefect_tune.tasks.problem import Problem

__all__ = ["StudyContext", "open_store"]


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


@lru_cache(maxsize=4)
def open_store(address: StoreAddress) -> ArtifactStore:
    """Open the store at an address, once per process.

    Raises:
        StoreRefused: If it cannot be used.
    """
    return ArtifactStore(address)
