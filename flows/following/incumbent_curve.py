"""The losses of the incumbents of a study over time, however many there were."""

from typing import NamedTuple

__all__ = ["CurvePoint", "IncumbentCurve"]

_MOST_POINTS = 200


class CurvePoint(NamedTuple):
    """A new incumbent.

    Attributes:
        seconds: When it came, by the time of the study.
        loss: Its loss.
    """

    seconds: float
    loss: float


class IncumbentCurve:
    """Incumbents so far; of very many incumbents, every other one between first and last."""

    def __init__(self) -> None:
        self._points: list[tuple[str, CurvePoint]] = []

    def add(self, seconds: float, loss: float, fidelity: str = "") -> None:
        """Note what leads now; nothing changes where that is as good as what led before.

        Args:
            seconds: The time of the study.
            loss: Loss of the incumbent.
            fidelity: How much of the whole evaluation that is the loss of, for people.
        """
        if self._points and (fidelity, loss) == (self._points[-1][0], self._points[-1][1].loss):
            return
        self._points.append((fidelity, CurvePoint(seconds, loss)))
        if len(self._points) > _MOST_POINTS:
            del self._points[1:-1:2]

    @property
    def points(self) -> tuple[CurvePoint, ...]:
        """The incumbents that can be compared with the last one: losses of as much as its."""
        last = self._points[-1][0] if self._points else ""
        return tuple(point for fidelity, point in self._points if fidelity == last)
