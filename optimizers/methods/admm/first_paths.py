"""The paths that ADMM tries before its first iteration."""

from collections.abc import Sequence

import numpy as np

from prefect_tune.optimizers.space.space import Path, Space

__all__ = ["first_paths", "plainest_path"]


def first_paths(space: Space, paths: Sequence[Path], first: str | None) -> list[Path]:
    """Return the plainest path, and unless that is all that is wanted, one per model.

    Args:
        space: The space.
        paths: Those that can run.
        first: `plainest` or `models`.
    """
    plainest = plainest_path(space, paths)
    if first != "models":
        return [plainest]
    *before, _ = plainest
    known = set(paths)
    each = [space.settled((*before, a.id)) for a in space.searched[-1].algorithms]
    return [plainest, *(p for p in each if p in known and p != plainest)]


def plainest_path(space: Space, paths: Sequence[Path]) -> Path:
    """Return the path of steps that do nothing, where there are any, and naive Bayes (section 5).

    Where that cannot run, the one most like it.
    """
    wanted = []
    for step in space.searched:
        plain = [a for a in step.algorithms if a.is_passthrough or a.id == "gaussian_nb"]
        least = min(step.algorithms, key=lambda a: a.n_hyperparameters)
        wanted.append((plain[0] if plain else least).id)
    path = space.settled(tuple(wanted))
    if path in paths:
        return path
    alike = [sum(a == b for a, b in zip(path, p, strict=True)) for p in paths]
    return paths[int(np.argmax(alike))]
