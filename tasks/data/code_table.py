"""Descriptions and ancestors of event codes, from tables that come with the events.

MEDS stores these tables in `metadata/codes.parquet`, and OMOP in `concept` and `concept_ancestor`.
Only codes that occur in the data, and their ancestors, are kept. This module reads no files,
because cache keys of estimators for events depend on the source of this module.
"""

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

import pandas as pd

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
        codes: Codes that occur in the data.
        descriptions: Descriptions by code; other codes are ignored.
        parents: Parents by code; a code listed as its own parent is ignored.
        where: Name of the file with the parents, for messages.

    Returns:
        Columns code (sorted, unique), description (empty if unknown) and parents (sorted list of
        all ancestors); None if neither descriptions nor parents are known.

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
            f"{where} has a loop of parents: {' -> '.join(error.args[1][::-1])}; no code may be "
            "its own ancestor, so remove one of these parents"
        ) from error
    table = pd.DataFrame({"code": known, "description": described}, dtype=str)
    table["parents"] = pd.Series([ancestors[code] for code in known], dtype=object)
    return table


def as_frames(table: pd.DataFrame | None) -> dict[str, pd.DataFrame]:
    """Return the frames that store a table, without list columns; empty for None."""
    if table is None:
        return {}
    pairs = table[["code", "parents"]].explode("parents").dropna()
    return {
        DESCRIPTIONS: table[["code", "description"]],
        PARENTS: pairs.rename(columns={"parents": "parent"}).reset_index(drop=True),
    }


def from_frames(parts: Mapping[str, pd.DataFrame]) -> pd.DataFrame | None:
    """Return the table from stored frames; None for early data sets, which have no table."""
    if DESCRIPTIONS not in parts:
        return None
    table = parts[DESCRIPTIONS].astype(str)
    parents = parts[PARENTS].astype(str).groupby("code")["parent"].agg(list)
    table["parents"] = pd.Series([parents.get(code, []) for code in table["code"]], dtype=object)
    return table
