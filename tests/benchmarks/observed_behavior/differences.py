"""Differences between two observations by path, and the expected differences."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

__all__ = ["Difference", "Verdict", "differences", "verdict"]

_ABSENT = "(absent)"
_LONGEST = 90


@dataclass(frozen=True)
class Difference:
    """A place where two observations differ.

    Attributes:
        path: Keys and positions, joined by `/`.
        text: Both values, shortened.
    """

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass(frozen=True)
class Verdict:
    """The result of comparing one part of two observations.

    Attributes:
        unexpected: Differences that no pattern allows.
        expected: Number of differences that each pattern allows.
    """

    unexpected: Sequence[Difference]
    expected: Mapping[str, int]

    def lines(self, most: int) -> Iterator[str]:
        """Yield the verdict, then the first difference at each of the first differing paths."""
        n_expected = sum(self.expected.values())
        first: dict[str, Difference] = {}
        for difference in self.unexpected:
            first.setdefault("/".join(difference.path.split("/")[:3]), difference)
        found = f"{len(first)} places with {len(self.unexpected)} DIFFERENCES" if first else "equal"
        yield f"{found} ({n_expected} expected differences)"
        yield from (f"  {difference}" for difference in list(first.values())[:most])


def verdict(
    part: str, old: Any, new: Any, *, allowed: Collection[str] = (), ignored: Collection[str] = ()
) -> Verdict:
    """Compare two observations of a part.

    Args:
        part: Name of the part, with which all paths begin.
        old: Observation of the old code, as JSON values.
        new: Observation of the new code.
        allowed: Shell patterns of paths that may differ; `*` matches `/` too.
        ignored: Keys that are not compared, at any depth.
    """
    unexpected, expected = [], Counter[str]()
    for difference in differences(old, new, part, ignored):
        by = [p for p in allowed if fnmatchcase(difference.path, p)]
        expected.update(by[:1])
        unexpected += [] if by else [difference]
    return Verdict(unexpected, expected)


def differences(
    old: Any, new: Any, path: str, ignored: Collection[str] = ()
) -> Iterator[Difference]:
    """Yield all differences of two JSON values at a path, comparing numbers to the last bit.

    An exception is a difference even if both sides raised the exception, because nothing was
    observed.
    """
    if isinstance(old, list) and isinstance(new, list):
        old, new = dict(enumerate(old)), dict(enumerate(new))
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*old, *new]):
            if key not in ignored:
                pair = old.get(key, _ABSENT), new.get(key, _ABSENT)
                yield from differences(*pair, f"{path}/{key}", ignored)
    elif repr(old) != repr(new) or path.endswith("/raised"):
        yield Difference(path, f"{_short(old)} -> {_short(new)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
