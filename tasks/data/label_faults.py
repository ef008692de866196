"""Labels of patient events that cannot be right, such as labels before the patient's birth."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.events import EventRows

_HALF = 0.5


def label_faults(X: EventRows, target: pd.Series) -> pd.DataFrame:
    """Return the labels that cannot be right, once for each fault.

    A time in the future is no fault if most events are later than today, because dates that were
    shifted to protect patients are.

    Args:
        X: The events and the n rows of the labels.
        target: Classes or numbers of the rows, shape (n,), with rows numbered from 0.

    Returns:
        Columns subject_id, prediction_time, label and fault; the index has positions of rows.
    """
    rows, patients = X.rows, X.rows["subject_id"].astype(object)
    times = rows["prediction_time"].to_numpy()
    is_empty, is_unknown = X.start == X.stop, np.zeros(len(rows), dtype=bool)
    if is_empty.any():
        is_unknown[is_empty] = ~patients[is_empty].isin(X.events["subject_id"].unique())
    is_repeated = rows.duplicated(keep=False).to_numpy()
    keys = [patients[is_repeated], rows["prediction_time"][is_repeated]]
    is_other = np.zeros(len(rows), dtype=bool)
    is_other[is_repeated] = target[is_repeated].groupby(keys).transform("nunique") > 1
    now = np.datetime64("now", "us")
    is_future = times > now
    if is_future.any() and (X.events["time"] > now).mean() > _HALF:
        is_future[:] = False
    found = {
        "of patients without any event": is_unknown,
        "without an event up to their time (birth aside)": is_empty & ~is_unknown,
        "that contradict another label of their patient and time": is_other,
        "before the birth of their patient": times < _first_times(X, patients, "MEDS_BIRTH"),
        "after the death of their patient": times > _first_times(X, patients, "MEDS_DEATH"),
        "in the future": is_future,
    }
    labelled = rows.assign(label=target)
    parts = [labelled[is_faulty].assign(fault=fault) for fault, is_faulty in found.items()]
    return pd.concat(parts)


def _first_times(X: EventRows, patients: pd.Series, code: str) -> NDArray[np.datetime64]:
    """Return the time of the first event with a code of each row's patient, shape (n,)."""
    is_code = np.array([name.split("//")[0] == code for name in X.codes], dtype=bool)
    events = X.events[is_code[X.events["code"].cat.codes.to_numpy()]]
    first = events["time"].groupby(events["subject_id"].astype(object)).min()
    return first.reindex(patients).to_numpy(dtype="datetime64[us]")


def fault_notes(faults: pd.DataFrame, n_rows: int, where: str) -> list[str]:
    """Return a note on the labels that cannot be right; raise `BadInput` if most are so."""
    counts = [
        f"{len(part)} {fault}, such as patient {part['subject_id'].iloc[0]}"
        for fault, part in faults.groupby("fault", sort=False)
    ]
    n_faulty = faults.index.nunique()
    text = f"{n_faulty} of {n_rows} labels of {where} cannot be right: {'; '.join(counts)}"
    if n_faulty > _HALF * n_rows:
        raise BadInput(text, remedy="correct the labels, which --explain-labels lists")
    return [f"{text} (--explain-labels lists them)"] if n_faulty else []
