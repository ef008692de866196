"""Notation of numbers written for people, such as `$4,382.40`, `21,57 %` or `(12.5)`.

A column has one decimal mark and one currency, percent sign or unit. The decimal mark and the unit
are detected from the column's strings and then used to read all later rows. Exported models use
this module to read rows, so the module needs only numpy and pandas.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import inf, isfinite, isinf, nan
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

DECIMAL = "decimal"
"""Key in `DataFrame.attrs` for the decimal mark of numbers in a text file; empty if unknown."""
_PROBED = 1_000
"""Number of strings inspected first; the others are inspected only if most of the first are
numbers."""
LEAST_SHARE = 0.9
"""Minimum fraction of numbers among strings at which all other strings count as typos."""
_LEAST_OF_UNIT = 4
"""Minimum average number of values per unit for strings with several units to count as numbers."""
_EXACT_DIGITS = 15
"""Maximum number of digits of an integer that floats represent exactly."""
_LONGEST = 60
"""Maximum length of strings that are read as numbers."""
_SAME = str.maketrans(
    {**dict.fromkeys("\u00a0\u2007\u2009\u202f", " "), "\u2212": "-", "\u2019": "'", "\u00b5": "μ"}
)
_CURRENCY = (
    r"(?:[A-Z]{1,3})?[$€£¥₹₽₩₺₪₫₴₦₱฿]|(?:USD|EUR|GBP|JPY|CHF|CNY|RMB|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN"
    r"|CZK|HUF|BRL|MXN|ZAR|RUB|TRY|KRW|SGD|HKD|THB|ILS|Rs|kr|Fr)\.?"
)
_PARTS = re.compile(
    rf"([-+])?\s*({_CURRENCY})?\s*([-+])?\s*"
    r"(?!0[xX][0-9a-fA-F])"  # hexadecimal digits are not a unit
    r"(\d(?:[\d.,' ]*\d)?[.,]?|[.,]\d+)([eE][-+]?\d+)?"
    rf"\s*((?:{_CURRENCY}|[^\W\d_]|[%‰°])[\w %/°²³.^*·]{{0,19}}?)?\s*(-)?"
)
_PARENTHESES = re.compile(r"([^\d()]*)\(([^()]*\d[^()]*)\)([^\d()]*)")
_WHOLE = r"\d+|[1-9]\d{0,2}(?:([ '])\d{3})(?:\1\d{3})*"
_BODIES = {
    ".": re.compile(rf"(?:{_WHOLE}|[1-9]\d{{0,2}}(?:,\d{{2,3}})*,\d{{3}})?(?:\.\d*)?"),
    ",": re.compile(rf"(?:{_WHOLE}|[1-9]\d{{0,2}}(?:\.\d{{3}})+)?(?:,\d*)?"),
}
"""Patterns of numbers without signs and units, by decimal mark; other marks may separate
thousands."""
_GROUP_MARKS = {".": re.compile("[,' ]"), ",": re.compile("[.' ]")}
_EITHER = re.compile(r"[1-9]\d{0,2}[.,]\d{3}")
"""Pattern of numbers with an ambiguous mark, which may separate thousands or decimals."""
PLAIN = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
"""Pattern of numbers written by programs."""
TRUTHS = {"True": 1.0, "true": 1.0, "TRUE": 1.0, "False": 0.0, "false": 0.0, "FALSE": 0.0}
"""Spellings of truth values, with their numbers."""
_PADDED = re.compile(r"0\d+")
_VERSIONS = 50
"""Maximum number of distinct values in a column that may contain versions, such as 1.9 and 1.10."""
_CURRENCIES = {"$": "dollars", "€": "euros", "£": "pounds", "¥": "yen", "%": "percent"}


class _Parts(NamedTuple):
    """A number's sign (-1 or 1), unit, digits including marks, and exponent."""

    sign: int
    unit: str
    body: str
    exponent: str


def _parts(text: str) -> _Parts | None:
    text = text.strip()
    if len(text) > _LONGEST:
        return None
    text = text.translate(_SAME)
    inside = _PARENTHESES.fullmatch(text)
    found = _PARTS.fullmatch("".join(inside.groups()) if inside else text)
    if found is None:
        return None
    first, before, second, body, exponent, after, last = found.groups(default="")
    signs = [*filter(None, (first, second, last)), *["-"] * (inside is not None)]
    if len(signs) > 1:
        return None
    unit = " ".join(filter(None, (before, after.strip())))
    return _Parts(-1 if "-" in signs else 1, unit, body, exponent)


