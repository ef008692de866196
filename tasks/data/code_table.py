"""Codes of events: descriptions and ancestors, from tables that come with the events, and coverage.

MEDS has these tables in `metadata/codes.parquet`, OMOP in `concept` and `concept_ancestor`. Entries
that are neither a code of the data nor one of its ancestors are dropped. Estimators of events
import this module, so their keys depend on its text. It therefore reads no files.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from prefect_tune.tasks.bad_input import BadInput

if TYPE_CHECKING:
    from prefect_tune.tasks.data.events import EventRows

DESCRIPTIONS, PARENTS = "codes", "code_parents"
"""Names of the stored frames."""
_PATIENTS_AT_ONCE = 10_000


def code_table(
    codes: Iterable[str],
    descriptions: Mapping[str, str],
    parents: Mapping[str, Iterable[str]],
    where: str,
) -> pd.DataFrame | None:
    """Return the descriptions and ancestors of codes and of all their ancestors.

    Args:
        codes: The codes of the data.
        descriptions: Descriptions of these codes, and perhaps of others.
        parents: Parents of these codes, and perhaps of others; a code among its own parents is
            ignored.
        where: Name of the parents' file in messages.

    Returns:
        Columns code (sorted, unique), description (empty if unknown) and parents (sorted list of
        all ancestors). None if nothing is known.

    Raises:
        BadInput: If a code is an ancestor of itself; the message names the codes of the loop.
    """
    edges: dict[str, list[str]] = {}
    waiting = [*codes]
    while waiting:
        code = waiting.pop()
        if code not in edges:
            edges[code] = sorted({*parents.get(code, ())} - {code})
            waiting += edges[code]
    known = sorted(edges)
    described = [descriptions.get(code, "") for code in known]
    if not any(described) and not any(edges.values()):
        return None
    ancestors: dict[str, list[str]] = {}
    try:
        for code in TopologicalSorter(edges).static_order():  # parents first
            of_parents = [ancestors[parent] for parent in edges[code]]
            ancestors[code] = sorted({*edges[code]}.union(*of_parents))
    except CycleError as error:
        raise BadInput(
            f"{where} has a loop of parents: {' -> '.join(error.args[1][::-1])}; no code may be an "
            "ancestor of itself, so remove one of these parents"
        ) from error
    table = pd.DataFrame({"code": known, "description": described}, dtype=str)
    table["parents"] = pd.Series([ancestors[code] for code in known], dtype=object)
    return table


def as_frames(table: pd.DataFrame | None) -> dict[str, pd.DataFrame]:
    """Return a table as frames without lists, for storage; no frames for None."""
    if table is None:
        return {}
    pairs = table[["code", "parents"]].explode("parents").dropna()
    return {
        DESCRIPTIONS: table[["code", "description"]],
        PARENTS: pairs.rename(columns={"parents": "parent"}).reset_index(drop=True),
    }


def from_frames(parts: Mapping[str, pd.DataFrame]) -> pd.DataFrame | None:
    """Invert `as_frames`; None for data sets of earlier versions, which have no such frames."""
    if DESCRIPTIONS not in parts:
        return None
    table = parts[DESCRIPTIONS].astype(str)
    parents = parts[PARENTS].astype(str).groupby("code")["parent"].agg(list)
    table["parents"] = pd.Series([parents.get(code, []) for code in table["code"]], dtype=object)
    return table


@dataclass(frozen=True, slots=True)
class CodeCoverage:
    """Events of one code.

    Attributes:
        code: The code.
        description: Its description; empty if unknown.
        patients: Share of the patients that have the code, 0 to 1.
        events: Mean number of its events among these patients.
        by_class: Share of patients with the code, by class; empty unless there are two classes.
    """

    code: str
    description: str
    patients: float
    events: float
    by_class: tuple[float, ...]


def code_coverage(
    X: "EventRows", rows: NDArray[np.intp], label: NDArray[np.int32] | None = None
) -> list[CodeCoverage]:
    """Return the coverage of all codes in `rows` of `X`, the most frequent first.

    A patient with several rows counts once, with the latest row and its class. `label` has the
    class, 0 or 1, of each row of `X`; it is None for other targets.
    """
    patients, width = X.longest_rows(rows), len(X.codes)
    n_sides = 1 if label is None else 2
    side = np.zeros(len(patients), dtype=np.int32) if label is None else label[patients]
    n_events, n_with = np.zeros(width), np.zeros((n_sides, width))
    for first in range(0, len(patients), _PATIENTS_AT_ONCE):
        chunk = slice(first, first + _PATIENTS_AT_ONCE)
        code, offsets = X.take(patients[chunk]).codes_of_events()
        shape = len(offsets) - 1, width
        counts = sparse.csr_array((np.ones(len(code)), code, offsets), shape=shape)
        counts.sum_duplicates()
        n_events += counts.sum(axis=0)
        for i in range(n_sides):
            n_with[i] += np.bincount(counts[side[chunk] == i].indices, minlength=width)
    n_patients, total = np.bincount(side, minlength=n_sides), n_with.sum(axis=0)
    shares = n_with / np.maximum(n_patients, 1)[:, None]
    descriptions, vocabulary = X.descriptions(), X.codes
    order = np.lexsort((-n_events, -total))[: np.count_nonzero(total)]
    return [
        CodeCoverage(
            vocabulary[i],
            descriptions.get(vocabulary[i], ""),
            float(total[i] / len(patients)),
            float(n_events[i] / total[i]),
            () if label is None else tuple(shares[:, i].tolist()),
        )
        for i in order.tolist()
    ]
