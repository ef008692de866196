"""The methods that Klein et al. 2017 compare Fabolas with, from the same parts."""

from typing import ClassVar

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.fabolas.declaration import EI, ES, MTBO
from prefect_tune.optimizers.methods.fabolas.fabolas import Fabolas
from prefect_tune.optimizers.methods.fabolas.recipe import SearchRecipe
from prefect_tune.optimizers.methods.fabolas.sizes import FULL, TASKS, Sizes


class ExpectedImprovement(Fabolas):
    """Full evaluations of the largest expected improvement (equation 2; Snoek et al. 2012)."""

    method: ClassVar[Method] = EI

    def _find_sizes(self) -> Sizes:
        return Sizes.single(self.objective)

    def _find_recipe(self) -> SearchRecipe:
        return SearchRecipe.on_all_rows(FULL, "improvement")


class EntropySearch(Fabolas):
    """Full evaluations by information (equation 3; Hennig and Schuler 2012).

    It is not divided by cost, as all evaluations are of all rows.
    """

    method: ClassVar[Method] = ES

    def _find_sizes(self) -> Sizes:
        return Sizes.single(self.objective)

    def _find_recipe(self) -> SearchRecipe:
        return SearchRecipe.on_all_rows(FULL, "gain")


class TwoTasks(Fabolas):
    """Evaluations of one of two tasks by information per second (equation 5; Swersky et al. 2013).

    The tasks are all rows and one subset; they are correlated freely (equation 4).
    """

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
