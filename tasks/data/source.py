"""Origin of the data, and options for reading the data."""

from dataclasses import dataclass
from typing import Literal

GAPS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")
"""Strings that count as missing by default, in any kind of file."""


_NO_FILES = ("cohort:", "sklearn:", "dataframe:")
"""Prefixes of inputs that are not files."""


@dataclass(frozen=True, slots=True)
class Source:
    """Origin of the data; attributes are named like the options of the command line.

    Attributes:
        data: File or folder, `cohort:NAME?option=value` or `sklearn:NAME`.
        target: Column to predict.
        labels: File or folder of labels, for events.
        format: Name of the data format; None to detect the format.
        splits: `auto` if a table of splits in the data decides the test rows; `ignore` if not.
        test: File of the test rows: a table like `data`, or for events labels like `labels`.
        group: Column of a table whose equal values keep rows in one fold.
        key: Columns whose values identify a row in the data sets of a series.
        time: Column of the time of each row; for events, the prediction time of the labels.
        drop: Columns to skip.
        categorical: Columns to treat as categories.
        drop_missing_target: Whether to drop rows without a target.
        na_values: Strings that count as missing; None for the default list.
        decimal: Decimal mark of numbers in strings, if their values leave the mark open; None to
            take the mark of other columns.
        aside: Dropped columns that are kept apart, because they define groups of a constraint.
        predicts: Classification or regression; None to detect it from the target.
        texts: String columns of earlier studies of a series, each with its number of hashed words
            (0 for categories). Later studies read these columns in the same way.
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
        """Strings that count as missing; empty cells always do."""
        return GAPS if self.na_values is None else tuple(dict.fromkeys(("", *self.na_values)))

    @property
    def decimal_mark(self) -> str:
        """The decimal mark that the user chose; empty if the mark is detected from the table."""
        return {"point": ".", "comma": ","}.get(self.decimal or "", "")
