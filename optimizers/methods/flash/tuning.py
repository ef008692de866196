"""Phase 3 of FLASH: a surrogate that has seen all trials tunes the sub-space G'."""

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.method import Reason
from prefect_tune.optimizers.methods.declarations import SmacOptions
from prefect_tune.optimizers.methods.flash.declaration import FlashOptions
from prefect_tune.optimizers.methods.flash.scores import LEAST_SHARE
from prefect_tune.optimizers.methods.smac import ForestSearch, LogCost
from prefect_tune.optimizers.paths.cost import PathCost
from prefect_tune.optimizers.space.candidate_space import Candidates, CandidateSpace
from prefect_tune.optimizers.space.configuration import Query
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import Objective

if TYPE_CHECKING:
    from prefect_tune.optimizers.methods.tpe import ParzenSearch


_INSTANT_SECONDS = 1e-9


class Tuning:
    """Proposes configurations of G', and now and then of the whole space.

    Args:
        space: The whole space.
        subspace: G'.
        objective: What is minimised.
        options: Those of FLASH, resolved.
        cost: Predicts the seconds of candidates.
    """

    def __init__(
        self,
        space: Space,
        subspace: Space,
        objective: Objective,
        options: FlashOptions,
        cost: PathCost,
    ) -> None:
        self._space, self._subspace = space, subspace
        self._objective, self._options, self._cost = objective, options, cost

    def propose(self, history: History, rng: np.random.Generator) -> tuple[Query, Reason]:
        """Return the next query, and why.

        Raises:
            SpaceExhausted: If nothing is left to propose.
        """
        outside = self._options.outside
        is_outside = rng.random() < outside if outside else False
        search = self._outside if is_outside else self._inside
        if isinstance(search, ForestSearch):
            power = self._options.cost_power or 0.0
            log_cost = self._log_cost(history, search.candidates, power)
            query, reason = search.propose(history, rng, log_cost)
        else:
            query, reason = search.propose(history, rng)
        surrogate = "forest" if isinstance(search, ForestSearch) else "densities"
        where = "in the whole space" if is_outside else "among the paths that were kept"
        return query, Reason(surrogate, f"{reason.text}, {where}")

    def _log_cost(self, history: History, space: CandidateSpace, power: float) -> LogCost | None:
        """Return ln of what divides the expected improvement of candidates.

        What is least is a share of a run of any path, not of the candidates at hand: scores of one
        batch are compared with those of another.
        """
        if not power:
            return None
        predicted = self._cost.of_candidates(history, space)
        least = max(LEAST_SHARE * self._cost.typical_seconds(history), _INSTANT_SECONDS)

        def log_cost(candidates: Candidates, features: NDArray[np.float64]) -> NDArray[np.float64]:
            seconds = predicted(candidates, features)
            return power * np.log(np.maximum(seconds, least))

        return log_cost

    @cached_property
    def _inside(self) -> "ForestSearch | ParzenSearch":
        return self._search(self._subspace)

    @cached_property
    def _outside(self) -> "ForestSearch | ParzenSearch":
        return self._search(self._space)

    def _search(self, part: Space) -> "ForestSearch | ParzenSearch":
        """Make the surrogate's search, which keeps tables."""
        failure_cost = self._options.failure_cost
        assert failure_cost is not None  # noqa: S101 - resolved at construction
        if self._options.phase3 == "tpe":
            # Optuna takes a second to import.
            from prefect_tune.optimizers.methods.declarations import TpeOptions  # noqa: PLC0415
            from prefect_tune.optimizers.methods.tpe import ParzenSearch  # noqa: PLC0415

            options = TpeOptions(n_startup=1, failure_cost=failure_cost)
            return ParzenSearch(part, self._objective, options)
        forest = SmacOptions(n_startup=1, failure_cost=failure_cost)
        if self._options.is_paper:
            forest = SmacOptions(
                n_startup=1,
                min_samples_split=10,
                max_features=5 / 6,
                random_share=0.5,
                failure_cost=failure_cost,
                is_log=False,
            )
        return ForestSearch(self._space, self._objective, forest, part)
