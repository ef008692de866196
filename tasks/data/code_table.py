"""Descriptions and ancestors of codes, from tables that come with the events.

MEDS has them in `metadata/codes.parquet`, OMOP in `concept` and `concept_ancestor`. What concerns
neither a code of the data nor one of its ancestors is not kept.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse
from scipy.sparse import csgraph

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.location import Location
from prefect_tune.tasks.data.table_files import is_text

DESCRIPTIONS, PARENTS = "codes", "code_parents"
"""Names of the stored frames."""


def code_table(
    codes: Iterable[str],
    descriptions: Mapping[str, str],
    parents: Mapping[str, Iterable[str]],
    where: str,
) -> pd.DataFrame | None:
    """Return what is known of codes and of all their ancestors.

    Args:
        codes: The codes of the data.
        descriptions: Descriptions of these and of other codes.
        parents: Parents of these and of other codes; a code among its own parents is ignored.
        where: The file of the parents, for a message.

    Returns:
        Columns code (sorted, unique), description (empty where unknown) and parents (a sorted list
        of all ancestors); None if there is neither a description nor a parent.

    Raises:
        BadInput: If a code is an ancestor of itself; names the codes of the loop.
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
    """Return the sorted ancestors of each of the sorted codes."""
    position = {code: i for i, code in enumerate(codes)}
    row = np.repeat(np.arange(len(codes)), [len(edges[code]) for code in codes])
    column = np.array([position[p] for code in codes for p in edges[code]], dtype=np.int64)
    ones = np.ones(len(row), dtype=bool)
    matrix = sparse.csr_array((ones, (row, column)), shape=(len(codes), len(codes)))
    n_parts, part = csgraph.connected_components(matrix, connection="strong")
    if n_parts < len(codes):
        members = np.flatnonzero(np.bincount(part)[part] > 1)
        loop = " -> ".join(_loop(codes[members[0]], edges))
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


def _loop(start: str, edges: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the shortest way from a code along its parents back to itself."""
    came_from: dict[str, str] = {}
    found, last = [start], ""
    for code in found:  # grows
        for parent in edges[code]:
            if parent == start:
                last = code
                break
            if parent not in came_from:
                came_from[parent] = code
                found.append(parent)
        if last:
            break
    way = [start, last]
    while way[-1] != start:
        way.append(came_from[way[-1]])
    return way[::-1]


def as_frames(table: pd.DataFrame | None) -> dict[str, pd.DataFrame]:
    """Return a table as frames without lists, to be stored; nothing for None."""
    if table is None:
        return {}
    pairs = table[["code", "parents"]].explode("parents").dropna()
    return {
        DESCRIPTIONS: table[["code", "description"]],
        PARENTS: pairs.rename(columns={"parents": "parent"}).reset_index(drop=True),
    }


def from_frames(parts: Mapping[str, pd.DataFrame]) -> pd.DataFrame | None:
    """Return the inverse of `as_frames`; data sets of earlier versions have no such frames."""
    if DESCRIPTIONS not in parts:
        return None
    table = parts[DESCRIPTIONS].astype(str)
    pairs = parts[PARENTS].astype(str)
    ends = np.searchsorted(pairs["code"].to_numpy(dtype=object), table["code"], side="right")
    lists = np.split(pairs["parent"].to_numpy(dtype=object), ends[:-1])
    table["parents"] = pd.Series([part.tolist() for part in lists], dtype=object)
    return table


def read_meds_codes(
    location: Location, codes: Iterable[str]
) -> tuple[pd.DataFrame | None, list[str]]:
    """Read `metadata/codes.parquet` of a MEDS data set.

    Args:
        location: The folder of the data set.
        codes: The codes of the data.

    Returns:
        The `code_table`, and notes for the user: what cannot be read is ignored.

    Raises:
        BadInput: If parents form a loop.
    """
    file = location.below("metadata/codes.parquet")
    if not file.exists():
        return None, []
    try:
        with file.filesystem.open(file.path, "rb") as opened:
            table = pq.read_table(opened)
    except Exception as error:  # of any kind: each file system is another library's
        return None, [f"{file.url} cannot be read, so codes have no descriptions: {error}"]
    texts = _texts(table, "code")
    if texts is None:
        return None, [f"{file.url} has no column code of texts and is ignored"]
    descriptions: dict[str, str] = {}
    for code, text in zip(texts, _texts(table, "description") or (), strict=False):
        if code is not None and text:
            descriptions.setdefault(code, text)
    parents, notes = _meds_parents(table, texts, file.url)
    return code_table(codes, descriptions, parents, file.url), notes


def _meds_parents(
    table: pa.Table, codes: Sequence[str | None], where: str
) -> tuple[dict[str, set[str]], list[str]]:
    """Return the parents of codes, and notes for the user."""
    parents: dict[str, set[str]] = {}
    if table.column_names.count("parent_codes") != 1:
        return parents, []
    column = table.column("parent_codes")
    if pa.types.is_null(column.type):
        return parents, []
    if not _is_list_of_texts(column.type):
        kind = f"of type {column.type}, not lists of texts"
        return parents, [f"parent_codes of {where} is {kind}, and is ignored"]
    for code, given in zip(codes, column.to_pylist(), strict=True):
        if code is not None and given:
            parents.setdefault(code, set()).update(filter(None, given))
    return parents, []


def _texts(table: pa.Table, name: str) -> list[str | None] | None:
    """Return a column of texts; None without one."""
    if table.column_names.count(name) != 1:
        return None
    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.to_pylist() if is_text(column.type) else None


def _is_list_of_texts(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind)
    return bool(is_list and is_text(kind.value_type))
