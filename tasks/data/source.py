"""Origin of the data, and the options for reading them."""

from dataclasses import dataclass
from typing import Literal

GAPS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")
"""Strings that count as missing by default, in any kind of file."""


FRAME = "dataframe:"
"""Prefix of the source name of a DataFrame; the digest of its content follows."""
_NO_FILES = ("cohort:", "sklearn:", FRAME)
"""Prefixes of inputs that are not files."""


@dataclass(frozen=True, slots=True)
class Source:
    """Origin of the data; attributes are named like command-line options.

    Attributes:
        data: File or folder, `cohort:NAME?option=value` or `sklearn:NAME`.
        target: Column to predict.
        labels: File or folder of labels, for events.
        format: Name of the data format; None to detect the format.
        splits: Use of a table of splits in the data: `auto` to take the test rows from the table,
            `ignore` to ignore the table.
        test: File of the test rows: a table like `data` or, for events, labels like `labels`.
        group: Column of a table; rows with equal values stay in one fold.
        key: Columns whose values identify a row across the data sets of a series.
        time: Column with the time of each row; for events, the prediction time of the labels.
        drop: Columns to skip.
        categorical: Columns to treat as categories.
        drop_missing_target: Whether to drop rows without a target.
        na_values: Strings that count as missing; None for the default list.
        decimal: Decimal mark of numbers in strings, used if the values are ambiguous; None to use
            the mark of other columns.
        aside: Dropped columns that are kept separately, because they define groups of a constraint.
        predicts: Kind of prediction, classification or regression; None to infer the kind from the
            target.
        texts: String columns of earlier studies of a series, each with its number of hashed words
            (0 for categories), to be read the same way again.
        keeps_ids: Whether the data set stores ids of its groups or keys, for the test rows of a
            series.
    """

    data: str
    target: str | None = None
    labels: str | None = None
    format: str | None = None
    test: str | None = None
    splits: Literal["auto", "ignore"] = "auto"
    group: str | None = None
    key: tuple[str, ...] | None = None
    time: str | None = None
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    drop_missing_target: bool = False
    na_values: tuple[str, ...] | None = None
    decimal: Literal["point", "comma"] | None = None
    aside: tuple[str, ...] = ()
    predicts: Literal["classification", "regression"] | None = None
    keeps_ids: bool = False
    texts: tuple[tuple[str, int], ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """Files and folders of the data, the labels and the test rows."""
        named = filter(None, (self.data, self.labels, self.test))
        return tuple(dict.fromkeys(name for name in named if not name.startswith(_NO_FILES)))

    @property
    def gaps(self) -> tuple[str, ...]:
        """Strings that count as missing, in addition to empty cells."""
        return GAPS if self.na_values is None else tuple(dict.fromkeys(("", *self.na_values)))

    @property
    def decimal_mark(self) -> str:
        """The decimal mark chosen by the user; empty if the mark is detected from the table."""
        return {"point": ".", "comma": ","}.get(self.decimal or "", "")
