"""Descriptions and ancestors of codes, from tables that come with the events.

MEDS has these tables in `metadata/codes.parquet`, OMOP in `concept` and `concept_ancestor`. Entries
that are neither a code of the data nor one of its ancestors are dropped. Estimators of events
import this module, so their keys depend on its text. It therefore reads no files.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.sparse import csgraph

from prefect_tune.tasks.bad_input import BadInput

DESCRIPTIONS, PARENTS = "codes", "code_parents"
"""Names of the stored frames."""


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
    table = pd.DataFrame({"code": known, "description": described}, dtype=str)
    table["parents"] = pd.Series(_ancestors(known, edges, where), dtype=object)
    return table


def _ancestors(
    codes: Sequence[str], edges: Mapping[str, Sequence[str]], where: str
) -> list[list[str]]:
    position = {code: i for i, code in enumerate(codes)}
    row = np.repeat(np.arange(len(codes)), [len(edges[code]) for code in codes])
    column = np.array([position[p] for code in codes for p in edges[code]], dtype=np.int64)
    ones = np.ones(len(row), dtype=bool)
    matrix = sparse.csr_array((ones, (row, column)), shape=(len(codes), len(codes)))
    n_parts, part = csgraph.connected_components(matrix, connection="strong")
    if n_parts < len(codes):
        start = int(np.flatnonzero(np.bincount(part)[part] > 1)[0])
        distance, before = csgraph.shortest_path(
            matrix, unweighted=True, indices=start, return_predecessors=True
        )
        last = min(matrix[:, [start]].nonzero()[0].tolist(), key=distance.__getitem__)
        way = [start, last]
        while way[-1] != start:
            way.append(int(before[way[-1]]))
        loop = " -> ".join(codes[i] for i in way[::-1])
        raise BadInput(
            f"{where} has a loop of parents: {loop}; no code may be an ancestor of itself, so "
            "remove one of these parents"
        )
    n_known = -1
    while n_known < matrix.nnz:
        n_known = matrix.nnz
        matrix = sparse.csr_array(matrix + matrix @ matrix)
    matrix.sort_indices()
    names = np.array(codes, dtype=object)[matrix.indices]
    return [names[a:b].tolist() for a, b in zip(matrix.indptr, matrix.indptr[1:], strict=False)]


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
    pairs = parts[PARENTS].astype(str)
    ends = np.searchsorted(pairs["code"].to_numpy(dtype=object), table["code"], side="right")
    lists = np.split(pairs["parent"].to_numpy(dtype=object), ends[:-1])
    table["parents"] = pd.Series([part.tolist() for part in lists], dtype=object)
    return table
