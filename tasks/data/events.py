"""Patient events: (patient, time, code, value), cut for each row at the time of its prediction.

What happened after a row's prediction time does not exist for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.ids import like_ids

_BIRTH = "MEDS_BIRTH"


@dataclass(frozen=True)
class EventRows:
    """Rows of a data set, each with the events of one patient up to one time.

    Attributes:
        events: Columns subject_id, time (empty for what holds at any time), code and value (empty
            where there is none); the events of a patient are contiguous and in order of time.
        rows: Columns subject_id and prediction_time, n rows.
        start: First event of each row, shape (n,).
        stop: One past the last event of each row at or before its prediction time, shape (n,).
    """

    events: pd.DataFrame
    rows: pd.DataFrame
    start: NDArray[np.int64]
    stop: NDArray[np.int64]

    @classmethod
    def build(cls, events: pd.DataFrame, rows: pd.DataFrame) -> Self:
        """Sort events by patient and time and find those of each row.

        Raises:
            BadInput: If a row's patient has no events, or none at or before the row's time but
                birth and what holds at any time.
        """
        ordered = events.sort_values(["subject_id", "time"], na_position="first", kind="stable")
        rows = rows.assign(subject_id=like_ids(rows["subject_id"], events["subject_id"]))
        start, stop = _bounds(ordered, rows)  # names patients as the user wrote them
        events, rows = canonical(ordered), canonical(rows)
        is_birth = [is_birth_code(str(code)) for code in events["code"].cat.categories]
        is_given = np.array(is_birth)[events["code"].cat.codes] | events["time"].isna().to_numpy()
        given_before = np.concatenate([[0], np.cumsum(is_given)])
        n_given = given_before[stop] - given_before[start]
        empty = rows["subject_id"][stop - start == n_given]
        if len(empty):
            raise BadInput(
                f"{len(empty)} of {len(rows)} labels have no event of their patient at or before "
                f"their time (birth aside), for instance patient {empty.iloc[0]}; drop these "
                "labels or bring the patients' events"
            )
        return cls(events, rows, start, stop)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and of different codes."""
        return len(self.start), len(self.codes)

    def __len__(self) -> int:
        return len(self.start)

    @property
    def codes(self) -> list[str]:
        """The vocabulary, sorted."""
        return list(self.events["code"].cat.categories)

    def take(self, rows: NDArray[np.intp]) -> Self:
        """Return some of the rows, in that order; the events are shared."""
        taken = self.rows.iloc[rows].reset_index(drop=True)
        return type(self)(self.events, taken, self.start[rows], self.stop[rows])

    def frames(self) -> dict[str, pd.DataFrame]:
        """Return all that it holds, as frames by name."""
        return {"events": self.events, "rows": self.rows}

    def parts(self) -> dict[str, Any]:
        """Return all that is stored, by name: the frames, and the bounds of the rows."""
        return {**self.frames(), "start": self.start, "stop": self.stop}

    @classmethod
    def from_parts(cls, parts: Mapping[str, Any]) -> Self:
        """Return the inverse of `parts`; data sets of earlier versions lack the bounds."""
        events, rows = parts["events"], parts["rows"]
        if "start" not in parts:
            return cls(events, rows, *_bounds(events, rows))
        return cls(events, rows, parts["start"], parts["stop"])


def is_birth_code(code: str) -> bool:
    """Return whether a code is the birth of a patient."""
    return code == _BIRTH or code.startswith(f"{_BIRTH}//")


def positions(start: NDArray[np.int64], stop: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return every position from each start to before its stop, one piece after the other."""
    lengths = stop - start
    made = np.repeat(start - (np.cumsum(lengths) - lengths), lengths)
    made += np.arange(len(made))
    return made


def _bounds(
    events: pd.DataFrame, rows: pd.DataFrame
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and one past the last event of each row, shape (n,) each."""
    patients = pd.Index(events["subject_id"].unique())
    boundaries = np.flatnonzero(np.diff(patients.get_indexer(events["subject_id"]), prepend=-1))
    ends = np.append(boundaries[1:], len(events))
    patient = patients.get_indexer(rows["subject_id"])
    if (patient < 0).any():
        unknown = rows["subject_id"][patient < 0]
        raise BadInput(
            f"{len(unknown)} labels are of patients without any event, for instance patient "
            f"{unknown.iloc[0]}; drop these labels or bring the patients' events"
        )
    times = events["time"].to_numpy().astype(np.int64)  # an empty time is the smallest number
    until = rows["prediction_time"].to_numpy().astype(np.int64)
    start, end = boundaries[patient], ends[patient]
    stop = np.array(
        [
            a + np.searchsorted(times[a:b], t, side="right")
            for a, b, t in zip(start, end, until, strict=True)
        ],
        dtype=np.int64,
    )
    return start.astype(np.int64), stop
