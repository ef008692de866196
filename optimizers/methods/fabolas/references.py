"""Expected improvement: one process over all rows, its parameters marginalised (Snoek et al. 2012).

What Klein et al. 2017 compare Fabolas with, from the same parts.

Entropy search: full evaluations that tell most about the minimiser (Hennig and Schuler 2012).

What Klein et al. 2017 compare Fabolas with, from the same parts: information is not divided by
cost, as all evaluations are of all rows.

Bayesian optimisation of two tasks: all rows, and one subset of them (Swersky et al. 2013).

What Klein et al. 2017 compare Fabolas with, from the same parts: the two tasks are correlated
freely, and nothing is known of sizes between them.
"""

from typing import ClassVar

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.fabolas.declaration import EI, ES, MTBO
from prefect_tune.optimizers.methods.fabolas.fabolas import Fabolas
from prefect_tune.optimizers.methods.fabolas.recipe import SearchRecipe
from prefect_tune.optimizers.methods.fabolas.sizes import FULL, TASKS, Sizes


class ExpectedImprovement(Fabolas):
    """Full evaluations where the loss is expected to improve most."""

    method: ClassVar[Method] = EI

    def _find_sizes(self) -> Sizes:
        return Sizes.single(self.objective)

    def _find_recipe(self) -> SearchRecipe:
        return SearchRecipe.on_all_rows(FULL, "improvement")


class EntropySearch(Fabolas):
    """Full evaluations by information."""

    method: ClassVar[Method] = ES

    def _find_sizes(self) -> Sizes:
        return Sizes.single(self.objective)

    def _find_recipe(self) -> SearchRecipe:
        return SearchRecipe.on_all_rows(FULL, "gain")


class TwoTasks(Fabolas):
    """Queries of one of two tasks by information about the minimiser on all rows per second."""

    method: ClassVar[Method] = MTBO

    def _find_sizes(self) -> Sizes:
        return Sizes.pair(self.objective, self.options.share)

    def _find_recipe(self) -> SearchRecipe:
        return SearchRecipe(
            log_basis=TASKS,
            raw_basis=TASKS,
            has_falling_noise=False,
            kappa=0.0,
            verify_every=None,
            has_gate=False,
            n_confirmed=0 if self.sizes.is_single else 3,
        )
