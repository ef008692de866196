"""Tables: a file, or a folder of Parquet files with the same columns."""

from collections.abc import Iterator, Sequence

import pandas as pd

from prefect_tune.tasks.data.formats.format import Format
from prefect_tune.tasks.data.location import Location, shards
from prefect_tune.tasks.data.table_files import read_table

__all__ = ["TABLE"]


def _read(location: Location, texts: Sequence[str]) -> Iterator[pd.DataFrame]:
    for shard in shards(location):
        yield read_table(shard, texts)


TABLE = Format(
    name="table",
    description="a table",
    kind="table",
    recognises=lambda given: given.table is not None,
    read=_read,
)
