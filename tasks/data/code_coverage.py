"""Coverage of each code: the patients who have it, their events, and their classes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from prefect_tune.tasks.data.events import EventRows, positions

_EVENTS_AT_ONCE = 4_000_000


@dataclass(frozen=True, slots=True)
class CodeCoverage:
    """Events of one code.

    Attributes:
        code: The code.
        description: Its description; empty if unknown.
        patients: Share of the patients that have the code, 0 to 1.
        events: Mean number of its events among these patients.
        by_class: Share of patients with the code, by class; None for a class without patients.
            Empty unless the target has two classes.
    """

    code: str
    description: str
    patients: float
    events: float
    by_class: tuple[float | None, ...]


def code_coverage(
    X: EventRows, rows: NDArray[np.intp], label: NDArray[np.int32] | None = None
) -> list[CodeCoverage]:
    """Return the coverage of all codes in `rows` of `X`, the most frequent first.

    A patient with several rows counts once, with the latest row and its class. `label` has the
    class, 0 or 1, of each row of `X`; it is None for other targets.
    """
    patients, width = X.longest_rows(rows), len(X.codes)
    n_sides = 1 if label is None else 2
    side = np.zeros(len(patients), dtype=np.int32) if label is None else label[patients]
    n_events, n_with = np.zeros(width, dtype=np.int64), np.zeros((n_sides, width), dtype=np.int64)
    first = 0
    for taken in X.take(patients).pieces(_EVENTS_AT_ONCE):
        lengths = taken.stop - taken.start
        code = X.events["code"].cat.codes.to_numpy()[positions(taken.start, taken.stop)]
        n_events += np.bincount(code, minlength=width)
        cells = sparse.csr_array(
            (np.ones(len(code), dtype=np.int8), code, np.concatenate([[0], np.cumsum(lengths)])),
            shape=(len(lengths), width),
        )
        cells.sum_duplicates()
        side_of_cell = np.repeat(side[first : first + len(taken)], np.diff(cells.indptr))
        first += len(taken)
        for i in range(n_sides):
            n_with[i] += np.bincount(cells.indices[side_of_cell == i], minlength=width)
    n_patients, total = np.bincount(side, minlength=n_sides), n_with.sum(axis=0)
    descriptions = X.descriptions()
    vocabulary = X.codes
    order = np.lexsort((np.arange(width), -n_events, -total))
    return [
        CodeCoverage(
            vocabulary[i],
            descriptions.get(vocabulary[i], ""),
            float(total[i] / len(patients)),
            float(n_events[i] / total[i]),
            tuple(
                float(n_with[k, i] / n_patients[k]) if n_patients[k] else None
                for k in range(n_sides if n_sides > 1 else 0)
            ),
        )
        for i in order[: np.count_nonzero(total)].tolist()
    ]
