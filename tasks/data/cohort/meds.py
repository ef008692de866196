"""A synthetic cohort as a folder in the Medical Event Data Standard (MEDS 0.4).

The events are in `data/`, where a stratified fifth of the patients is held out; when to predict for
whom, and whether they are cases, is in `labels/case`; what was planted is in `truth.json`.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from prefect_tune.tasks.data.cohort.cohort import Cohort

LABELS = "labels/case"
"""Where the labels are in the folder."""

_TIME = pa.timestamp("us")
_DATA = pa.schema(
    [
        pa.field("subject_id", pa.int64(), nullable=False),
        pa.field("time", _TIME),
        pa.field("code", pa.string(), nullable=False),
        pa.field("numeric_value", pa.float32()),
    ]
)
_LABEL = pa.schema(
    [
        pa.field("subject_id", pa.int64(), nullable=False),
        pa.field("prediction_time", _TIME, nullable=False),
        pa.field("boolean_value", pa.bool_()),
        pa.field("categorical_value", pa.string()),
    ]
)
_SPLIT = pa.schema([("subject_id", pa.int64()), ("split", pa.string())])
_CODES = pa.schema([("code", pa.string()), ("description", pa.string())])
_COLUMNS = {
    "patient_id": "subject_id",
    "timestamp": "time",
    "event_id": "code",
    "value": "numeric_value",
    "label": "categorical_value",
}
_KINDS = {
    "MED": "common medication",
    "MAIN": "medication that tells the class by its",
    "DECOY": "medication that tells nothing, like one that would by its",
    "RARE": "rare medication",
    "XOR": "medication of a pair that together tells the class",
    "CLASS": "drug class",
    "AFTER": "after the prediction time:",
}


def write_meds(cohort: Cohort, name: str, folder: Path) -> None:
    """Write a cohort to a folder, which is made if it is not there.

    Args:
        cohort: What to write.
        name: What to call the data set.
        folder: Where to.
    """
    is_case = (cohort.labels["label"] == "case").to_numpy()
    split = _splits(is_case)
    events = cohort.events.rename(columns=_COLUMNS)
    for part in np.unique(split):
        rows = split[events["subject_id"].to_numpy()] == part
        _write(events[rows], _DATA, folder / "data" / part / "0.parquet")
    labels = cohort.labels.rename(columns=_COLUMNS).assign(boolean_value=is_case)
    _write(labels, _LABEL, folder / LABELS / "0.parquet")
    metadata = folder / "metadata"
    splits = pd.DataFrame({"subject_id": labels["subject_id"], "split": split})
    _write(splits, _SPLIT, metadata / "subject_splits.parquet")
    codes = pd.DataFrame({"code": events["code"].cat.categories})
    parts = (code.partition("//") for code in codes["code"])
    described = codes.assign(description=[f"{_KINDS[kind]} {name}" for kind, _, name in parts])
    _write(described, _CODES, metadata / "codes.parquet")
    about = {"dataset_name": name, "etl_name": "prefect-tune cohort", "meds_version": "0.4.0"}
    (metadata / "dataset.json").write_text(json.dumps(about, indent=2))
    (folder / "truth.json").write_text(json.dumps(cohort.truth, indent=2))


def _splits(is_case: NDArray[np.bool_]) -> NDArray[np.str_]:
    """Hold out the last fifth of the cases and of the controls, shape (patients,)."""
    split = np.full(len(is_case), "train", dtype="<U8")
    for members in (np.flatnonzero(is_case), np.flatnonzero(~is_case)):
        split[members[round(0.8 * len(members)) :]] = "held_out"
    return split


def _write(frame: pd.DataFrame, schema: pa.Schema, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pandas(frame, schema, preserve_index=False), path)
