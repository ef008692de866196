"""FLASH's pruning: which algorithms of each step make the sub-space G'."""

from collections.abc import Iterable
from itertools import islice
from math import ceil

from prefect_tune.optimizers.space.equal_paths import with_idle_steps
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.trials.history import History

__all__ = ["subspace_of"]


def subspace_of(
    space: Space, paths: Iterable[Path], history: History, keep: float = 0.0
) -> dict[str, list[str]]:
    """Return the algorithms of some paths by step, in the order of the space.

    Args:
        space: The space.
        paths: Those that G' is to hold, with all that combine their algorithms.
        history: The trials so far.
        keep: Share of each step's algorithms that is in G' besides, by the least loss observed
            with them; 0 for none.
    """
    kept = [set(column) for column in zip(*paths, strict=True)]
    if keep:
        kept = [ids | good for ids, good in zip(kept, _best(space, history, keep), strict=True)]
    names = [step.name for step in space.searched]
    closed = with_idle_steps(space.searched, dict(zip(names, kept, strict=True)))
    return {
        step.name: [a.id for a in step.algorithms if a.id in closed[step.name]]
        for step in space.searched
    }


def _best(space: Space, history: History, keep: float) -> list[set[str]]:
    """Return the best share of the algorithms of each step, at least two of them."""
    complete = sorted(history.complete, key=lambda t: (t.loss, t.number))
    best = []
    for k, step in enumerate(space.searched):
        by_loss = dict.fromkeys(t.query.configuration.path[k] for t in complete)
        n = max(2, ceil(keep * len(step.algorithms)))
        best.append(set(islice(by_loss, n)))
    return best
