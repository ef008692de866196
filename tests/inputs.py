"""Input files for tests: small tables, event tables and MEDS folders."""

from pathlib import Path

import numpy as np
import pandas as pd


def table(n: int = 150, seed: int = 0) -> pd.DataFrame:
    """Numbers and categories with gaps, and a target that a model can learn: about 15 % error."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    colour = rng.choice(["red", "green", "blue"], n)
    score = x[:, 0] + 0.8 * (colour == "red") + 0.3 * rng.normal(size=n)
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(
        count=rng.integers(0, 9, n), colour=colour, target=np.where(score > 0.3, "yes", "no")
    )
    frame.loc[rng.choice(n, n // 10, replace=False), "b"] = np.nan
    frame.loc[rng.choice(n, n // 10, replace=False), "colour"] = None
    return frame


def write_table(folder: Path, n: int = 150, seed: int = 0) -> Path:
    """`table` as CSV."""
    path = folder / "table.csv"
    table(n, seed).to_csv(path, index=False)
    return path


def events() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Events of 40 patients with two label rows each, and their labels; code A tells the class."""
    rng = np.random.default_rng(0)
    rows, labels = [], []
    for patient in range(100, 140):
        is_case = patient % 2 == 0
        rows.append((patient, pd.NaT, f"SEX//{patient % 3 % 2}", None))
        rows += [(patient, pd.Timestamp(2020, 1, d + 1), "B", float(d)) for d in range(4)]
        if is_case or rng.random() < 0.1:
            rows += [(patient, pd.Timestamp(2020, 1, 2), "A", 1.0)]
        rows.append((patient, pd.Timestamp(2022, 1, 1), "LATER", float(is_case)))
        labels += [(patient, pd.Timestamp(2020, month, 20), is_case) for month in (1, 6)]
    return (
        pd.DataFrame(rows, columns=["subject_id", "time", "code", "numeric_value"]),
        pd.DataFrame(labels, columns=["subject_id", "prediction_time", "boolean_value"]),
    )


def write_meds(folder: Path) -> Path:
    """`events` as a MEDS folder with two shards and a sharded task, one of its shards empty."""
    data, labels = events()
    (folder / "data" / "train").mkdir(parents=True)
    (folder / "labels" / "task").mkdir(parents=True)
    half = data["subject_id"] < 120
    data[half].to_parquet(folder / "data" / "train" / "0.parquet", index=False)
    data[~half].drop(columns="numeric_value").assign(numeric_value=1.0).to_parquet(
        folder / "data" / "train" / "1.parquet", index=False
    )
    labels.to_parquet(folder / "labels" / "task" / "0.parquet", index=False)
    labels[:0].to_parquet(folder / "labels" / "task" / "1.parquet", index=False)
    return folder
