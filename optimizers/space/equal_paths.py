"""Equal paths: the canonical path stands for all paths that make the same pipeline.

Steps may choose the running order of the steps after them. Among orders that differ only in idle
steps, the first is canonical. Algorithms may ignore earlier steps, which are then idle regardless
of their choice.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import permutations

from prefect_tune.optimizers.space.algorithm import Algorithm, Step
from prefect_tune.optimizers.space.wording import UnknownName

_MOST_ORDERED = 4
"""Largest number of steps in an `order_step`: they have 24 orders."""

Pipeline = tuple[tuple[Step, Algorithm], ...]
"""Steps with their algorithms."""


def order_step(*steps: str, name: str = "order") -> Step:
    """Make a step that chooses the order of others (o_ik of Liu, Ram et al. 2020, appendix 6).

    It precedes them directly in a space. Its algorithms are the permutations. Among orders that
    differ only in idle steps, one can run. `steps` are two to four different names in their default
    order; if not, a `ValueError` is raised.
    """
    if not 2 <= len(steps) <= _MOST_ORDERED or len(set(steps)) < len(steps):
        raise ValueError(
            f"step {name!r} orders 2 to {_MOST_ORDERED} different steps; got {', '.join(steps)}"
        )
    ids = {order: "_before_".join(order).replace(" ", "_") for order in permutations(steps)}
    return Step(name, tuple(Algorithm(id=i, order=order) for order, i in ids.items()))


def in_chosen_order(pairs: Sequence[tuple[Step, Algorithm]]) -> Pipeline:
    """Return pairs of step and algorithm in running order, without steps of `order_step`."""
    pipeline = [pair for pair in pairs if not pair[1].order]
    place = {step.name: i for i, (step, _) in enumerate(pipeline)}
    for order in (algorithm.order for _, algorithm in pairs if algorithm.order):
        first = min(place[name] for name in order)
        pipeline[first : first + len(order)] = [pipeline[place[name]] for name in order]
    return tuple(pipeline)


def is_first_of_equal_orders(pipeline: Pipeline, steps: Sequence[Step]) -> bool:
    """Return whether no earlier permutation has the same order of non-idle steps."""
    idle = {step.name for step, algorithm in pipeline if algorithm.is_idle}
    ran = [step.name for step, _ in pipeline]
    for step in steps:
        if not step.orders:
            continue
        order = tuple(name for name in ran if name in step.orders)
        working = [name for name in order if name not in idle]
        declared = [s.name for s in steps if s.name in step.orders]
        equal = (
            other
            for other in permutations(declared)
            if [name for name in other if name not in idle] == working
        )
        if next(equal) != order:
            return False
    return True


def check_order(space: str, steps: Sequence[Step], position: int) -> None:
    """Raise `ValueError` unless the steps ordered by the one at `position` directly follow it."""
    step = steps[position]
    behind = steps[position + 1 : position + 1 + len(step.orders)]
    names = [s.name for s in behind]
    if sorted(names) != sorted(step.orders):
        raise ValueError(
            f"step {step.name!r} of space {space!r} orders {', '.join(step.orders)}, which "
            f"must stand directly behind it; there are {', '.join(names) or 'none'}"
        )
    unmoved = [s.name for s in behind if s.fixed or s.orders or s is steps[-1]]
    if unmoved:
        raise ValueError(
            f"step {unmoved[0]!r} of space {space!r} cannot change places: it is fixed, "
            "orders others, or is the last step, which predicts"
        )


def with_ignored_idle(
    steps: Sequence[Step], chosen: Sequence[Algorithm], *, settle: bool = False
) -> list[Algorithm]:
    """Return the canonical choice of algorithms, in which ignored steps are idle.

    If `settle`, steps with an `only_ignored` choice that are not ignored get their plainest
    algorithm, which makes another pipeline.
    """
    canonical, ignored = list(chosen), set[str]()
    for k in range(len(steps) - 1, -1, -1):  # an ignored step does not ignore others
        idle = steps[k].idle
        if steps[k].name in ignored and idle is not None:
            canonical[k] = idle
        elif settle and canonical[k].only_ignored:
            canonical[k] = steps[k].plainest
        ignored.update(canonical[k].ignores)
    return canonical


def n_canonical(steps: Sequence[Step]) -> int:
    """Return the number of canonical paths of the searched steps, including forbidden ones."""
    ways = Counter({frozenset[str](): 1})
    for step in reversed(steps):
        longer: Counter[frozenset[str]] = Counter()
        free = [a for a in step.algorithms if not a.only_ignored]
        for ignored, n in ways.items():
            for algorithm in [step.idle] if step.name in ignored else free:
                longer[ignored.union(algorithm.ignores if algorithm else ())] += n
        ways = longer
    return ways.total()


def with_idle_steps(
    steps: Sequence[Step], kept: Mapping[str, Collection[str]]
) -> dict[str, set[str]]:
    """Return the kept algorithms by step, and the idle ones of steps that any of them ignores."""
    closed = {step.name: set(kept[step.name]) for step in steps}
    for step in reversed(steps):
        for algorithm in step.algorithms:
            for name in algorithm.ignores if algorithm.id in closed[step.name] else ():
                idle = next(s.idle for s in steps if s.name == name)
                closed[name] |= {idle.id} if idle else set()
    return closed


def check_ignored(space: str, steps: Sequence[Step]) -> None:
    """Raise `ValueError` unless algorithms ignore only earlier steps that can be idle."""
    for position, step in enumerate(steps):
        before = {s.name: s for s in steps[:position]}
        for algorithm in step.algorithms:
            who = f"algorithm {algorithm.id!r} of step {step.name!r} of space {space!r}"
            if algorithm.only_ignored and not algorithm.is_idle:
                raise ValueError(f"{who} is declared only_ignored but is not idle")
            for name in algorithm.ignores:
                if name not in before:
                    raise UnknownName(f"step before {who}, which ignores", name, before)
                _check_can_idle(before[name], who)


def _check_can_idle(step: Step, who: str) -> None:
    if step.fixed or step.orders:
        does = "always runs" if step.fixed else "orders others"
        raise ValueError(f"{who} ignores step {step.name!r}, which {does}")
    if step.idle is None:
        raise ValueError(
            f"{who} ignores step {step.name!r}, which has no choice that does nothing; add "
            f'Algorithm(id="none") to it'
        )
