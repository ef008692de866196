"""Markdown and code blocks of untrusted text."""

import re
from collections.abc import Iterable

from prefect_tune.flows.wording.text import printable

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$&!])")
"""Characters with a meaning in Markdown or embedded HTML."""


def escaped(text: object) -> str:
    r"""Return a text on one line that Markdown shows literally.

    >>> escaped("a|b <i>"), escaped("total_cost")
    ('a\\|b \\<i\\>', 'total\\_cost')
    """
    return _SPECIAL.sub(r"\\\1", " ".join(printable(str(text)).split()))


def code(text: object) -> str:
    r"""Return a text as inline code, or escaped if it contains a backtick or a bar.

    >>> code("C=0.5"), code("a|b")
    ('`C=0.5`', 'a\\|b')
    """
    line = " ".join(printable(str(text)).split())
    return escaped(line) if not line or "`" in line or "|" in line else f"`{line}`"


def block(lines: Iterable[str], language: str) -> list[str]:
    """Return lines as a code block whose fence is longer than any backticks in them.

    >>> block(["ls"], "sh")
    ['```sh', 'ls', '```']
    """
    each_on_one = [" ".join(printable(line).splitlines()) for line in lines]
    longest = max(map(len, re.findall("`+", "\n".join(each_on_one))), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *each_on_one, fence]
