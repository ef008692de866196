"""FLASH's tables and models of the paths, which depend on what all paths share."""

from collections.abc import Mapping
from functools import cached_property

from prefect_tune.optimizers.methods.flash.options import FlashOptions
from prefect_tune.optimizers.methods.flash.scores import PathScores
from prefect_tune.optimizers.paths.cost import PathCost
from prefect_tune.optimizers.paths.table import PathTable
from prefect_tune.optimizers.space.configuration import Choice
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.objective import Objective

__all__ = ["PathModels"]


class PathModels:
    """The paths of a space, what each costs, and how promising each is; made when first used.

    Args:
        space: The space.
        seed: Draws the paths of a space with too many to list.
        objective: What is minimised.
        options: Those of FLASH, resolved.
        shared: By step that all paths share, what takes the place of its default values.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        objective: Objective,
        options: FlashOptions,
        shared: Mapping[str, Choice],
    ) -> None:
        self._space, self._seed, self._objective = space, seed, objective
        self._options, self.shared = options, shared

    @cached_property
    def table(self) -> PathTable:
        """The paths by index."""
        return PathTable(self._space, self._seed, self.shared)

    @cached_property
    def cost(self) -> PathCost:
        """Predicts the seconds of each path, step by step."""
        return PathCost(self._space, self.table.paths, self.shared)

    @cached_property
    def scores(self) -> PathScores:
        """Predicts the improvement per cost of each path."""
        return PathScores(self._options, self._objective, self.table, self.cost)
