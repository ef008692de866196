"""Tables, and their splits as files that all tools read; sets of patient events."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl
from zlib import crc32

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.model_selection import train_test_split

__all__ = ["TEST_SIZE", "EventSet", "SplitFiles", "TableFile"]

TEST_SIZE = 0.3
"""Share of the rows to test."""
_MOST_CLASSES = 50
_MOST_CLASSES_WITH_DECIMALS = 10
"""A target of more different numbers than this is no class."""


@dataclass(frozen=True)
class SplitFiles:
    """A split of a table, as files.

    Attributes:
        train: Parquet file of the training rows.
        test: That of the test rows.
        target: Column to predict.
        kind: Whether it holds `classes` or `numbers`.
        seed: That of the split, and of the tools on it.
        test_rows: How many rows test.
    """

    train: Path
    test: Path
    target: str
    kind: str
    seed: int
    test_rows: int


@dataclass(frozen=True)
class TableFile:
    """A table with a column to predict."""

    path: Path
    target: str

    @classmethod
    def of(cls, entry: str) -> "TableFile":
        """Read `TABLE[:TARGET]`; the column is `target` where none is named."""
        path, _, target = entry.partition(":")
        return cls(Path(path), target or "target")

    @property
    def name(self) -> str:
        """The file's name, and the column if it is another one than `target`."""
        stem = self.path.name.split(".")[0]
        return stem if self.target == "target" else f"{stem}.{self.target}"

    def split(self, number: int, folder: Path) -> SplitFiles:
        """Split the rows, stratified for classes, and write both parts if they are not there.

        Classes are written as texts, `c` before each, so that no tool takes them for numbers; other
        texts are categories. The seed comes from the name and the number of the split.
        """
        frame = self._frame()
        y, kind = frame[self.target], "numbers"
        if not _are_numbers(y):
            kind, frame = "classes", frame.assign(**{self.target: "c" + y.astype(str)})
        seed = crc32(f"{self.name} {number}".encode()) % 2**31
        strata = frame[self.target] if kind == "classes" else None
        rows = np.arange(len(frame))
        train, test = train_test_split(
            rows, test_size=TEST_SIZE, stratify=strata, random_state=seed
        )
        texts = [c for c in frame if not pd.api.types.is_numeric_dtype(frame[c])]
        frame = frame.astype({c: "category" for c in texts if c != self.target})
        folder.mkdir(parents=True, exist_ok=True)
        files = {
            part: folder / f"{self.name}-{number}-{part}.parquet" for part in ("train", "test")
        }
        for part, chosen in (("train", train), ("test", test)):
            if not files[part].exists():
                _write(frame.iloc[np.sort(chosen)], files[part])
        return SplitFiles(files["train"], files["test"], self.target, kind, seed, len(test))

    def _frame(self) -> pd.DataFrame:
        """All rows.

        Raises:
            ValueError: If the column is not there.
        """
        if self.path.suffix == ".parquet":
            frame = pd.read_parquet(self.path)
        else:
            frame = pd.read_csv(self.path, na_values=["?"])
        if self.target not in frame:
            raise ValueError(f"{self.path} has no column {self.target!r}; name it as TABLE:TARGET")
        return frame


_COHORT = "cohort:"


@dataclass(frozen=True)
class EventSet:
    """Patient events with labels.

    Attributes:
        data: A folder, or a cohort.
        labels: File or folder of labels; None for a cohort, which has its own.
    """

    data: str
    labels: str | None = None

    @classmethod
    def of(cls, entry: str) -> "EventSet":
        """Read `FOLDER:LABELS` or `cohort:NAME?option=value`."""
        if entry.startswith(_COHORT):
            return cls(entry)
        data, _, labels = entry.partition(":")
        return cls(data, labels or None)

    @property
    def name(self) -> str:
        """The folder's name, or the family of a cohort and, after a dot, its other options.

        Sets whose names agree before the dot are related (see `portfolios.related`).
        """
        if not self.data.startswith(_COHORT):
            return Path(self.data).name
        cohort, _, query = self.data.removeprefix(_COHORT).partition("?")
        options = dict(parse_qsl(query))
        stem = "_".join(filter(None, ("cohort", options.pop("family", ""))))
        return ".".join((stem, cohort, *options.values()))


def _are_numbers(y: pd.Series) -> bool:
    """Whether a target is predicted as a number, as `prefect-tune run` finds it out."""
    if not pd.api.types.is_numeric_dtype(y):
        return False
    most = _MOST_CLASSES if (y % 1 == 0).all() else _MOST_CLASSES_WITH_DECIMALS
    return y.nunique() > most


def _write(frame: pd.DataFrame, path: Path) -> None:
    """Write without what only this version of pandas would understand."""
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    unfinished = path.with_suffix(".part")
    pq.write_table(table, unfinished)
    unfinished.rename(path)
