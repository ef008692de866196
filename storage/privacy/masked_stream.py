"""Passwords in a stream of printed bytes, which may arrive in any pieces.

Imports the standard library and `masking` alone: the process that writes what trials print needs
no more.
"""

import re
from collections.abc import Sequence

from prefect_tune.storage.privacy.masking import masked

__all__ = ["MaskedStream"]

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
        end = _last_space(data)
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


def _last_space(data: bytes) -> int:
    """Return the position after the last white space; 0 if there is none."""
    return max(data.rfind(space) for space in (b"\n", b"\r", b" ", b"\t")) + 1
