"""Previews of artifacts: their contents in a few numbers, for the artifacts commands."""

from math import prod
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

_ROWS, _COLUMNS = 5, 12
_TEXT = 80


def preview(value: Any) -> dict[str, Any]:
    """Return shape, type, first rows and statistics of a matrix, or attributes of an estimator.

    JSON values: `shape`, `dtype`, `rows` (first five), `columns` (minimum, mean, maximum and share
    of gaps or zeros of the first twelve) and `columns_not_shown` (count) of a matrix; `type`,
    `parameters` and `fitted` of an estimator.
    """
    about: dict[str, Any] = {}
    if isinstance(value, pd.DataFrame):
        head = value.head(_ROWS).to_numpy()
        rows = [[_plain(cell) for cell in row[:_COLUMNS]] for row in head]
        columns = {str(c): _series(value[c]) for c in value.columns[:_COLUMNS]}
        n_columns = value.shape[1]
    elif sparse.issparse(value):
        n_rows, n_columns = value.shape
        share = value.nnz / max(n_rows * n_columns, 1)
        about = {"dtype": str(value.dtype), "share_stored": share}
        rows = value[:_ROWS, :_COLUMNS].toarray().tolist()
        some = value[:, :_COLUMNS].tocsc()
        columns = {str(i): _column(some[:, [i]].toarray()) for i in range(some.shape[1])}
    elif isinstance(value, np.ndarray):
        about, n_columns = {"dtype": str(value.dtype)}, value[0].size if len(value) else 0
        matrix = value.reshape(len(value), prod(value.shape[1:]))[:, :_COLUMNS]
        rows = (value if value.ndim == 1 else matrix)[:_ROWS].tolist()
        columns = {str(i): _column(matrix[:, i]) for i in range(matrix.shape[1])}
    else:
        return _estimator(value)
    return {
        "shape": list(value.shape),
        **about,
        "rows": rows,
        "columns": columns,
        "columns_not_shown": max(n_columns - _COLUMNS, 0),
    }


def _column(values: np.ndarray[Any, Any]) -> dict[str, Any]:
    if not values.size or values.dtype.kind not in "biuf":
        return {}
    return {
        "min": _plain(values.min()),
        "mean": _plain(values.mean()),
        "max": _plain(values.max()),
        "share_zero": _plain(np.mean(values == 0)),
    }


def _series(series: pd.Series) -> dict[str, Any]:
    gaps = {"share_empty": _plain(series.isna().mean())}
    if isinstance(series.dtype, pd.CategoricalDtype):
        return {"categories": len(series.cat.categories), **gaps}
    return {**_column(series.dropna().to_numpy()), **gaps}


def _estimator(value: Any) -> dict[str, Any]:
    fitted = {
        name: _described(attribute)
        for name, attribute in sorted(getattr(value, "__dict__", {}).items())
        if name.endswith("_") and not name.startswith("_")
    }
    parameters = value.get_params(deep=False) if hasattr(value, "get_params") else {}
    return {
        "type": f"{type(value).__module__}.{type(value).__qualname__}",
        "parameters": {name: _described(parameter) for name, parameter in parameters.items()},
        "fitted": fitted,
    }


def _described(value: Any) -> Any:
    shape = getattr(value, "shape", None)
    if shape is not None and np.size(value) > 6:
        return f"{type(value).__name__} of shape {tuple(shape)}"
    text = repr(_plain(value) if np.isscalar(value) else value)
    return text if len(text) <= _TEXT else text[: _TEXT - 3] + "..."


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or value is pd.NaT or (isinstance(value, float) and not np.isfinite(value)):
        return None
    return value if isinstance(value, bool | int | float | str) else str(value)
