"""The files that README and pages mention."""

from pathlib import Path

import pandas as pd
from inputs import events, table, write_meds, write_omop_log, write_synthea_log

__all__ = ["write_inputs"]


def write_inputs(folder: Path) -> None:
    """Write all files, in a small size."""
    patients = table().rename(columns={"target": "responder"})
    patients.insert(0, "patient", range(len(patients)))
    patients.to_csv(folder / "patients.csv", index=False)
    patients.drop(columns="responder").head(20).to_csv(folder / "new_patients.csv", index=False)
    dates = pd.date_range("2024-01-01", periods=len(patients), freq="3D")
    visits = patients.assign(patient=[i // 2 for i in range(len(patients))], visit_date=dates)
    visits[:100].to_parquet(folder / "visits.parquet", index=False)
    visits[100:].to_parquet(folder / "later_visits.parquet", index=False)
    header = [f"@ATTRIBUTE {name} NUMERIC" for name in ("patient", "a", "b", "c", "count")]
    header += ["@ATTRIBUTE color {red,green,blue}", "@ATTRIBUTE responder {no,yes}", "@DATA"]
    rows = patients.to_csv(index=False, header=False, na_rep="?")
    (folder / "patients.arff").write_text("\n".join(["@RELATION patients", *header, rows]))
    write_omop_log(folder / "cdm")
    write_synthea_log(folder / "synthea")
    meds = write_meds(folder / "meds")
    (meds / "labels" / "task").rename(meds / "labels" / "responder")
    spread_over_time(meds / "labels" / "responder" / "0.parquet")
    log, labels = events()
    log.set_axis(["patient", "time", "event", "value"], axis=1).to_csv(
        folder / "events.csv", index=False
    )
    labels.set_axis(["patient", "prediction_time", "responder"], axis=1).to_csv(
        folder / "labels.csv", index=False
    )


def spread_over_time(path: Path) -> None:
    """Order the prediction times by patient, as folds by time require."""
    labels = pd.read_parquet(path)
    first, later = labels["subject_id"] - labels["subject_id"].min(), labels.index % 2
    days = pd.to_timedelta(16 * first + 5 * later, unit="D")
    labels.assign(prediction_time=pd.Timestamp("2020-01-20") + days).to_parquet(path, index=False)
