"""Durations, sizes, counts and other people's text, as people read them.

Names of columns and studies and messages of failures come from others: passwords in them are
masked, and characters that control a terminal escaped. Light to import.
"""

import re
import unicodedata

from prefect_tune.storage.privacy.masking import masked
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.objective.declaration import METRICS

DURATION_PATTERN = r"\s*(\d+(\.\d+)?\s*[smhd]\s*)+"
SIZE_PATTERN = r"\s*(\d+(?:\.\d+)?)\s*([KMGTkmgt]?[Bb])\s*"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def counted(n: int, noun: str) -> str:
    """Return a number of things as text.

    >>> counted(1, "path"), counted(2912, "path")
    ('1 path', '2,912 paths')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def parse_seconds(text: str, option: str) -> float:
    """Parse a duration such as `90s`, `30m`, `1h30m` or `2d`; return seconds.

    Raises:
        BadInput: If it is not one; names the option.
    """
    if re.fullmatch(DURATION_PATTERN, text) is None:
        raise BadInput(
            f"--{option} {text}: a duration is a number with its unit (s, m, h or d), "
            "for instance 30m or 1h30m"
        )
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([smhd])", text)
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if seconds <= 0:
        raise BadInput(f"--{option} {text}: a duration must be longer than nothing")
    return seconds


def parse_bytes(text: str, option: str) -> int:
    """Parse a size such as `500MB` or `10GB`; return bytes.

    Raises:
        BadInput: If it is not one; names the option.
    """
    match = re.fullmatch(SIZE_PATTERN, text)
    if match is None:
        raise BadInput(
            f"--{option} {text}: a size is a number with its unit (B, KB, MB, GB or TB), "
            "for instance 500MB or 10GB"
        )
    return round(float(match[1]) * _BYTES[match[2].upper()])


def format_seconds(seconds: float) -> str:
    """Return a duration as text, in at most two units.

    >>> format_seconds(5400), format_seconds(75), format_seconds(0.25)
    ('1h30m', '1m15s', '0.2s')
    """
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def format_bytes(size_bytes: float) -> str:
    """Return a size as text, with its unit.

    >>> format_bytes(1_536_000), format_bytes(12)
    ('1.5MB', '12B')
    """
    for unit in ("TB", "GB", "MB", "KB"):
        if size_bytes >= _BYTES[unit]:
            return f"{size_bytes / _BYTES[unit]:.1f}{unit}"
    return f"{size_bytes:.0f}B"


def loss_name(metric: str) -> str:
    """Return what people call the loss of a metric.

    >>> loss_name("error"), loss_name("auroc"), loss_name("neg_log_loss")
    ('error', '1 - auroc', 'log_loss')
    """
    declared = METRICS.get(metric)
    return metric if declared is None else declared.called


def loss_unit(metric: str) -> str:
    """Return the unit that stands behind a loss of a metric; empty without one.

    >>> loss_unit("error"), loss_unit("auroc")
    (' %', '')
    """
    declared = METRICS.get(metric)
    return "" if declared is None else declared.symbol


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
