"""Machine and goals of a benchmark."""

import os
import platform
import sys
from collections.abc import Callable
from time import perf_counter

import psutil

__all__ = ["Goals", "describe", "seconds_of"]


class Goals:
    """The goals of a benchmark; a missed goal gives exit code 1."""

    def __init__(self) -> None:
        self._missed: list[str] = []

    def at_most(self, what: str, value: float, goal: float) -> None:
        """Check an upper bound, and remember a missed goal."""
        self._check(what, value, f"at most {goal:g}", is_reached=value <= goal)

    def at_least(self, what: str, value: float, goal: float) -> None:
        """Check a lower bound, and remember a missed goal."""
        self._check(what, value, f"at least {goal:g}", is_reached=value >= goal)

    def end(self) -> None:
        """Print the machine again, and exit with 1 if a goal was missed."""
        print(describe())
        if self._missed:
            sys.exit("missed: " + "; ".join(self._missed))

    def _check(self, what: str, value: float, goal: str, *, is_reached: bool) -> None:
        print(f"{what}: {value:.3g} ({goal}: {'reached' if is_reached else 'MISSED'})")
        if not is_reached:
            self._missed.append(what)


def describe() -> str:
    """Return cores and load, to print next to every figure."""
    load = ", ".join(f"{x:.2f}" for x in os.getloadavg())
    return f"{psutil.cpu_count()} cores, Python {platform.python_version()}, load {load}"


def seconds_of(act: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    started = perf_counter()
    act()
    return perf_counter() - started
