"""The parts in which Fabolas and the methods that it is compared with differ."""

from dataclasses import dataclass, field
from typing import Literal

from prefect_tune.optimizers.methods.fabolas.rules import RULES
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.surrogates.fidelity_kernel import Basis
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import Objective


@dataclass(frozen=True, slots=True)
class Subsets:
    """How queries of less than all rows are made.

    Attributes:
        n_draws: Independent families of subsets, given out in turn.
        folds: Folds that small ones are evaluated on; None for all.
    """

    n_draws: int = 1
    folds: int | None = None

    def query(self, configuration: Configuration, share: float, history: History) -> Query:
        """Return a query for a share of the rows, with a family that it has not had yet.

        Args:
            configuration: Of the query.
            share: In (0, 1].
            history: All trials.
        """
        if share == 1.0:
            return Query(configuration)
        taken = {
            t.query.subset_draw
            for t in history
            if t.query.configuration == configuration and t.query.subset == share
        }
        turn = sum(t.query.subset < 1 for t in history)
        draws = [(turn + i) % self.n_draws for i in range(self.n_draws)]
        draw = next((d for d in draws if d not in taken), draws[0])
        return Query(configuration, share, draw, folds=self.folds if share <= RULES.small else None)

    def most(self, share: float) -> int:
        """Return how often a configuration may be evaluated on a share of the rows."""
        return 1 if share == 1.0 else self.n_draws


Acquisition = Literal["gain", "gain_per_cost", "divergence_per_cost", "improvement"]
"""Information about the minimiser on all rows, or expected improvement there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRecipe:
    """How a method of this family searches.

    Attributes:
        log_basis: Basis functions of ln of an error.
        raw_basis: Of any other loss.
        acquisition: Chooses the next query.
        is_log: Whether errors are learned as their logarithms.
        has_falling_noise: Whether losses of small subsets may scatter more.
        kappa: Deviations added to the prediction of an incumbent.
        verify_every: Asks without a full evaluation after which the predicted best gets one, where
            subsets have proved their worth; None for no full evaluation before the end.
        has_gate: Whether subsets are given up when they tell nothing.
        n_confirmed: Best configurations that are evaluated in full at the end.
        has_anchor: Whether the first evaluations end with one of all rows.
        has_halving: Whether the first evaluations are halved; else each has a subset at random.
        subsets: How queries of less than all rows are made.
        is_drawn: Whether parameters are drawn whatever the option says.
    """

    log_basis: Basis
    raw_basis: Basis
    acquisition: Acquisition = "gain_per_cost"
    is_log: bool = True
    has_falling_noise: bool = True
    kappa: float = 1.0
    verify_every: int | None = 9
    has_gate: bool = True
    n_confirmed: int = 3
    has_anchor: bool = True
    has_halving: bool = True
    subsets: Subsets = field(default_factory=Subsets)
    is_drawn: bool = False

    @property
    def has_costs(self) -> bool:
        """Whether seconds are learned: only where evaluations may be of less than all rows."""
        return self.acquisition.endswith("_per_cost")

    def learns_logs(self, objective: Objective) -> bool:
        """Return whether losses are learned as their logarithms: those that are errors."""
        return self.is_log and objective.is_percentage

    @classmethod
    def on_all_rows(cls, basis: Basis, acquisition: Acquisition) -> "SearchRecipe":
        """Return one that asks for full evaluations alone.

        Args:
            basis: Of all losses.
            acquisition: Chooses the configuration.
        """
        return cls(
            log_basis=basis,
            raw_basis=basis,
            acquisition=acquisition,
            has_falling_noise=False,
            kappa=0.0,
            verify_every=None,
            has_gate=False,
            n_confirmed=0,
        )
