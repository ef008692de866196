"""Texts as people may see them: without passwords, and without what would steer what shows them.

Names of columns and studies and messages of failures are other people's. Light to import.
"""

import unicodedata

from prefect_tune.storage.privacy.masking import masked

__all__ = ["shown"]

_STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Categories of characters that are not seen, but do something."""
_HARMLESS = {"\n", "\t", "\N{ZERO WIDTH JOINER}", "\N{ZERO WIDTH NON-JOINER}", "\N{SOFT HYPHEN}"}


def shown(text: str) -> str:
    """Return a text with stars for passwords, and with steering characters spelt out."""
    return "".join(map(_visible, masked(text)))


def _visible(character: str) -> str:
    if character in _HARMLESS or unicodedata.category(character) not in _STEERING:
        return character
    return character.encode("unicode_escape").decode()
