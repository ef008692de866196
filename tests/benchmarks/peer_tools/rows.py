"""What came out of the runs, as one Parquet file; what is there is not run again."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import pandas as pd

__all__ = ["KEY", "PARTS", "RECORDED", "Rows"]

RECORDED = Path(__file__).with_name("recorded_runs.parquet")
"""Of the runs that README speaks of."""
PARTS = Path(__file__).with_name("recorded_parts.parquet")
"""Of our default beside itself without each of its parts."""
KEY = ("tool", "table", "split", "budget")
"""Columns that name a run."""


class Rows:
    """Rows of runs, one for each answer.

    Args:
        path: The file; it need not be there.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._lock = path, Lock()
        self.frame = pd.read_parquet(path) if path.exists() else pd.DataFrame(columns=list(KEY))

    def has(self, key: Mapping[str, Any]) -> bool:
        """Whether a run is there."""
        matches = (self.frame[name] == key[name] for name in KEY)
        return bool(pd.concat(list(matches), axis=1).all(axis=1).any())

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add a run's rows, all of them or none."""
        with self._lock:
            more = pd.DataFrame(rows)
            self.frame = pd.concat([self.frame, more], ignore_index=True) if self._n else more
            unfinished = self.path.with_suffix(".part")
            self.frame.to_parquet(unfinished, index=False)
            unfinished.rename(self.path)

    def of(self, keys: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
        """Rows of some runs, those of the first one first."""
        asked = pd.DataFrame(keys, columns=list(KEY)).drop_duplicates()
        return asked.merge(self.frame, on=list(KEY))

    @property
    def _n(self) -> int:
        return len(self.frame)
