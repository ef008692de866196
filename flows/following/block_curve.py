"""A curve drawn in a line of text."""

from collections.abc import Sequence
from itertools import pairwise
from math import log

from prefect_tune.flows.progress import CurvePoint

__all__ = ["block_curve"]

_BLOCKS = "▁▂▃▄▅▆▇█"


def block_curve(points: Sequence[CurvePoint], seconds: float, width: int) -> str:
    """Return what led over time, each character an equal share of it.

    Heights are of logarithms where all losses are above 0: the first incumbents are much worse
    than all others.

    Args:
        points: The incumbents.
        seconds: The time of the study, at which the curve ends.
        width: Characters at most.

    >>> block_curve([CurvePoint(0, 40), CurvePoint(2, 20), CurvePoint(3, 10)], 4, 8)
    '████▄▄▁▁'
    """
    if not points or width < 1:
        return ""
    is_positive = min(point.loss for point in points) > 0
    heights = [log(point.loss) if is_positive else point.loss for point in points]
    low, high = min(heights), max(heights)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    shown = [_BLOCKS[round((h - low) * scale)] for h in heights]
    start = points[0].seconds
    end = max(seconds, points[-1].seconds)
    borders = [*(point.seconds for point in points), end]
    if end <= start:
        return shown[-1]
    columns = [round((at - start) / (end - start) * width) for at in borders]
    drawn = "".join(block * (b - a) for block, (a, b) in zip(shown, pairwise(columns), strict=True))
    # A last incumbent of a moment ago has no column of its own.
    return drawn if columns[-1] > columns[-2] else drawn[:-1] + shown[-1]
