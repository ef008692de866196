"""The exception for unusable input, and the spelling of options in messages.

Messages name options as on the command line, such as `--drop`. For Python callers, options are
rewritten as parameters, such as `drop`. Text in backticks is a command and is not rewritten.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from prefect_tune.optimizers.documents import nearest
from prefect_tune.storage.masking import masked

_SHOWN_COLUMNS = 20
"""Maximum number of columns named in a message."""


_OPTION = re.compile(r"""(?<![\w-])--([a-z][a-z-]*)( (?=['"\d]))?""")
"""An option, and the space before a value in quotes or a number."""
_NEGATIONS = {"no-race": "race=False"}
"""Options that negate a parameter."""
_n_commands = 0
"""Number of command-line commands running in this process."""


class BadInput(ValueError):  # noqa: N818 - reads as a diagnosis
    """The user's input cannot be used, for the given `reason`; `remedy` may be empty.

    The message, with passwords masked, reads `--option value: reason; remedy`.
    """

    def __init__(
        self, reason: str, *, option: str = "", value: Any = None, remedy: str = ""
    ) -> None:
        given = f"--{option}" if value is None else f"--{option} {value}"
        super().__init__(_message(given if option else "", reason, remedy))
        self.reason, self.option, self.value, self.remedy = reason, option, value, remedy

    def with_remedy(self, remedy: str) -> Self:
        """Return a copy of the error with another remedy."""
        return type(self)(self.reason, option=self.option, value=self.value, remedy=remedy)


def _message(given: str, reason: str, remedy: str) -> str:
    return masked((f"{given}: " if given else "") + reason + (f"; {remedy}" if remedy else ""))


def need_column(column: str, columns: Iterable[str], where: str, **given: Any) -> None:
    """Raise `BadInput` unless a column exists; the message suggests the most similar name.

    `given` contains the option that names the column and the option's value, as in `BadInput`.
    """
    known = [str(c) for c in columns]
    if column not in known:
        guess, shown = nearest(column, known), shown_columns(known)
        hint = f" Did you mean {guess!r}?" if guess else ""
        raise BadInput(f"{where} has no column {column!r}.{hint} Its columns: {shown}", **given)


def shown_columns(columns: Iterable[object]) -> str:
    """Return the names of columns for a message; a long list is truncated."""
    names = [str(name) for name in columns]
    n_more = len(names) - _SHOWN_COLUMNS
    shown = ", ".join(names[:_SHOWN_COLUMNS])
    return f"{shown} and {n_more} more" if n_more > 0 else shown


@contextmanager
def command_line() -> Iterator[None]:
    """Keep options spelled as on the command line while the body runs."""
    global _n_commands  # noqa: PLW0603 - threads of the command are to see it
    _n_commands += 1
    try:
        yield
    finally:
        _n_commands -= 1


def for_caller(text: str) -> str:
    """Return a message with options spelled for the caller, the command line or Python.

    >>> for_caller("use --folds 2 or another --test-size, see `prefect-tune run --help`")
    'use folds=2 or another test_size, see `prefect-tune run --help`'
    """
    if _n_commands:
        return text
    parts = text.split("`")
    parts[::2] = [_OPTION.sub(_parameter, part) for part in parts[::2]]
    return "`".join(parts)


def _parameter(found: re.Match[str]) -> str:
    if found[1] in _NEGATIONS:
        return _NEGATIONS[found[1]]
    return found[1].replace("-", "_") + ("=" if found[2] else "")


@contextmanager
def errors_for_caller() -> Iterator[None]:
    """Spell options as the caller does, in `BadInput` errors raised by the body."""
    try:
        yield
    except Exception as error:
        is_ours = type(error).__module__.startswith(__name__.split(".", 1)[0])
        if isinstance(error, BadInput) and error.option and not _n_commands:
            name, value = error.option.replace("-", "_"), error.value
            given = name if value is None else f"{name}={value!r}"
            error.args = (_message(given, for_caller(error.reason), for_caller(error.remedy)),)
        elif is_ours and len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (for_caller(error.args[0]),)
        raise