@dataclass(frozen=True)
class Notation:
    """Notation of the numbers in a column of strings.

    Attributes:
        decimal: Decimal mark: a point or a comma.
        unit: Currency, percent sign or unit of every number; empty if there is none.
        has_groups: Whether thousands are separated, by a comma if the decimal mark is a point, or
            by a point if the decimal mark is a comma.
    """

    decimal: str = "."
    unit: str = ""
    has_groups: bool = False

    def number(self, text: str) -> float:
        """Return a string as a number; infinity if the string uses another notation.

        >>> dollars, commas = Notation(unit="$"), Notation(",")
        >>> [dollars.number(text) for text in ("$1,234.5", "($5)", "7", "€7", "1.234,5")]
        [1234.5, -5.0, 7.0, inf, inf]
        >>> [commas.number(text) for text in ("1.234,5", "4 382", "172.5", "1.234", "k.A.")]
        [1234.5, 4382.0, 172.5, inf, inf]
        """
        parts, decimal = _parts(text), self.decimal
        if parts is None or parts.unit not in {"", self.unit}:
            return inf
        if self.unit == "%" and not parts.unit and parts.body != "0":
            return inf
        if decimal == "," and "," not in parts.body and parts.body.count(".") == 1:
            if not _EITHER.fullmatch(parts.body):
                decimal = "."  # numbers written by programs
            elif not self.has_groups:
                return inf
        if not _BODIES[decimal].fullmatch(parts.body):
            return inf
        digits = _GROUP_MARKS[decimal].sub("", parts.body).replace(decimal, ".")
        return parts.sign * float(digits + parts.exponent)

    @property
    def text(self) -> str:
        """Description of the notation in parentheses; empty for numbers written by programs."""
        kind = _CURRENCIES.get(self.unit, f"in {self.unit}")
        marks = "decimal commas" * (self.decimal == ","), "thousands separators" * self.has_groups
        how = ", ".join(filter(None, (kind if self.unit else "", *marks)))
        return f" ({how})" if how else ""

    def of(self, column: pd.Series) -> str:
        """Describe how a column's strings are read, with an example; empty if none is a number."""
        texts = [text for text in column.iloc[:_PROBED] if isinstance(text, str)]
        longest = max((t for t in texts if isfinite(self.number(t))), key=len, default="")
        shown = longest.translate(_SAME)
        how = f"read as numbers{self.text}, such as {shown!r} = {self.number(longest):.12g}"
        return how if longest else ""


def as_number(value: Any, notations: Sequence[Notation] = ()) -> float:
    """Return a value as a number; infinity if not a number, NaN if infinite.

    A string is read with each of the notations, and is not a number if the results disagree.
    Without notations, a string is read as a truth value or as a number written by a program.
    """
    if isinstance(value, str):
        if notations:
            numbers = {number for one in notations if isfinite(number := one.number(value))}
            return numbers.pop() if len(numbers) == 1 else inf
        text = value.strip()
        return TRUTHS[text] if text in TRUTHS else float(text) if PLAIN.fullmatch(text) else inf
    if isinstance(value, Number | Decimal | np.bool_) and not isinstance(value, complex):
        number = float(value)  # type: ignore[arg-type]
        return nan if isinf(number) else number
    return inf


@dataclass(frozen=True)
class WrittenNumbers:
    """Numbers found in the strings of a column.

    Attributes:
        notation: Notation of the numbers.
        is_plain: Whether all numbers look as if written by a program.
        is_decided: Whether the strings determine the decimal mark.
        strays: Distinct strings that are not numbers in the notation.
    """

    notation: Notation
    is_plain: bool
    is_decided: bool
    strays: tuple[str, ...]


class NoNumbers(NamedTuple):
    """Reason why strings that contain numbers remain strings, and an example."""

    reason: str
    example: str

    def within(self, column: pd.Series) -> str:
        """Return the reason with the example's row in a column, counted from 1."""
        row = column.index[column == self.example][0] + 1
        return f"{self.reason}, such as {self.example!r} in row {row}"


Found = WrittenNumbers | NoNumbers | None
"""Numbers found in strings, the reason why strings remain strings, or None if there are no
numbers."""


