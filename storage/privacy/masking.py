"""Passwords in URLs, which are never shown."""

import re
from typing import Any
from urllib.parse import urlsplit

__all__ = ["has_password", "masked", "masked_values"]

# Whether `x://a:1/b@c` has a port or a password nobody can tell; digits and a slash are a port.
_USER = re.compile(
    r"""(?P<before>\b[a-z][a-z0-9+.-]*://[^\s:/@"']*:)(?!\d{1,5}[/?#])(?P<password>[^\s"']+)(?=@)""",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"""(?P<before>\bhttps?://)[^\s:/@?#"']+(?=@)""", re.IGNORECASE)
_QUERY = re.compile(
    r"""(?P<before>(?:[?&;]|%26)(?:[a-z0-9_.-]*[_.-])?"""
    r"""(?:password|passwd|pwd|passphrase|sslpassword|secret|secret_?access_?key|token|sas|sig"""
    r"""|signature|credential|account_?key|api_?key|access_?key)=)(?P<password>[^\s&;"'#]+)"""
    r"""|(?P<also_before>(?<![\w.-])(?:ssl)?password=)(?P<also_password>[^\s&;"'#]+)""",
    re.IGNORECASE,
)


def masked(text: str) -> str:
    """Return a text in which stars stand for the passwords of all URLs."""
    text = _TOKEN.sub(r"\g<before>***", _USER.sub(r"\g<before>***", text))
    return _QUERY.sub(lambda found: f"{found['before'] or found['also_before']}***", text)


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
    if _USER.search(url) is not None or _QUERY.search(url) is not None:
        return True
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets without an address
        return False
    return bool(parts.password) or (parts.scheme in ("http", "https") and bool(parts.username))
