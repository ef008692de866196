"""Masking of passwords in URLs and printed bytes. Imports only the standard library."""

import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

_WORD = re.compile(r"""[^\s"']+""")
# `x://a:1/b@c` may have a port or a password; digits before a slash count as a port.
_USER = re.compile(r"(://[^:/@]*:)(?!\d{1,5}[/?#]).+")
_TOKEN = re.compile(r"""(\bhttps?://)[^\s:/@?#"']+(?=@)""", re.IGNORECASE)
_QUERY = re.compile(
    r"""((?:(?:[?&;]|%26)(?:[a-z0-9_.-]*[_.-])?"""
    r"""(?:password|passwd|pwd|passphrase|sslpassword|secret|secret_?access_?key|token|sas|sig"""
    r"""|signature|credential|account_?key|api_?key|access_?key)"""
    r"""|(?<![\w.-])(?:ssl)?password)=)([^\s&;"'#]+)""",
    re.IGNORECASE,
)
_UNFINISHED = re.compile(r"(://[^\s:/@]*:)(?!\d{1,5}$)[^\s@/]+$")
"""End of a URL that was cut within its password."""
_SHORTEST = 4
"""Minimum length of a password masked outside URLs."""


def masked(text: str) -> str:
    """Return a text in which passwords of URLs and query parameters are replaced by stars."""
    if "://" in text:
        text = _TOKEN.sub(r"\1***", _WORD.sub(_without_password, text))
    return _QUERY.sub(r"\1***", text)


def _without_password(word: re.Match[str]) -> str:
    before, at, host = word[0].rpartition("@")
    return _USER.sub(r"\1***", before, count=1) + at + host


def masked_output(data: bytes, secrets: Sequence[str] = ()) -> bytes:
    """Return printed bytes, which may end within a URL, with passwords and `secrets` masked."""
    for secret in secrets:
        data = data.replace(secret.encode(), b"***")
    # Invalid UTF-8 passes through unchanged.
    text = masked(data.decode(errors="surrogateescape"))
    return _UNFINISHED.sub(r"\1***", text).encode(errors="surrogateescape")


def passwords_in(url: str) -> Iterator[str]:
    """Yield the passwords of a URL, as written and decoded, so that other texts can be masked.

    Passwords of fewer than four characters are skipped, because they may be parts of words.
    """
    for password in (*(found[2] for found in _QUERY.finditer(url)), _user_password(url)):
        for text in dict.fromkeys((password, unquote(password))):
            if len(text) >= _SHORTEST:
                yield text


def masked_values(document: Any) -> Any:
    """Return a JSON document in which passwords are masked in all strings."""
    if isinstance(document, str):
        return masked(document)
    if isinstance(document, dict):
        return {name: masked_values(value) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [masked_values(value) for value in document]
    return document


def has_password(url: str) -> bool:
    """Return whether a URL has a password before its host or in a query parameter.

    In http and https URLs, any user information counts as a password, even without a colon.
    """
    return masked(url) != url or bool(_user_password(url))


def _user_password(url: str) -> str:
    try:
        return urlsplit(url).password or ""
    except ValueError:  # unbalanced brackets
        return ""


_SIGNED: dict[str, str] = {}
"""Signed web addresses, by masked address."""


def without_signature(text: str) -> str:
    """Return a web address with its signature masked, and remember the signature.

    Texts other than web addresses, and addresses with a password before the host, are returned
    unchanged.
    """
    if not text.startswith(("http://", "https://")) or has_password(text.partition("?")[0]):
        return text
    if has_password(text):
        _SIGNED[masked(text)] = text
    return masked(text)


def with_signature(text: str) -> str:
    """Return a web address with the signature that `without_signature` masked in this process.

    Texts without a masked signature are returned unchanged.
    """
    return _SIGNED.get(text, text)
