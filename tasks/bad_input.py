"""The one exception for what a user gave and cannot be used."""

from collections.abc import Iterable

from prefect_tune.optimizers.space.naming import nearest

__all__ = ["BadInput", "need_column"]


class BadInput(ValueError):  # noqa: N818 - it says what is the matter
    """Something the user gave cannot be used; the message says what, and what would be right."""


def need_column(column: str, columns: Iterable[str], where: str) -> None:
    """Check that a column exists.

    Raises:
        BadInput: If it does not; names the nearest one that does.
    """
    known = [str(c) for c in columns]
    if column not in known:
        guess = nearest(column, known)
        hint = f" Did you mean {guess!r}?" if guess else ""
        shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
        raise BadInput(f"{where} has no column {column!r}.{hint} Its columns: {shown}.")
