"""Expected improvement: one process over all rows, its parameters marginalised (Snoek et al. 2012).

What Klein et al. 2017 compare Fabolas with, from the same parts.
"""

from typing import ClassVar

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.ei.declaration import EI
from prefect_tune.optimizers.methods.fabolas.bases import FULL
from prefect_tune.optimizers.methods.fabolas.fabolas import Fabolas
from prefect_tune.optimizers.methods.fabolas.recipe import Recipe
from prefect_tune.optimizers.methods.fabolas.sizes import Sizes

__all__ = ["ExpectedImprovement"]


class ExpectedImprovement(Fabolas):
    """Full evaluations where the loss is expected to improve most."""

    method: ClassVar[Method] = EI

    def _find_sizes(self) -> Sizes:
        return Sizes.single(self.objective)

    def _find_recipe(self) -> Recipe:
        return Recipe.on_all_rows(FULL, "improvement")
