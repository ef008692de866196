"""Previews of artifacts: their contents in a few numbers, for the artifacts commands."""

import json
from math import prod
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

_COLUMNS, _TEXT = 12, 80


def preview(value: Any) -> dict[str, Any]:
    """Return shape, first rows and statistics of a matrix, or attributes of an estimator.

    JSON values: `shape`, `dtype` (not of a frame), `rows` (first five), `columns` (statistics of
    the first twelve by name, as pandas describes them) and `columns_not_shown` (count) of a matrix;
    `type`, `parameters` and `fitted` of an estimator.
    """
    if isinstance(value, pd.DataFrame):
        frame = value.iloc[:, :_COLUMNS]
    elif sparse.issparse(value):
        frame = pd.DataFrame(value[:, :_COLUMNS].toarray())
    elif isinstance(value, np.ndarray):
        matrix = value.reshape(len(value), prod(value.shape[1:]))
        frame = pd.DataFrame(matrix[:, :_COLUMNS])
    else:
        parameters = value.get_params(deep=False) if hasattr(value, "get_params") else {}
        fitted = sorted(getattr(value, "__dict__", {}).items())
        return {
            "type": f"{type(value).__module__}.{type(value).__qualname__}",
            "parameters": {name: _short(parameter) for name, parameter in parameters.items()},
            "fitted": {
                name: _short(attribute)
                for name, attribute in fitted
                if name.endswith("_") and not name.startswith("_")
            },
        }
    described = frame.describe(include="all") if len(frame.columns) else frame
    return {
        "shape": list(value.shape),
        **({} if isinstance(value, pd.DataFrame) else {"dtype": str(value.dtype)}),
        "rows": json.loads(frame.head().to_json(orient="values", date_format="iso")),
        "columns": json.loads(described.to_json(date_format="iso")),
        "columns_not_shown": max(prod(value.shape[1:]) - _COLUMNS, 0),
    }


def _short(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is not None and np.size(value) > 6:
        return f"{type(value).__name__} of shape {tuple(shape)}"
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= _TEXT else text[: _TEXT - 3] + "..."
