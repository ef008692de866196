"""Digests of Python sources that ignore comments, docstrings and layout."""

import ast
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from prefect_tune.storage.keys import content_digest

_READS_TEXT = re.compile("__doc__|getdoc|getsource")
"""Signs that code reads docstrings or sources, which can then affect the code's results."""


def code_digest(tag: str, texts: Iterable[str]) -> str:
    """Return a digest of Python sources that ignores comments, docstrings and layout.

    A source is hashed unchanged if Python cannot parse the source, or if the code reads docstrings
    or source texts.
    """

    def meaning(text: str) -> str:
        if _READS_TEXT.search(text):
            return text
        try:
            return " ".join(_tokens(parsed(text)))
        except (SyntaxError, ValueError, RecursionError):
            return text

    return content_digest(tag, (meaning(text).encode() for text in texts))


def parsed(text: str) -> ast.Module:
    """Return the syntax tree of a Python source, retrying after SystemError.

    Before Python 3.11.8, parsing in two threads at once may raise SystemError (gh-106905).
    """
    for _ in range(20):
        with suppress(SystemError):
            return ast.parse(text)
    return ast.parse(text)


def _tokens(tree: ast.AST) -> Iterator[str]:
    """Yield the tokens of a syntax tree, without positions, empty fields and no-op statements.

    Unlike `ast.dump`, this function is not recursive and yields the same tokens in all versions of
    Python.
    """
    waiting: list[object] = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.AST):
            waiting.append(_Mark(")"))
            for name, value in reversed([*ast.iter_fields(part)]):
                if value is not None and value != []:
                    waiting += (value, _Mark(f"{name}="))
            yield f"{type(part).__name__}("
        elif isinstance(part, list):
            for item in reversed(part):
                if not _does_nothing(item):
                    waiting += (_Mark(","), item)
        else:
            yield part if isinstance(part, _Mark) else ascii(part)


class _Mark(str):
    """A separator between parts of a tree, distinct from the strings in the tree."""

    __slots__ = ()


def _does_nothing(part: object) -> bool:
    value = part.value if isinstance(part, ast.Expr) else None
    is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
    return is_text or isinstance(part, ast.Pass)
