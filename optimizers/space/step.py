"""Steps: one stage of a pipeline each, and the algorithms that can fill it."""

from dataclasses import dataclass

from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.naming import UnknownName

__all__ = ["Step"]


@dataclass(frozen=True, eq=False)
class Step:
    """One stage of a pipeline and the algorithms that can fill it.

    Attributes:
        name: Also the name of its Prefect task, for instance `rescale`.
        algorithms: The choices, in the order of their columns in a one-hot path.
        fixed: True for a step that always runs and leaves nothing to choose; it is not part of a
            configuration and not counted.
    """

    name: str
    algorithms: tuple[Algorithm, ...]
    fixed: bool = False

    def __post_init__(self) -> None:
        ids = [a.id for a in self.algorithms]
        if not ids:
            raise ValueError(f"step {self.name!r} has no algorithm; give it at least one")
        doubled = {i for i in ids if ids.count(i) > 1}
        if doubled:
            raise ValueError(f"step {self.name!r} has two algorithms called {min(doubled)!r}")
        if self.fixed and (len(ids) > 1 or self.algorithms[0].n_hyperparameters):
            raise ValueError(
                f"step {self.name!r} is fixed, so it takes one algorithm without hyperparameters; "
                f"it has {len(ids)} with {self.algorithms[0].n_hyperparameters} in the first"
            )

    @property
    def orders(self) -> tuple[str, ...]:
        """The steps whose order this one chooses; empty for all but those of `order_step`."""
        return self.algorithms[0].order

    @property
    def plainest(self) -> Algorithm:
        """The algorithm that hands on what it was given, or the first one if there is none.

        Not one that is chosen only where the step is ignored.
        """
        free = [a for a in self.algorithms if not a.only_ignored] or self.algorithms
        return next((a for a in free if a.is_idle), free[0])

    @property
    def idle(self) -> Algorithm | None:
        """The algorithm that does nothing, the first one; None if there is none."""
        return next((a for a in self.algorithms if a.is_idle), None)

    def algorithm(self, algorithm_id: str) -> Algorithm:
        """Return the algorithm of that id.

        Raises:
            UnknownName: If the step has none of that id.
        """
        for algorithm in self.algorithms:
            if algorithm.id == algorithm_id:
                return algorithm
        known = [a.id for a in self.algorithms]
        raise UnknownName(f"algorithm of step {self.name!r}:", algorithm_id, known)
