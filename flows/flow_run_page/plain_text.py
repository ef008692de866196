"""Other people's texts in Prefect's pages, where they must be no markup and load nothing.

Names of columns and algorithms, and messages of failures, may hold anything.
"""

import re

from prefect_tune.flows import markdown
from prefect_tune.flows.text import shown

_MORE = re.compile(r"([()+\-.:/@])")
"""Characters that mean something at the start of a line or in an address."""
_NOTHING = "\N{ZERO WIDTH SPACE}"
_LOOK_ALIKES = str.maketrans({"*": "∗", "`": "'"})
_ACTIVE = re.compile(r"(?<=[<\]&~])|(?<![A-Za-z0-9])(?=_)")
_LINK = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)|(?<=mailto)(?=:)", re.IGNORECASE)


def escaped(text: str) -> str:
    r"""Return a text for a line of markdown, in which addresses are no links.

    >>> escaped("a_b <img src=x>")
    'a\\_b \\<img src=x\\>'
    """
    parts = (markdown.escaped(part) for part in _LINK.split(_line(text)))
    return _NOTHING.join(_MORE.sub(r"\\\1", part) for part in parts)


def cell(text: str) -> str:
    """Return a text for a cell of a table, which one of Prefect's two pages takes for markdown.

    The other one shows escapes as they are, so that here look-alikes and spaces of no width have to
    serve.
    """
    plain = _NOTHING.join(_LINK.split(_ACTIVE.sub(_NOTHING, _line(text).translate(_LOOK_ALIKES))))
    return plain if plain[:1].isalpha() else _NOTHING + plain


def _line(text: str) -> str:
    """Return a text in one line, without passwords and with steering characters spelt out."""
    return shown(" ".join(text.split()))
