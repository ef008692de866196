"""Differences of two observations, by path, and those that are expected."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import isnan
from typing import Any

__all__ = ["Difference", "Verdict", "differences", "verdict"]

_ABSENT = object()
_LONGEST = 90


@dataclass(frozen=True)
class Difference:
    """A place where two observations differ.

    Attributes:
        path: Keys and positions, joined by `/`.
        text: Both values, in short.
    """

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass(frozen=True)
class Verdict:
    """The outcome of comparing one part.

    Attributes:
        unexpected: Differences that no pattern allows.
        expected: How many differences each pattern allows.
    """

    unexpected: Sequence[Difference]
    expected: Mapping[str, int]

    def lines(self, most: int) -> Iterator[str]:
        """Yield the verdict, then the first difference of each place.

        Args:
            most: Most differences to show.
        """
        n_expected = sum(self.expected.values())
        but = f", {n_expected} expected" if n_expected else ""
        if not self.unexpected:
            yield f"equal but for {n_expected} expected differences" if n_expected else "equal"
            return
        first: dict[str, Difference] = {}
        for difference in self.unexpected:
            first.setdefault("/".join(difference.path.split("/")[:3]), difference)
        yield f"{len(self.unexpected)} DIFFERENCES in {len(first)} places{but}"
        for difference in list(first.values())[:most]:
            yield f"  {difference}"
        if len(first) > most:
            yield f"  ... and {len(first) - most} more places"


def verdict(
    part: str, old: Any, new: Any, *, allowed: Collection[str] = (), ignored: Collection[str] = ()
) -> Verdict:
    """Compare two observations of a part.

    Args:
        part: Name of the part, with which all paths begin.
        old: What the old code did, as JSON values.
        new: What the new code did.
        allowed: Patterns of paths that may differ, as of a shell; `*` matches `/` too.
        ignored: Keys that are not compared, at any depth.
    """
    unexpected, expected = [], dict[str, int]()
    for difference in differences(old, new, part, ignored):
        by = next((p for p in allowed if fnmatchcase(difference.path, p)), None)
        if by is None:
            unexpected.append(difference)
        else:
            expected[by] = expected.get(by, 0) + 1
    return Verdict(unexpected, expected)


def differences(
    old: Any, new: Any, path: str, ignored: Collection[str] = ()
) -> Iterator[Difference]:
    """Yield all differences of two JSON values, numbers to the last bit.

    What raised an exception is a difference even where both sides did: it observed nothing.

    Args:
        old: One value.
        new: The other one.
        path: Path of the values.
        ignored: Keys that are not compared, at any depth.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*old, *new]):
            if key not in ignored:
                here = f"{path}/{key}"
                if key == "raised" and key in old and key in new:
                    yield Difference(here, f"both sides raised {_short(new[key])}")
                    continue
                yield from differences(old.get(key, _ABSENT), new.get(key, _ABSENT), here, ignored)
    elif isinstance(old, list) and isinstance(new, list):
        for i in range(max(len(old), len(new))):
            mine = old[i] if i < len(old) else _ABSENT
            theirs = new[i] if i < len(new) else _ABSENT
            yield from differences(mine, theirs, f"{path}/{i}", ignored)
    elif not _same(old, new):
        if new is _ABSENT:
            yield Difference(path, f"only in the old code, {_short(old)}")
        elif old is _ABSENT:
            yield Difference(path, f"only in the new code, {_short(new)}")
        else:
            yield Difference(path, f"{_short(old)} -> {_short(new)}")


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, bool) or isinstance(new, bool):
        return old is new
    is_nan = isinstance(old, float) and isinstance(new, float) and isnan(old) and isnan(new)
    return is_nan or old == new


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
