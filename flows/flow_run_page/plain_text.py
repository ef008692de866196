"""Escapes text of users and trials for Prefect's pages: markup and addresses have no effect."""

import re

from prefect_tune.flows import markdown
from prefect_tune.flows.text import shown

_MORE = re.compile(r"([()+\-.:/@])")
"""Characters with a meaning at the start of a line or in an address."""
_NOTHING = "\N{ZERO WIDTH SPACE}"
_LOOK_ALIKES = str.maketrans({"*": "∗", "`": "'"})
_ACTIVE = re.compile(r"(?<=[<\]&~])|(?<![A-Za-z0-9])(?=_)")
_LINK = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)|(?<=mailto)(?=:)", re.IGNORECASE)


def escaped(text: str) -> str:
    r"""Return a text for a line of Markdown; addresses do not become links.

    >>> escaped("a_b <img src=x>")
    'a\\_b \\<img src=x\\>'
    """
    parts = (markdown.escaped(part) for part in _LINK.split(_line(text)))
    return _NOTHING.join(_MORE.sub(r"\\\1", part) for part in parts)


def cell(text: str) -> str:
    """Return a text for a table cell, which only one of Prefect's two UIs renders as Markdown.

    The other UI shows escapes literally, so look-alikes and zero-width spaces are used instead.
    """
    plain = _NOTHING.join(_LINK.split(_ACTIVE.sub(_NOTHING, _line(text).translate(_LOOK_ALIKES))))
    return plain if plain[:1].isalpha() else _NOTHING + plain


def _line(text: str) -> str:
    """Return a text in one line, without passwords and with control characters spelt out."""
    return shown(" ".join(text.split()))
