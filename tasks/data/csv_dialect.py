"""Detection of a text table's encoding, separator and decimal mark."""

import csv
import io
import re
from codecs import (
    BOM_UTF8,
    BOM_UTF16_BE,
    BOM_UTF16_LE,
    BOM_UTF32_BE,
    BOM_UTF32_LE,
    getincrementaldecoder,
)
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

HEAD_BYTES = 1 << 20
"""Bytes from which the separator is detected."""
_BOMS = (
    (BOM_UTF8, "utf-8-sig"),
    (BOM_UTF32_LE, "utf-32"),  # begins like the mark of UTF-16
    (BOM_UTF32_BE, "utf-32"),
    (BOM_UTF16_LE, "utf-16"),
    (BOM_UTF16_BE, "utf-16"),
)
_ROWS = 100
_NUMBER = rb"[-+]?[\d.]*%s\d+(?:[eE][-+]?\d+)?"
THOUSANDS = r"[-+]?[1-9]\d{0,2}(?:\.\d{3})+"
"""Pattern for numbers with dots between thousands, in files with decimal commas."""
_WITH_COMMA = re.compile(rf"(?:{THOUSANDS}|[-+]?\d*)(?:,\d+)?(?:[eE][-+]?\d+)?")
_WITH_POINT = re.compile(r"[-+]?\d*\.\d+(?:[eE][-+]?\d+)?")
_SEPARATORS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "pipes"}
"""In order of preference: first tabs, because column names contain none, then commas."""


def as_utf8(content: bytes) -> tuple[bytes, str]:
    """Return text as UTF-8 without a byte order mark, and the encoding it had.

    Other text without a mark is Windows-1252, or Latin-1 if Windows-1252 lacks some of its bytes.
    """
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            if encoding == "utf-8-sig":
                return content[len(mark) :], "utf-8"
            return content.decode(encoding, errors="replace").encode(), encoding
    if content.isascii() or _is_utf8(content):
        return content, "utf-8"
    try:
        return content.decode("cp1252").encode(), "cp1252"
    except UnicodeDecodeError:
        return content.decode("latin-1").encode(), "latin-1"


def _is_utf8(content: bytes) -> bool:
    """Return whether bytes are UTF-8, without a second copy of all of them."""
    decoder = getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(content), HEAD_BYTES):
            decoder.decode(content[start : start + HEAD_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Dialect:
    """Notation of the fields of a table.

    Attributes:
        separator: Character between fields.
        decimal: Decimal mark of numbers.
    """

    separator: str = ","
    decimal: str = "."

    @classmethod
    def of(cls, content: bytes, decimal: str = "") -> "Dialect":
        """Detect the dialect of a table in UTF-8, or of its beginning.

        `decimal` is the decimal mark of files with semicolons, if it is known.
        """
        separator = _separator(content[:HEAD_BYTES], is_whole=len(content) <= HEAD_BYTES)
        if separator != ";" or decimal == ".":
            return cls(separator)
        has_commas = decimal == "," or _is_field(content, separator, _NUMBER % b",")
        return cls(separator, "," if has_commas else ".")

    def note(self, encoding: str, *, expected: str) -> str:
        """Return a note on the dialect for the user; empty for UTF-8 and the expected separator."""
        found = []
        if self.separator != expected:
            found.append(f"columns separated by {_SEPARATORS[self.separator]}")
        if self.decimal == ",":
            found.append("decimal commas")
        if encoding != "utf-8":
            found.append(f"text encoded as {encoding}")
        return f"read with {' and '.join(found)}" if found else ""


def number_with_comma(text: str) -> float | None:
    """Parse a number of a file with decimal commas; None for any other text.

    >>> [number_with_comma(text) for text in ("1.234,5", "4.253", "998", "172.5", "k.A.")]
    [1234.5, 4253.0, 998.0, 172.5, None]
    """
    text = text.strip()
    if not any(map(str.isdigit, text)):
        return None
    if _WITH_COMMA.fullmatch(text):
        return float(text.replace(".", "").replace(",", "."))
    return float(text) if _WITH_POINT.fullmatch(text) else None


def has_padded_codes(content: bytes, separator: str) -> bool:
    """Return whether any field consists of digits and is padded with zeros, as in 007."""
    return _is_field(content, separator, rb"0\d+")


def _is_field(content: bytes, separator: str, pattern: bytes) -> bool:
    """Return whether any field below the column names matches a pattern."""
    mark = re.escape(separator.encode())
    end = rb'(?=["\r\n' + mark + rb"]|\Z)"
    starts = (mark, b"\n", b'"', rb"\r")  # separately, because a search for one byte is fast
    return any(re.search(start + pattern + end, content) for start in starts)


def _separator(head: bytes, *, is_whole: bool) -> str:
    """Return the first separator that gives all rows as many fields as names, at least two.

    If none does, rows differ in length. The result is then the comma if names contain one, or else
    the separator that gives most names.
    """
    text = head.decode(errors="ignore")
    widths = {one: _widths(text, one, is_whole=is_whole) for one in _SEPARATORS}
    for separator, found in widths.items():
        if found and found[0] > 1 and set(found) == {found[0]}:
            return separator
    n_names = {separator: found[0] if found else 1 for separator, found in widths.items()}
    return "," if n_names[","] > 1 else max(_SEPARATORS, key=lambda s: (n_names[s], s == ","))


def _widths(text: str, separator: str, *, is_whole: bool) -> list[int]:
    """Return the number of fields in each of the first rows; a cut text loses its last row."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    widths: list[int] = []
    with suppress(csv.Error):  # a quoted field is beyond the reader's limit
        widths.extend(len(row) for row in islice(filter(None, reader), _ROWS))
    is_cut = not is_whole and len(widths) < _ROWS
    return widths[:-1] if is_cut and len(widths) > 1 else widths
