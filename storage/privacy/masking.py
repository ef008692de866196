"""Passwords in URLs, which are never shown."""

import re

__all__ = ["has_password", "masked"]

_PASSWORD = re.compile(
    r"(?P<before>\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)(?P<password>[^\s/]+)(?=@)", re.IGNORECASE
)


def masked(text: str) -> str:
    """Return a text in which stars stand for the passwords of all URLs."""
    return _PASSWORD.sub(r"\g<before>***", text)


def has_password(url: str) -> bool:
    """Return whether a URL has a password in it."""
    return _PASSWORD.search(url) is not None
