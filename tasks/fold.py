"""One fold of a path run: its rows, and all that its nodes share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.fitting.fitting import FoldData
from prefect_tune.tasks.fitting.matrix_summary import MatrixSummary
from prefect_tune.tasks.study_context import StudyContext

__all__ = ["Fold", "FoldRows"]


@dataclass(frozen=True)
class Fold:
    """Data, study and store, shared by all nodes of a fold."""

    number: int
    dataset: Dataset
    training: NDArray[np.intp]
    held_out: NDArray[np.intp]
    context: StudyContext
    store: ArtifactStore
    origin: Mapping[str, Any]

    def data(self, train: Any, held_out: Any) -> FoldData:
        """Return what an algorithm learns from and is judged on."""
        dataset = self.dataset
        return FoldData(
            train,
            held_out,
            dataset.labels[self.training],
            np.array(dataset.classes),
            self.context.memory_limit_bytes,
        )


class FoldRows:
    """The rows of a fold before any step, where its chain begins."""

    key = ""
    hit = False
    steps: tuple[Mapping[str, Any], ...] = ()

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        kind = "pickle" if isinstance(fold.dataset.X, EventRows) else "frame"
        self.summary: MatrixSummary | None = MatrixSummary(
            len(fold.training), fold.dataset.n_features, kind
        )

    def matrices(self) -> tuple[Any, Any]:
        """Return the training and held-out rows."""
        dataset = self.fold.dataset
        return dataset.rows(self.fold.training), dataset.rows(self.fold.held_out)

    def held_out_matrix(self) -> Any:
        """Return the held-out rows."""
        return self.fold.dataset.rows(self.fold.held_out)

    def release(self) -> None:
        """Do nothing: rows belong to the data set."""
