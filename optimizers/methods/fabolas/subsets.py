"""Which subsets queries are given, and on how many folds they are evaluated."""

from dataclasses import dataclass

from prefect_tune.optimizers.methods.fabolas.sizes import SMALL
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.query import Query
from prefect_tune.optimizers.trials.history import History

__all__ = ["Subsets"]


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
        return Query(configuration, share, draw, folds=self.folds if share <= SMALL else None)

    def most(self, share: float) -> int:
        """Return how often a configuration may be evaluated on a share of the rows."""
        return 1 if share == 1.0 else self.n_draws
