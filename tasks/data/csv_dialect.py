"""Detection of a text table's encoding, separator, quotes and line of names."""

import csv
import io
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from statistics import mode

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
_SEPARATORS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "pipes"}
"""In order of preference: first tabs, because column names contain none, then commas."""
_QUOTED = r"(?m)(?:^|[\t,;|])'"
_PLAIN = re.compile(r"[^\t,;|]*|[-+]?[\d.]*,\d+(?:[eE][-+]?\d+)?")
_DASHES = re.compile(r"[\W_]*(?:--|==)[\W_]*")
_TOTAL = re.compile(r"(?:sub|grand )?totals?|sum|summe|(?:ins)?gesamt|somme|totale", re.IGNORECASE)
_NUMERIC = re.compile(r"\s*[-+]?[\d.,]*\d(?:[eE][-+]?\d+)?\s*\Z")
_TAIL_BYTES = 4096
"""Bytes at the end of a table in which remarks and totals are looked for."""


def as_utf8(content: bytes) -> tuple[bytes, str]:
    """Return text as UTF-8 without a byte order mark, and the encoding it had.

    Other text without a mark is Windows-1252, or Latin-1 if Windows-1252 lacks some of its bytes.
    """
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            if encoding == "utf-8-sig":
                return content[len(mark) :], "utf-8"
            return content.decode(encoding, errors="replace").encode(), encoding
    if content.isascii():
        return content, "utf-8"
    for encoding in ("utf-8", "cp1252"):
        with suppress(UnicodeDecodeError):
            return content.decode(encoding).encode(), encoding
    return content.decode("latin-1").encode(), "latin-1"


@dataclass(frozen=True, slots=True)
class Dialect:
    """Notation of the fields of a table.

    Attributes:
        separator: Character between fields.
        quote: Quotation mark around fields.
        has_blanks: Whether blanks may follow separators; they are no part of fields.
        names: Names of the columns.
        above: Number of lines above the line of names.
        start: Number of lines above the first row.
        skipped: Lines that are neither names nor rows, counted from 0.
    """

    separator: str = ","
    quote: str = '"'
    has_blanks: bool = False
    names: tuple[str, ...] = ()
    above: int = 0
    start: int = 1
    skipped: tuple[int, ...] = ()

    @classmethod
    def of(cls, content: bytes) -> "Dialect":
        """Detect the dialect of a table in UTF-8, or of its beginning."""
        end = max(HEAD_BYTES, content.find(b"\n") + 1)
        text = content[:end].decode(errors="ignore")
        n_quoted = 0 if '"' in text or "'" not in text else len(re.findall(_QUOTED, text))
        is_single = n_quoted and n_quoted == len(re.findall(_QUOTED + r"[^'\n]*'(?=\W|\Z)", text))
        quote = "'" if is_single else '"'
        separator, rows = _layout(text, quote, is_whole=len(content) <= end)
        above, names = rows[0] if rows else (0, [])
        skipped = [
            line
            for line, row in rows[1:]
            if _DASHES.fullmatch(" ".join(row)) or (_is_comment(row) and len(row) < len(names))
        ]
        return cls(
            separator,
            quote,
            f"{separator} " in text,
            tuple(name.strip() or f"Unnamed: {i}" for i, name in enumerate(names)),
            above,
            rows[1][0] if len(rows) > 1 else above + 1,
            (*range(above), *skipped),
        )

    def note(self, encoding: str, *, expected: str) -> str:
        """Return a note on the dialect for the user; empty for UTF-8 and the expected separator."""
        n_others = len(self.skipped) - self.above
        facts = {
            f"columns separated by {_SEPARATORS[self.separator]}": self.separator != expected,
            f"text encoded as {encoding}": encoding != "utf-8",
            "single quotes around fields": self.quote != '"',
            f"the names in line {self.above + 1}, without the lines above": self.above > 0,
            f"lines of dashes or comments left out ({n_others})": n_others > 0,
        }
        found = [text for text, is_so in facts.items() if is_so]
        return f"read with {' and '.join(found)}" if found else ""


