"""Entropy search: full evaluations that tell most about the minimiser (Hennig and Schuler 2012).

What Klein et al. 2017 compare Fabolas with, from the same parts: information is not divided by
cost, as all evaluations are of all rows.
"""

from typing import ClassVar

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.es.declaration import ES
from prefect_tune.optimizers.methods.fabolas.bases import FULL
from prefect_tune.optimizers.methods.fabolas.fabolas import Fabolas
from prefect_tune.optimizers.methods.fabolas.recipe import Recipe
from prefect_tune.optimizers.methods.fabolas.sizes import Sizes

__all__ = ["EntropySearch"]


class EntropySearch(Fabolas):
    """Full evaluations by information."""

    method: ClassVar[Method] = ES

    def _find_sizes(self) -> Sizes:
        return Sizes.single(self.objective)

    def _find_recipe(self) -> Recipe:
        return Recipe.on_all_rows(FULL, "gain")
