"""Unknown names, answered with the nearest known one."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["UnknownName", "nearest"]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that looks most like `name`; None when none is near.

    >>> nearest("standardise", ["standardize", "minmax"])
    'standardize'
    """
    lowered = {k.lower(): k for k in known}
    found = get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    return lowered[found[0]] if found else None


class UnknownName(ValueError):  # noqa: N818 - it says what is the matter, as KeyError does
    """A name that nothing bears; the message names the nearest and all that are known.

    Args:
        kind: What is named, for instance "method".
        name: The name as given.
        known: The names that would have been right.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, tuple(known)
        guess = nearest(name, self.known)
        hint = f" Did you mean {guess!r}?" if guess else ""
        shown = ", ".join(self.known[:30]) or "none"
        more = f" and {len(self.known) - 30} more" if len(self.known) > 30 else ""
        super().__init__(f"unknown {kind} {name!r}.{hint} Known: {shown}{more}.")