def footer(content: bytes, separator: str, n_names: int) -> list[bytes]:
    """Return the last lines that are no rows: empty ones, a line of totals, or a remark.

    A line of totals begins with a word for a total that is nowhere else in the table. A remark is a
    single text, or a short line below an empty one.
    """
    lines = content[-_TAIL_BYTES:].splitlines(keepends=True)[len(content) > _TAIL_BYTES :]
    found: list[bytes] = []
    for before, line in reversed([*pairwise(lines)]):
        cells = [cell.strip(' "\r\n-=') for cell in line.decode(errors="ignore").split(separator)]
        first, *others = [*filter(None, cells)] or [""]
        is_short = len(cells) < n_names
        is_remark = not others and (is_short or (n_names > 2 and " " in first))
        is_remark = (is_remark or (is_short and not before.strip())) and not _NUMERIC.match(first)
        is_total = _TOTAL.fullmatch(first.rstrip(":")) and content.count(first.encode()) == 1
        if n_names < 2 or line.count(b'"') % 2 or (first and not is_total and not is_remark):
            break
        found.insert(0, line)
    return found


_Rows = list[tuple[int, list[str]]]
"""Fields of rows, each with the number of lines above the row."""


def _layout(text: str, quote: str, *, is_whole: bool) -> tuple[str, _Rows]:
    """Return the separator, and the first rows from the names on.

    The separator is the first that gives all rows as many fields as names, at least two, preferably
    without another separator in a field, or without lines above the names. If none does, rows
    differ in length. The result is then the comma if names contain one, or else the separator that
    gives most names.
    """
    found = {s: _from_names(_rows(text, s, quote, is_whole=is_whole)) for s in _SEPARATORS}

    def rank(separator: str) -> tuple[bool | int, ...]:
        table = [row for _, row in found[separator] if row and not _DASHES.fullmatch(" ".join(row))]
        while len(table) > 1 and len(table[-1]) == 1:
            table.pop()
        n_names = len(table[0]) if table else 1
        if n_names > 1 and {*map(len, table)} == {n_names}:
            return True, all(map(_PLAIN.fullmatch, chain(*table[1:]))), -found[separator][0][0]
        return False, separator == "," and n_names > 1, n_names, separator == ","

    best = max(_SEPARATORS, key=rank)
    return best, found[best]


def _rows(text: str, separator: str, quote: str, *, is_whole: bool) -> _Rows:
    """Return the first rows; a cut text loses its last row."""
    lines = io.StringIO(text, newline="")
    reader = csv.reader(lines, delimiter=separator, quotechar=quote, skipinitialspace=True)
    rows: _Rows = []
    line = 0
    with suppress(csv.Error):  # a quoted field is beyond the reader's limit
        for row in islice(reader, _ROWS):
            rows.append((line, row))
            line = reader.line_num
    is_cut = not is_whole and len(rows) < _ROWS
    return rows[:-1] if is_cut and len(rows) > 1 else rows


def _from_names(rows: _Rows) -> _Rows:
    """Return rows without the lines above the names: titles, comments, empty lines, merged cells.

    All rows are returned if the lines above may be something else.
    """
    width = mode([len(row) for _, row in rows if row] or [1])
    for position, (_, row) in enumerate(rows):
        below, later = ([*rows, (0, []), (0, [])][position + i][1] for i in (1, 2))
        n_filled = sum(bool(cell.strip()) for cell in row)
        is_short = len(row) < width or (width > 2 and row[-1] == "")
        is_title = is_short and (n_filled < 2 or not below)
        is_merged = "" in row[1:] and "" not in below and _are_names(below, later)
        is_comment = _is_comment(row) and not _are_names(row, below)
        is_stated = position == 0 and "".join(row).lower().startswith("sep=")
        if not (is_title or is_merged or is_comment or is_stated or n_filled == 0):
            is_sure = len(row) == width and not _NUMERIC.fullmatch(row[0])
            return rows[position:] if is_sure else rows
    return rows


def _is_comment(row: list[str]) -> bool:
    return "".join(row).startswith("#")


def _are_names(row: list[str], below: list[str]) -> bool:
    """Return whether no field of a row is a number, but some field below is."""
    return (
        len(row) == len(below)
        and any(map(_NUMERIC.fullmatch, below))
        and not any(map(_NUMERIC.fullmatch, row))
    )
