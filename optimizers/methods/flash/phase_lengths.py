"""How many trials the first two phases of FLASH get of a budget."""

from dataclasses import dataclass
from typing import Self

from prefect_tune.optimizers.methods.flash.options import FlashOptions
from prefect_tune.optimizers.paths.table import PathTable

__all__ = ["PhaseLengths", "phase_lengths", "wanted_lengths"]

_DESIGN_SHARE = 0.5
_KNOWN_SHARE = 0.25
"""Of known configurations, Phase 2 has this many."""
_SHARE = 0.4
"""Of a small budget, Phases 1 and 2 take this much together."""
_MODELS_SHARE = 0.5
"""Of a still smaller one, this much is for seeing each model once."""


@dataclass(frozen=True, slots=True)
class PhaseLengths:
    """Trials of Phases 1 and 2."""

    n_init: int
    n_prune: int

    def shrunk(self, limit: float | None, least: int = 1) -> Self:
        """Return both in proportion, where together they exceed a limit.

        Args:
            limit: Trials that they may take together; None for as many as they want.
            least: Trials of Phase 1 in any case, if so many are wanted.
        """
        both = self.n_init + self.n_prune
        if limit is None or both <= limit:
            return self
        share = limit / both
        n_init = min(max(1, least, int(self.n_init * share)), self.n_init)
        return type(self)(n_init, max(min(self.n_prune, 1), int(self.n_prune * share)))


def wanted_lengths(options: FlashOptions, table: PathTable, n_known: int = 0) -> PhaseLengths:
    """Return both phases for a budget that is large enough.

    Args:
        options: Those of FLASH, resolved.
        table: The paths.
        n_known: Known configurations that it begins with. As many as half of the design or more
            stand for it, as a portfolio does, and need a short Phase 2 only: they did well before.
    """
    rank = min(table.rank, len(table))
    n_init, n_prune = rank, rank
    if n_known >= rank * _DESIGN_SHARE and not options.is_paper:
        n_init, n_prune = n_known, max(1, int(n_known * _KNOWN_SHARE))
    n_init = options.n_init if options.n_init is not None else n_init
    n_prune = options.n_prune if options.n_prune is not None else n_prune
    return PhaseLengths(n_init, n_prune if options.pruning else 0)


def phase_lengths(
    options: FlashOptions, table: PathTable, capacity: float | None, n_known: int = 0
) -> PhaseLengths:
    """Return both phases for a budget: all of it where lengths were given, else a share of it.

    Args:
        options: Those of FLASH, resolved.
        table: The paths.
        capacity: Trials that the budget holds in all; None where that is not known.
        n_known: Known configurations that it begins with.
    """
    wanted = wanted_lengths(options, table, n_known)
    is_given = options.n_init is not None or options.n_prune is not None
    if capacity is None or options.is_paper or is_given:
        return wanted.shrunk(capacity)
    least = len(table.plain) if options.design == "plain_first" else 1
    return wanted.shrunk(capacity * _SHARE, min(least, int(capacity * _MODELS_SHARE)))
