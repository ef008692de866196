"""Tables, and their splits as files that all tools read."""

from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.model_selection import train_test_split

__all__ = ["SplitFiles", "TableFile"]

TEST_SIZE = 0.3
_MOST_CLASSES, _MOST_CLASSES_WITH_DECIMALS = 50, 10
"""A target of more different numbers is predicted as a number, as by `prefect-tune run`."""


@dataclass(frozen=True)
class SplitFiles:
    """A split of a table, as files.

    Attributes:
        train: Parquet file of the training rows.
        test: Parquet file of the test rows.
        target: Column to predict.
        kind: `classes` or `numbers`.
        seed: Seed of the split and of every tool that runs on the split.
        test_rows: Number of test rows.
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
        """Parse `TABLE[:TARGET]`; the default column is `target`."""
        path, _, target = entry.partition(":")
        return cls(Path(path), target or "target")

    @property
    def name(self) -> str:
        """Name of the file, and the column if not `target`."""
        stem = self.path.name.split(".")[0]
        return stem if self.target == "target" else f"{stem}.{self.target}"

    def split(self, number: int, folder: Path) -> SplitFiles:
        """Split the rows, stratified for classes, and write both parts.

        Classes are written as strings with a leading `c`, so that no tool takes them for numbers;
        other strings are categories. The seed comes from the name and the number of the split.
        """
        is_parquet = self.path.suffix == ".parquet"
        frame = pd.read_parquet(self.path) if is_parquet else pd.read_csv(self.path, na_values="?")
        y, kind = frame[self.target], "numbers"
        most = _MOST_CLASSES_WITH_DECIMALS
        if pd.api.types.is_numeric_dtype(y) and (y % 1 == 0).all():
            most = _MOST_CLASSES
        if not pd.api.types.is_numeric_dtype(y) or y.nunique() <= most:
            kind, frame = "classes", frame.assign(**{self.target: "c" + y.astype(str)})
        seed = crc32(f"{self.name} {number}".encode()) % 2**31
        strata = frame[self.target] if kind == "classes" else None
        rows = np.arange(len(frame))
        parts = train_test_split(rows, test_size=TEST_SIZE, stratify=strata, random_state=seed)
        texts = [c for c in frame if not pd.api.types.is_numeric_dtype(frame[c])]
        frame = frame.astype({c: "category" for c in texts if c != self.target})
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / f"{self.name}-{number}-{part}.parquet" for part in ("train", "test")]
        for path, chosen in zip(files, parts, strict=True):
            table = pa.Table.from_pandas(frame.iloc[np.sort(chosen)], preserve_index=False)
            pq.write_table(table.replace_schema_metadata(None), path)  # for any pandas
        return SplitFiles(*files, self.target, kind, seed, len(parts[1]))
