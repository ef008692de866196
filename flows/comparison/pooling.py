"""Standings over the curves of several comparisons, as files of `prefect-tune compare`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pyarrow import ArrowInvalid

from prefect_tune.flows.comparison.standings import CURVE_COLUMNS, standings
from prefect_tune.tasks.bad_input import BadInput

__all__ = ["pooled_standings", "read_curves"]

_STUDY = ["comparison", "dataset", "study"]


def read_curves(files: Sequence[str]) -> pd.DataFrame:
    """Return the curves of all files, one after the other.

    Raises:
        BadInput: If a file is missing, holds something else, or repeats what another one holds.
    """
    tables = [_read(file) for file in files]
    studies = pd.concat([t[_STUDY].drop_duplicates() for t in tables], ignore_index=True)
    if studies.duplicated().any():
        raise BadInput("two of the files hold the same comparison; name each once")
    return pd.concat(tables, ignore_index=True)


def pooled_standings(files: Sequence[str]) -> dict[str, Any]:
    """Return what `prefect-tune standings --json` prints.

    Raises:
        BadInput: If a file cannot be used, or not all of them have the same methods.
    """
    curves = read_curves(files)
    try:
        found = standings(curves)
    except ValueError as error:
        raise BadInput(str(error)) from error
    metrics = list(dict.fromkeys(curves["metric"]))
    return {"metric": metrics[0] if len(metrics) == 1 else "loss", "files": list(files), **found}


def _read(file: str) -> pd.DataFrame:
    if not Path(file).exists():
        raise BadInput(f"there is no file {file}")
    try:
        curves = pd.read_parquet(file)
    except (ArrowInvalid, OSError) as error:
        raise BadInput(f"{file} is not a Parquet file: {error}") from error
    missing = [column for column in CURVE_COLUMNS if column not in curves]
    if missing:
        raise BadInput(
            f"{file} has no column {missing[0]!r}; name a file that `prefect-tune compare` wrote"
        )
    return curves
