"""A table with a column of each kind, and file types and forms for its rows."""

import io
from collections.abc import Callable

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

WORDS = ("no pain", "severe pain in the chest", "fever since monday", "NA", "cough; dry, at night")


def every_kind(n: int = 240) -> pd.DataFrame:
    """Return a column of each kind, with missing values, midnights and ambiguous strings."""
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 400, n), unit="D")
    clock = pd.to_timedelta(rng.choice([0, 0, 45_000, 30], n), unit="s")
    frame = pd.DataFrame(
        {
            "number": rng.normal(size=n) * 10.0 ** rng.integers(-9, 9, n),
            "whole": pd.array(rng.integers(0, 9, n), dtype="Int64"),
            "truth": pd.array(rng.random(n) < 0.5, dtype="boolean"),
            "category": rng.choice(["a", "b", "NA", "1", "1.0", "True"], n),
            "code": pd.Categorical(rng.choice([3, 7, 11], n)),
            "moment": (days + clock).astype("datetime64[us]"),
            "day": days.strftime("%d.%m.%Y"),
            "wait": pd.to_timedelta(rng.integers(0, 200_000, n), unit="s").astype(
                "timedelta64[us]"
            ),
            "note": [" ".join(rng.choice(WORDS, 3)) + f" {i}" for i in range(n)],
        }
    )
    for name in frame:
        frame.loc[rng.choice(n, n // 10, replace=False), name] = None
    return frame


FRAME = every_kind()


def by_pyarrow(frame: pd.DataFrame) -> bytes:
    """Write Parquet with string views, as newer tools do."""
    columns = pa.Table.from_pandas(frame, preserve_index=False)
    for position, field in enumerate(columns.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            viewed = columns.column(position).cast(pa.string_view())
            columns = columns.set_column(position, field.name, viewed)
    columns = columns.replace_schema_metadata()
    file = io.BytesIO()
    pq.write_table(columns, file)
    return file.getvalue()


def by_polars(frame: pd.DataFrame) -> bytes:
    file = io.BytesIO()
    codes = dict.fromkeys(frame.select_dtypes("category"), "Int64")
    pl.from_pandas(frame.astype(codes)).write_parquet(file)
    return file.getvalue()


FORMS: dict[str, tuple[str, Callable[[pd.DataFrame], bytes]]] = {
    "CSV": ("csv", lambda frame: frame.to_csv(index=False).encode()),
    "Parquet of pandas": ("parquet", lambda frame: frame.to_parquet(index=False)),
    "Parquet of pyarrow": ("parquet", by_pyarrow),
    "Parquet of polars": ("parquet", by_polars),
}
