"""Passwords in URLs and in streams of printed bytes are masked, never shown.

Imports the standard library alone: the process that writes what trials print needs no more.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

# Each looks at a character of a token a few times at most, however long that is.
_WORD = re.compile(r"""[^\s"']+""")
_RUN = re.compile(r"[a-z0-9+.-]+(?P<is_scheme>://)?", re.IGNORECASE)
_SCHEME = re.compile(r"\b[a-z]", re.IGNORECASE)
# Whether `x://a:1/b@c` has a port or a password nobody can tell; digits and a slash are a port.
_USER = re.compile(r"[^:/@]*:(?!\d{1,5}[/?#])")
_TOKEN = re.compile(r"""(?P<before>\bhttps?://)[^\s:/@?#"']+(?=@)""", re.IGNORECASE)
_QUERY = re.compile(
    r"""(?P<before>(?:[?&;]|%26)(?:[a-z0-9_.-]*[_.-])?"""
    r"""(?:password|passwd|pwd|passphrase|sslpassword|secret|secret_?access_?key|token|sas|sig"""
    r"""|signature|credential|account_?key|api_?key|access_?key)=)(?P<password>[^\s&;"'#]+)"""
    r"""|(?P<also_before>(?<![\w.-])(?:ssl)?password=)(?P<also_password>[^\s&;"'#]+)""",
    re.IGNORECASE,
)
_QUERY_HINTS = ("pass", "pwd", "secret", "token", "sas=", "sig", "credential", "key=")
"""Substrings without which `_QUERY` finds nothing; looking for them is a hundred times faster."""
_SHORTEST = 4
"""Length of the shortest password that is looked for outside URLs."""


def masked(text: str) -> str:
    """Return a text in which stars stand for the passwords of all URLs."""
    if "://" in text:
        text = _TOKEN.sub(r"\g<before>***", _WORD.sub(_without_password, text))
    folded = text.casefold()
    if any(hint in folded for hint in _QUERY_HINTS):
        text = _QUERY.sub(lambda found: f"{found['before'] or found['also_before']}***", text)
    return text


def passwords_in(url: str) -> Iterator[str]:
    """Yield the passwords of a URL as written and decoded, for masking outside URLs.

    Passwords of fewer than four characters are left out: ordinary words would be masked too.
    """
    found = [match["password"] or match["also_password"] for match in _QUERY.finditer(url)]
    with suppress(ValueError):  # brackets without an address
        found.append(urlsplit(url).password or "")
    for password in found:
        for text in dict.fromkeys((password, unquote(password))):
            if len(text) >= _SHORTEST:
                yield text


def masked_values(document: Any) -> Any:
    """Return a JSON document whose texts are `masked`."""
    if isinstance(document, str):
        return masked(document)
    if isinstance(document, dict):
        return {name: masked_values(value) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [masked_values(value) for value in document]
    return document


def has_password(url: str) -> bool:
    """Return whether a URL has a password in it, before the host or among its parameters.

    What a web server takes before its host is one, also without a colon.
    """
    if any(_password_start(word[0]) is not None for word in _WORD.finditer(url)):
        return True
    if _QUERY.search(url) is not None:
        return True
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets without an address
        return False
    return bool(parts.password) or (parts.scheme in ("http", "https") and bool(parts.username))


def _without_password(word: re.Match[str]) -> str:
    """Return a word in which stars stand for what is between a user's name and the last `@`."""
    text, start = word[0], _password_start(word[0])
    return text if start is None else f"{text[:start]}***{text[text.rindex('@') :]}"


def _password_start(word: str) -> int | None:
    """Return where the password of the first URL in a word begins that has one before its host."""
    end = word.rfind("@")
    for run in _RUN.finditer(word, 0, max(end, 0)):
        if run["is_scheme"] and _SCHEME.search(word, run.start(), run.end()):
            user = _USER.match(word, run.end())
            if user is not None and user.end() < end:
                return user.end()
    return None


_LONGEST_WORD = 64 * 1024
"""Bytes without a space that are withheld at most, since a password may still follow."""
_LONGEST_URL = 4 * 1024
"""Bytes of such a word that stay withheld when the others are released."""
_UNFINISHED = re.compile(r"(://[^\s:/@]*:)(?!\d{1,5}$)[^\s@/]+$")
"""The end of a URL that was cut inside its password."""


class MaskedStream:
    """Masks the passwords of a stream; the last word is withheld until the next space.

    Args:
        secrets: Passwords that are masked wherever they occur.
    """

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self._secrets = [secret.encode() for secret in secrets]
        self._withheld = b""

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes and return those that can be shown."""
        data = self._withheld + data
        end = max(map(data.rfind, (b"\n", b"\r", b" ", b"\t"))) + 1  # after the last white space
        if not end and len(data) > _LONGEST_WORD:
            end = len(data) - _LONGEST_URL
        self._withheld = data[end:]
        return self._masked(data[:end])

    def finish(self) -> bytes:
        """Return the last word, after which the stream may start again."""
        data, self._withheld = self._withheld, b""
        text = self._masked(data).decode(errors="surrogateescape")
        return _UNFINISHED.sub(r"\1***", text).encode(errors="surrogateescape")

    def _masked(self, data: bytes) -> bytes:
        for secret in self._secrets:
            data = data.replace(secret, b"***")
        # Invalid UTF-8 passes through unchanged.
        text = data.decode(errors="surrogateescape")
        return masked(text).encode(errors="surrogateescape")
