"""Remarks on the data and on what was decided, as values with fields."""

from dataclasses import dataclass

__all__ = ["Note"]


@dataclass(frozen=True, slots=True)
class Note:
    """One remark to the user; its text is `reason; remedy`.

    Attributes:
        reason: What is so.
        option: Name of the option that it is about; empty for none.
        value: What that option has come to be, as text.
        remedy: How to have it otherwise; empty where nothing needs to be.
    """

    reason: str
    option: str = ""
    value: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason
