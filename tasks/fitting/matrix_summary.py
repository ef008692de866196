"""A small summary of a matrix, which outlives its bytes."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from prefect_tune.storage.codec import layout

__all__ = ["MatrixSummary"]


@dataclass(frozen=True, slots=True)
class MatrixSummary:
    """A matrix without its elements: enough for later steps to compute their keys.

    Attributes:
        rows: Rows to train on.
        columns: Columns.
        layout: dense, sparse, frame or pickle (anything else).
        dtype: Type of the elements; empty for frames.
        density: Share of elements that are not zero.
        minimum: Smallest element of the training rows; None for frames.
        n_classes: Classes of the data set; 0 where numbers are predicted. Not the matrix's own, so
            it is not kept with it.
    """

    rows: int
    columns: int
    layout: str
    dtype: str = ""
    density: float = 1.0
    minimum: float | None = None
    n_classes: int = 0

    @classmethod
    def of(cls, X: Any) -> "MatrixSummary":
        """Summarise a training matrix."""
        rows, columns = X.shape
        kind = layout(X)
        if kind not in ("dense", "sparse"):
            return cls(rows, columns, kind)
        n_nonzero = X.nnz if kind == "sparse" else int(np.count_nonzero(X))
        minimum = float(X.min()) if rows and columns else None
        return cls(rows, columns, kind, str(X.dtype), n_nonzero / max(rows * columns, 1), minimum)

    def to_json(self) -> dict[str, Any]:
        """Return what is kept with the matrix, as JSON values."""
        kept = asdict(self)
        del kept["n_classes"]
        return kept
