"""The paths that ADMM tries before its first iteration."""

from collections.abc import Sequence

import numpy as np

from prefect_tune.optimizers.space.space import Path, Space

__all__ = ["first_paths", "plainest_path"]


def first_paths(space: Space, paths: Sequence[Path], *, of_each_model: bool) -> list[Path]:
    """Return the plainest path, and one per model if wanted.

    Args:
        space: The space.
        paths: Those that can run.
        of_each_model: Whether each model has one.
    """
    plainest = plainest_path(space, paths)
    if not of_each_model:
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
