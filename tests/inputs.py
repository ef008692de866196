"""Input files: small tables, event tables, MEDS, OMOP and Synthea folders."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.tasks.data.dataset import Dataset, import_dataset, load_dataset
from prefect_tune.tasks.data.events import EventRows

QUICK = {"method": "random", "space": "small"}
"""A search of short trials whose configurations do not depend on what trials cost."""
QUICK_OPTIONS = ("--method", "random", "--space", "small")
"""The same for the command."""


def table(n: int = 150, seed: int = 0) -> pd.DataFrame:
    """Return numbers and categories with missing values, and a target (about 15% error)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    color = rng.choice(["red", "green", "blue"], n)
    score = x[:, 0] + 0.8 * (color == "red") + 0.3 * rng.normal(size=n)
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(
        count=rng.integers(0, 9, n), color=color, target=np.where(score > 0.3, "yes", "no")
    )
    frame.loc[rng.choice(n, n // 10, replace=False), "b"] = np.nan
    frame.loc[rng.choice(n, n // 10, replace=False), "color"] = None
    return frame


def write_table(folder: Path, n: int = 150, seed: int = 0) -> Path:
    """Write `table` as CSV."""
    path = folder / "table.csv"
    table(n, seed).to_csv(path, index=False)
    return path


def written(frame: pd.DataFrame, path: Path) -> str:
    """Write a frame as Parquet or CSV, by the suffix of its file."""
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False)
    return str(path)


def stored(dataset: Dataset, folder: Path) -> Dataset:
    """Return a data set as read back from a store in a folder."""
    store = ArtifactStore(StoreAddress(str(folder / "store")))
    back = load_dataset(store, import_dataset(dataset, store))
    store.close()
    return back


def events() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return events of 40 patients with two labels each; code A reveals the class."""
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


def event_rows(
    events: Sequence[tuple[Any, ...]],
    rows: Sequence[tuple[Any, ...]],
    codes: pd.DataFrame | None = None,
) -> EventRows:
    """Return rows of (patient, prediction time), and events of (patient, time, code, value)."""
    frame = pd.DataFrame(events, columns=["subject_id", "time", "code", "value"])
    labels = pd.DataFrame(rows, columns=["subject_id", "prediction_time"])
    for table, name in ((frame, "time"), (labels, "prediction_time")):
        table[name] = pd.to_datetime(table[name]).astype("datetime64[us]")
    return EventRows.build(frame, labels, codes)


def codes_of(rows: EventRows, row: int) -> list[str]:
    """Return the codes of events before the prediction time of a row."""
    return list(rows.events["code"][rows.start[row] : rows.stop[row]])


def write_meds(folder: Path) -> Path:
    """Write `events` as a MEDS folder with two shards and a sharded task, one shard empty."""
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


BIG = 2**60 + 1


def omop_tables() -> dict[str, pd.DataFrame]:
    """Return two persons with ids beyond 2^53, with missing values where OMOP allows them."""
    person = [BIG, BIG + 1]
    return {
        "person": pd.DataFrame(
            {
                "person_id": person,
                "gender_concept_id": [8507, 8532],
                "year_of_birth": [1950, 1960],
                "month_of_birth": [3, None],
                "day_of_birth": [4, None],
                "race_concept_id": [0, 0],
                "race_source_value": ["white", None],
            }
        ),
        "condition_occurrence": pd.DataFrame(
            {
                "person_id": person,
                "condition_concept_id": [192671, 0],
                "condition_start_date": ["2020-01-05", "2020-01-05"],
                "condition_start_datetime": ["2020-01-05 08:30:00", None],
                "condition_source_value": ["K92.2", "X1"],
            }
        ),
        "drug_exposure": pd.DataFrame(
            {
                "person_id": person,
                "drug_concept_id": [1118084, 1124300],
                "drug_exposure_start_date": ["2020-01-06", "2020-01-07"],
                "drug_exposure_start_datetime": ["2020-01-06 00:00:00"] * 2,
                "quantity": [0, 0],
                "days_supply": [30, 0],
            }
        ),
        "measurement": pd.DataFrame(
            {
                "person_id": person,
                "measurement_concept_id": [3006322, 3006322],
                "measurement_date": ["2020-02-01", "2020-02-01"],
                "value_as_number": [36.6, None],
                "value_as_concept_id": [None, 4188539],
            }
        ),
        "drug_era": pd.DataFrame({"person_id": person, "drug_concept_id": [1, 2]}),
        "death": pd.DataFrame({"person_id": person[:1], "death_date": ["2021-01-01"]}),
    }


def write_omop(folder: Path) -> Path:
    """Write `omop_tables` as files, with labels."""
    folder.mkdir()
    for name, frame in omop_tables().items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    pd.DataFrame(
        {"subject_id": [BIG, BIG + 1], "prediction_time": ["2022-01-01"] * 2, "label": [0, 1]}
    ).to_csv(folder / "labels.csv", index=False)
    return folder


SYNTHEA = {
    "patients": """
Id,BIRTHDATE,DEATHDATE,GENDER
a-1,1950-03-04,,F
b-2,1960-01-01,2021-05-06,M
""",
    "conditions": """
START,STOP,PATIENT,CODE
2020-01-05,,a-1,10509002
2020-01-06,,b-2,10509002
""",
    "medications": """
START,PATIENT,CODE,DISPENSES
2020-01-07T03:41:29Z,a-1,1043400,3
""",
    "observations": """
DATE,PATIENT,CODE,VALUE,TYPE
2020-02-01T00:00:00Z,a-1,8302-2,171.5,numeric
2020-02-01T00:00:00Z,b-2,72166-2,Never smoker,text
2020-02-02T00:00:00Z,b-2,,1.0,numeric
""",
    "supplies": "DATE,PATIENT,CODE,QUANTITY\n2020-03-01,a-1,0337,2\n",
    "imaging_studies": """
Id,DATE,PATIENT,BODYSITE_CODE,MODALITY_CODE
x,2020-03-02T01:00:00Z,a-1,51185008,CT
""",
    "payers": "Id,NAME\nx,None\n",
    "labels": "patient,date,label\na-1,2022-01-01,yes\nb-2,2022-01-01,no\n",
}


def write_synthea(folder: Path) -> Path:
    """Write two patients as Synthea exports them, with labels."""
    folder.mkdir()
    for name, text in SYNTHEA.items():
        (folder / f"{name}.csv").write_text(text.lstrip())
    return folder


def write_omop_log(folder: Path) -> Path:
    """Write `events` as OMOP tables with names in capitals, and labels."""
    log, labels = events()
    folder.mkdir()
    timed = log[log["time"].notna()]
    conditions = pd.DataFrame(
        {
            "PERSON_ID": timed["subject_id"],
            "CONDITION_CONCEPT_ID": timed["code"].map({"A": 1, "B": 2, "LATER": 3}),
            "CONDITION_START_DATE": timed["time"].dt.date,
        }
    )
    conditions.to_csv(folder / "CONDITION_OCCURRENCE.csv", index=False)
    labels.to_csv(folder / "labels.csv", index=False)
    return folder


def write_synthea_log(folder: Path) -> Path:
    """Write `events` as Synthea exports them, with labels."""
    log, labels = events()
    folder.mkdir()
    timed = log[log["time"].notna()]
    columns = {
        "START": timed["time"].dt.date,
        "PATIENT": timed["subject_id"],
        "CODE": timed["code"],
    }
    pd.DataFrame(columns).to_csv(folder / "conditions.csv", index=False)
    patients = labels["subject_id"].unique()
    pd.DataFrame({"Id": patients, "BIRTHDATE": "1980-05-06", "GENDER": "F"}).to_csv(
        folder / "patients.csv", index=False
    )
    labels.to_csv(folder / "labels.csv", index=False)
    return folder
