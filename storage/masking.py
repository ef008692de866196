"""Masking of passwords in URLs and printed bytes, with the standard library alone."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

# Each pattern looks at a character a few times at most, for words of any length.
_WORD = re.compile(r"""[^\s"']+""")
_RUN = re.compile(r"[a-z0-9+.-]+(?P<is_scheme>://)?", re.IGNORECASE)
_SCHEME = re.compile(r"\b[a-z]", re.IGNORECASE)
# `x://a:1/b@c` may have a port or a password; digits before a slash count as a port.
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
"""Substrings that every match of `_QUERY` contains; testing them first is 100 times faster."""
_SHORTEST = 4
"""Minimum length of a password masked outside URLs."""


def masked(text: str) -> str:
    """Return a text with the passwords of all URLs replaced by stars."""
    if "://" in text:
        text = _TOKEN.sub(r"\g<before>***", _WORD.sub(_without_password, text))
    folded = text.casefold()
    if any(hint in folded for hint in _QUERY_HINTS):
        text = _QUERY.sub(lambda found: f"{found['before'] or found['also_before']}***", text)
    return text


def passwords_in(url: str) -> Iterator[str]:
    """Yield the passwords of a URL as written and decoded, for masking outside URLs.

    Passwords of fewer than four characters are skipped, because ordinary words would be masked.
    """
    found = [match["password"] or match["also_password"] for match in _QUERY.finditer(url)]
    with suppress(ValueError):  # unbalanced brackets
        found.append(urlsplit(url).password or "")
    for password in found:
        for text in dict.fromkeys((password, unquote(password))):
            if len(text) >= _SHORTEST:
                yield text


def masked_values(document: Any) -> Any:
    """Return a JSON document with all texts `masked`."""
    if isinstance(document, str):
        return masked(document)
    if isinstance(document, dict):
        return {name: masked_values(value) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [masked_values(value) for value in document]
    return document


def has_password(url: str) -> bool:
    """Return whether a URL has a password before its host or among its parameters.

    Stars are no password. For web servers, any user information counts, even without a colon.
    """
    url = url.replace("=***", "=")
    if any(_password_start(word[0]) is not None for word in _WORD.finditer(url)):
        return True
    if _QUERY.search(url) is not None:
        return True
    try:
        parts = urlsplit(url)
    except ValueError:  # unbalanced brackets
        return False
    return bool(parts.password) or (parts.scheme in ("http", "https") and bool(parts.username))


_SIGNED: dict[str, str] = {}
"""Web addresses with their signatures, by masked address."""


def without_signature(text: str) -> str:
    """Return a web address with its signature masked; this process can still read the address."""
    if not text.startswith(("http://", "https://")) or has_password(text.partition("?")[0]):
        return text
    if has_password(text):
        _SIGNED[masked(text)] = text
    return masked(text)


def with_signature(text: str) -> str:
    """Return the web address whose signature was masked in this process, or the same text."""
    return _SIGNED.get(text, text)


def _without_password(word: re.Match[str]) -> str:
    text, start = word[0], _password_start(word[0])
    return text if start is None else f"{text[:start]}***{text[text.rindex('@') :]}"


def _password_start(word: str) -> int | None:
    end = word.rfind("@")
    for run in _RUN.finditer(word, 0, max(end, 0)):
        if run["is_scheme"] and _SCHEME.search(word, run.start(), run.end()):
            user = _USER.match(word, run.end())
            if user is not None and user.end() < end:
                return user.end()
    return None


_LONGEST_WORD = 64 * 1024
"""Most bytes of a word that are withheld, because a password may follow."""
_LONGEST_URL = 4 * 1024
"""Bytes at the end of a longer word that stay withheld."""
_UNFINISHED = re.compile(r"(://[^\s:/@]*:)(?!\d{1,5}$)[^\s@/]+$")
"""End of a URL cut inside its password."""


class MaskedStream:
    """Masks URLs' passwords and `secrets` in a stream, withholding the last word until a space."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self._secrets = [secret.encode() for secret in secrets]
        self._withheld = b""

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes; return the bytes that can be shown."""
        data = self._withheld + data
        end = max(map(data.rfind, (b"\n", b"\r", b" ", b"\t"))) + 1  # after the last white space
        if not end and len(data) > _LONGEST_WORD:
            end = len(data) - _LONGEST_URL
        self._withheld = data[end:]
        return self._masked(data[:end])

    def finish(self) -> bytes:
        """Return the last word; the stream may then start again."""
        data, self._withheld = self._withheld, b""
        text = self._masked(data).decode(errors="surrogateescape")
        return _UNFINISHED.sub(r"\1***", text).encode(errors="surrogateescape")

    def _masked(self, data: bytes) -> bytes:
        for secret in self._secrets:
            data = data.replace(secret, b"***")
        # Invalid UTF-8 passes through unchanged.
        text = data.decode(errors="surrogateescape")
        return masked(text).encode(errors="surrogateescape")
