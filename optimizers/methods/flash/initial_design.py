"""Phase 1 of FLASH: which paths to run before there is a model of them."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from prefect_tune.optimizers.methods.flash.options import FlashOptions
from prefect_tune.optimizers.methods.flash.path_models import PathModels
from prefect_tune.optimizers.paths.design import design_order
from prefect_tune.optimizers.paths.table import PathTable
from prefect_tune.optimizers.trials.history import History

__all__ = ["initial_design", "rest_of_design"]

_EXPENSIVE = 2.0
"""A path predicted to take this many medians waits until the others have run."""


def initial_design(options: FlashOptions, table: PathTable, rng: np.random.Generator) -> list[int]:
    """Return the paths of Phase 1 in the order to run them."""
    n = options.n_init if options.n_init is not None else table.rank
    assert options.design is not None  # noqa: S101 - resolved at construction
    if options.design == "plain_first":
        return design_order(table.one_hot, n, "d_optimal", rng, table.plain[:n])
    return design_order(table.one_hot, n, options.design, rng)


def rest_of_design(
    design: Sequence[int],
    options: FlashOptions,
    models: PathModels,
    history: History,
    rng: np.random.Generator,
) -> list[int]:
    """Return the paths not asked for yet, in order, with the expensive ones at the end.

    When all were asked for: paths at random, those asked for least first.
    """
    asked = Counter(models.table.numbers_of(history))
    unmatched, left = Counter(asked), []
    for i in design:
        if unmatched[i] > 0:
            unmatched[i] -= 1
        else:
            left.append(i)
    if not left:
        return sorted(map(int, rng.permutation(len(models.table))), key=lambda i: asked[i])
    if options.cost != "steps" or not history.complete:
        return left
    seconds = models.scores.seconds(history)
    ran = [seconds[i] for i in set(design).difference(left)]
    limit = _EXPENSIVE * float(np.median(ran or seconds))
    expensive = sorted((i for i in left if seconds[i] > limit), key=lambda i: seconds[i])
    return [*(i for i in left if seconds[i] <= limit), *expensive]