def written_numbers(texts: Sequence[str], decimal: str = "") -> Found:
    """Find the numbers in distinct strings.

    Args:
        texts: Distinct strings to search.
        decimal: Decimal mark in the rest of the table, if known.
    """
    found = {text: parts for text in texts if (parts := _parts(text)) is not None}
    units = Counter(parts.unit for parts in found.values() if parts.unit)
    n_least = LEAST_SHARE * len(texts)
    is_other = _are_codes(found) if not units else 1 < len(units) > len(found) / _LEAST_OF_UNIT
    if not found or len(found) < n_least or is_other:
        return None
    if len(units) > 1:
        first, second, *_ = units
        example = next(text for text, parts in found.items() if parts.unit == second)
        return NoNumbers(f"numbers in several units ({first!r}, {second!r})", example)
    bare = (text for text, parts in found.items() if not parts.unit and parts.body != "0")
    if "%" in units and (example := next(bare, "")):
        return NoNumbers("percentages and numbers without a percent sign", example)
    suits = {
        mark: {text for text, parts in found.items() if body.fullmatch(parts.body)}
        for mark, body in _BODIES.items()
    }
    is_decided = suits["."] != suits[","]
    if is_decided:
        decimal = max(suits, key=lambda mark: len(suits[mark]))
    elif not decimal and (comma := next((t for t in found if "," in found[t].body), "")):
        return NoNumbers(
            "numbers whose comma may separate thousands or decimals (choose with --decimal)", comma
        )
    decimal = decimal or "."
    other, numbers = "," if decimal == "." else ".", suits[decimal]
    if len(numbers) < n_least:
        if len(numbers | suits[other]) < n_least:
            return None
        mixed = next(text for text in found if text in suits[other] - numbers)
        return NoNumbers("numbers with decimal points and with decimal commas", mixed)
    notation = Notation(decimal, "".join(units), any(other in found[t].body for t in numbers))
    is_plain = decimal == "." and all(PLAIN.fullmatch(text.strip()) for text in numbers)
    strays = tuple(text for text in texts if text not in numbers)
    return WrittenNumbers(notation, is_plain, is_decided, strays)


def _are_codes(found: Mapping[str, _Parts]) -> bool:
    """Return whether numbers without a unit are codes, versions or telephone numbers."""
    bodies = [parts.body for parts in found.values()]
    if all(map(str.isdigit, bodies)):
        n_long = sum(len(body) > _EXACT_DIGITS for body in bodies)
        return n_long > (1 - LEAST_SHARE) * len(bodies) or any(map(_PADDED.fullmatch, bodies))
    if len({len(body) for body in bodies}) == 1 and bodies[0].count(" ") > 1:
        return True
    decimals = {body.partition(".")[2] for body in bodies if PLAIN.fullmatch(body)} - {""}
    are_padded = any(len(digits) > 1 and digits.endswith("0") for digits in decimals)
    return are_padded and len(bodies) <= _VERSIONS and len({*map(len, decimals)}) > 1


def is_texts(column: pd.Series) -> bool:
    """Return whether a column may contain strings, including string categories."""
    kind = column.dtype
    if isinstance(kind, pd.CategoricalDtype):
        kind = kind.categories.dtype
    return kind == np.dtype(object) or pd.api.types.is_string_dtype(kind)


def numbers_in(column: pd.Series, decimal: str = "") -> Found:
    """Find numbers in the strings of a column without missing values; see `written_numbers`.

    Returns None if the column has no strings, or has values other than numbers and strings.
    """
    if not is_texts(column):
        return None
    probed = {text for text in column.iloc[:_PROBED] if isinstance(text, str)}
    if sum(_parts(text) is not None for text in probed) < max(1, LEAST_SHARE * len(probed)):
        return None
    values = column.drop_duplicates().astype(object)
    texts = [value for value in values if isinstance(value, str)]
    others = (value for value in values if not isinstance(value, str))
    if any(not isinstance(value, Number) or isinstance(value, bool) for value in others):
        return None
    return written_numbers(texts, decimal)


def as_numbers(column: pd.Series, notation: Notation) -> pd.Series:
    """Return a column of numbers and strings as numbers, keeping missing values."""
    numbers = column.astype(object).map(lambda value: as_number(value, (notation,)), "ignore")
    return numbers.astype("Float64")


def decimal_mark(frame: pd.DataFrame) -> str:
    """Return the decimal mark of the numbers in a table; empty if unknown or inconsistent."""
    if DECIMAL in frame.attrs:
        return str(frame.attrs[DECIMAL])
    marks = set[str]()
    for position in range(frame.shape[1]):  # two columns may have the same name
        found = numbers_in(frame.iloc[:_PROBED, position].dropna())
        if isinstance(found, WrittenNumbers) and found.is_decided:
            marks.add(found.notation.decimal)
    return marks.pop() if len(marks) == 1 else ""
