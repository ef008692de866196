"""Sets of patient events, and their splits as label files that all tools read."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import parse_qsl
from zlib import crc32

import pandas as pd
from sklearn.model_selection import train_test_split

from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source

__all__ = ["ID", "LABEL", "TIME", "EventSet", "EventSplit"]

TEST_SIZE = 1 / 3
"""Share of the patients to test."""
ID, TIME, LABEL = "subject_id", "prediction_time", "boolean_value"
"""Columns of the labels, as in MEDS."""
_END_OF_DAY = pd.Timedelta(hours=23, minutes=59, seconds=59)
_COHORT = "cohort:"


@dataclass(frozen=True)
class EventSet:
    """Patient events with labels of two classes.

    Attributes:
        data: File or folder of the events, or a cohort.
        labels: File or folder of the labels; None for a cohort, which has its own labels.
    """

    data: str
    labels: str | None = None

    @classmethod
    def of(cls, entry: str) -> "EventSet":
        """Parse `DATA:LABELS`, with labels below the data or elsewhere, or a cohort."""
        if entry.startswith(_COHORT):
            return cls(entry)
        data, _, labels = entry.rpartition(":")
        below = Path(data, labels)
        found = below if below.exists() else Path(labels)
        return cls(str(Path(data).absolute()), str(found.absolute()))

    @property
    def name(self) -> str:
        """Name of the file or folder; for a cohort, the family and the options, separated by a dot.

        Sets whose names agree before the dot are related (see `portfolios.unrelated`).
        """
        if not self.data.startswith(_COHORT):
            return Path(self.data).name.split(".")[0]
        cohort, _, query = self.data.removeprefix(_COHORT).partition("?")
        options = dict(parse_qsl(query))
        stem = "_".join(filter(None, ("cohort", options.pop("family", ""))))
        return ".".join((stem, cohort, *options.values()))

    @property
    def source(self) -> Source:
        """Source of the events and labels."""
        return Source(self.data, labels=self.labels)

    @cached_property
    def dataset(self) -> Dataset:
        """Events and labels, as the product reads them."""
        return read_source(self.source)

    @cached_property
    def events(self) -> pd.DataFrame:
        """Events with the times of the files, sorted by patient and time.

        If all times are at midnight, the product takes them as the ends of days and so excludes the
        day of the prediction. Other tools use all events up to the prediction time.
        """
        events = self.dataset.X.events.astype({"code": str})
        return events.assign(time=events["time"].dt.floor("D")) if self.are_days else events

    @cached_property
    def are_days(self) -> bool:
        """Whether all times are dates, which the product reads as the ends of days."""
        times = self.dataset.X.events["time"]
        return bool((times.isna() | (times - times.dt.floor("D") >= _END_OF_DAY)).all())

    def split(self, number: int, folder: Path) -> "EventSplit":
        """Split the patients, stratified by largest label, and write the labels of both parts.

        The seed comes from the name and the number of the split.
        """
        seed = crc32(f"{self.name} {number}".encode()) % 2**31
        rows = self.dataset.X.rows.assign(**{LABEL: self.dataset.y.astype(bool)})
        largest = rows.groupby(ID, sort=True)[LABEL].max()
        _, tested = train_test_split(
            largest.index.to_numpy(), test_size=TEST_SIZE, stratify=largest, random_state=seed
        )
        is_test = rows[ID].isin(tested)
        folder.mkdir(parents=True, exist_ok=True)
        files = {part: folder / f"{self.name}-{number}-{part}.parquet" for part in _PARTS}
        for part, chosen in zip(_PARTS, (rows[~is_test], rows[is_test]), strict=True):
            chosen.sort_values([ID, TIME]).to_parquet(files[part], index=False)
        return EventSplit(self, number, seed, files["train"], files["test"])


_PARTS = ("train", "test")


@dataclass(frozen=True)
class EventSplit:
    """A split of an event set.

    Attributes:
        source: The event set.
        number: Number of the split.
        seed: Seed of the split and of every tool that runs on the split.
        train: Parquet file of the labels of the training patients.
        test: Parquet file of the labels of the test patients.
    """

    source: EventSet
    number: int
    seed: int
    train: Path
    test: Path

    def labels(self, part: str) -> pd.DataFrame:
        """Return the labels of `train` or `test`, in order of patient and time."""
        return pd.read_parquet(getattr(self, part))
