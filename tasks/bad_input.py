"""The exception for input that cannot be used."""

from collections.abc import Iterable
from typing import Any, Self

from prefect_tune.optimizers.space.wording import nearest
from prefect_tune.storage.masking import masked

_SHOWN_COLUMNS = 10
"""Most columns named at each end of a long list."""


class BadInput(ValueError):  # noqa: N818 - reads as a diagnosis
    """The user's input cannot be used: `reason`, and `remedy` if there is one.

    The message, with passwords masked, reads `--option value: reason; remedy`.
    """

    def __init__(
        self, reason: str, *, option: str = "", value: Any = None, remedy: str = ""
    ) -> None:
        given = f"--{option}" if value is None else f"--{option} {value}"
        text = (f"{given}: " if option else "") + reason + (f"; {remedy}" * bool(remedy))
        super().__init__(masked(text))
        self.reason, self.option, self.value, self.remedy = reason, option, value, remedy

    def with_remedy(self, remedy: str) -> Self:
        """Return the same error with another remedy."""
        return type(self)(self.reason, option=self.option, value=self.value, remedy=remedy)


def need_column(column: str, columns: Iterable[str], where: str) -> None:
    """Raise BadInput, with the nearest existing name, unless a column exists."""
    known = [str(c) for c in columns]
    if column not in known:
        guess = nearest(column, known)
        hint = f" Did you mean {guess!r}?" if guess else ""
        shown = shown_columns(known)
        raise BadInput(f"{where} has no column {column!r}.{hint} Its columns: {shown}")


def shown_columns(columns: Iterable[object]) -> str:
    """Return the names of columns for a message; a long list has only its first and last names."""
    names = [str(name) for name in columns]
    n_left_out = len(names) - 2 * _SHOWN_COLUMNS
    if n_left_out <= 1:  # the note about one missing name is as long as the name
        return ", ".join(names)
    first, last = ", ".join(names[:_SHOWN_COLUMNS]), ", ".join(names[-_SHOWN_COLUMNS:])
    return f"{first}, ... ({n_left_out} more) ..., {last}"
