"""Why a method asks for what it does, for people who follow a study."""

from dataclasses import asdict, dataclass

__all__ = ["Reason", "ordinal", "two_digits"]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an ask asked for what it did.

    Attributes:
        phase: The part of the method that asked, in a few words.
        text: Why for this query, in one short line; may be empty.
    """

    phase: str
    text: str = ""

    def __post_init__(self) -> None:
        if not self.phase:
            raise ValueError("a reason names the phase of its method; got none")

    def to_json(self) -> dict[str, str]:
        """Return both as JSON values."""
        return asdict(self)


def ordinal(n: int) -> str:
    """Return a number as a place in a row.

    >>> [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 21, 112)]
    ['1st', '2nd', '3rd', '4th', '11th', '12th', '21st', '112th']
    """
    is_teen = n // 10 % 10 == 1
    return f"{n}{'th' if is_teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"


def two_digits(value: float) -> str:
    """Return a number with two digits that count.

    >>> two_digits(0.8349), two_digits(137.2), two_digits(4e-9)
    ('0.83', '140', '4e-09')
    """
    return f"{float(f'{value:.2g}'):g}"
