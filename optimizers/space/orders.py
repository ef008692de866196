"""Orders: steps that choose in which order the ones behind them run.

Of orders that differ only in where steps do nothing, the first one stands for all.
"""

from collections.abc import Sequence
from itertools import permutations

from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.step import Step

__all__ = ["check_order", "in_chosen_order", "is_first_of_equal_orders", "order_step"]

_MOST_ORDERED = 4
"""Steps that may change places with each other: 24 orders."""

Pipeline = tuple[tuple[Step, Algorithm], ...]
"""Steps with the algorithm chosen of each."""


def order_step(*steps: str, name: str = "order") -> Step:
    """Make a step that chooses the order of others (o_ik of Liu, Ram et al. 2020, appendix 6).

    It stands directly in front of them in a space. Its algorithms are the permutations. Of orders
    that differ only in where steps do nothing, one can run.

    Args:
        steps: Names of two to four steps in their default order, in which they stand in the space.
        name: What the step itself is called.

    Raises:
        ValueError: If they are fewer, more, or one is named twice.
    """
    if not 2 <= len(steps) <= _MOST_ORDERED or len(set(steps)) < len(steps):
        raise ValueError(
            f"step {name!r} orders 2 to {_MOST_ORDERED} different steps; got {', '.join(steps)}"
        )
    ids = {order: "_before_".join(order).replace(" ", "_") for order in permutations(steps)}
    return Step(name, tuple(Algorithm(id=i, order=order) for order, i in ids.items()))


def in_chosen_order(pairs: Sequence[tuple[Step, Algorithm]]) -> Pipeline:
    """Return the steps as they run, those of `order_step` left out.

    Args:
        pairs: All steps of a space in the order declared, and the algorithm chosen of each.
    """
    pipeline = [pair for pair in pairs if not pair[1].order]
    place = {step.name: i for i, (step, _) in enumerate(pipeline)}
    for order in (algorithm.order for _, algorithm in pairs if algorithm.order):
        first = min(place[name] for name in order)
        pipeline[first : first + len(order)] = [pipeline[place[name]] for name in order]
    return tuple(pipeline)


def is_first_of_equal_orders(pipeline: Pipeline, steps: Sequence[Step]) -> bool:
    """Return whether no earlier permutation has the steps that do something in the same order.

    Args:
        pipeline: As it runs.
        steps: All steps of the space in the order declared.
    """
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
    """Raise unless the steps that the one there orders stand directly behind it.

    Args:
        space: Name of the space.
        steps: All its steps in the order declared.
        position: Of the step to check.

    Raises:
        ValueError: If they do not, or one of them cannot change places.
    """
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
