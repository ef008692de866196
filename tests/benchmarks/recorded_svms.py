"""Grids of SVMs as objectives, interpolated between the recorded cells.

Recorded once: an SVM with an RBF kernel on a 13 x 13 grid of ln C and ln gamma in [-10, 10],
trained on dyadic parts of the training rows. Up to a quarter of the rows, three families of nested
stratified subsets were used; above a quarter, only the first family. Costs are seconds of processor
time for fitting and for predicting the validation rows. Cells with useless results on small subsets
were not trained on larger subsets: `is_copied` marks these cells, which have the error of the next
smaller size.
"""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from ConfigSpace import ConfigurationSpace, Float
from simulation import Outcome

from prefect_tune.optimizers import Algorithm, Configuration, Objective, Query, Space, Step

__all__ = ["GRIDS", "LOGS", "Grid"]

GRIDS = Path(__file__).parent / "optimizers" / "svm_grids"
LOGS = np.linspace(-10, 10, 13)
"""ln C and ln gamma of the cells."""


class Grid:
    """Errors and costs over ln C, ln gamma and the size of the subset.

    Attributes:
        space: C and gamma, both on a logarithmic scale.
        objective: Objective of a study of these rows.
        errors: Errors in percent by the number of halvings of the rows, shape (draws, 13, 13).
        costs: Seconds by the number of halvings of the rows, same shape.
    """

    def __init__(self, name: str) -> None:
        table = pq.read_table(GRIDS / f"{name}.parquet")
        rows = json.loads(table.schema.metadata[b"rows"])
        frame = table.to_pandas().sort_values(["halvings", "draw", "log_c", "log_gamma"])
        shape = (-1, len(LOGS), len(LOGS))
        by_size = list(frame.groupby("halvings"))
        self.errors = [size["error"].to_numpy().reshape(shape) for _, size in by_size]
        self.costs = [size["seconds"].to_numpy().reshape(shape) for _, size in by_size]
        bounds = (math.exp(-10), math.exp(10))
        floats = [Float(n, bounds, default=1.0, log=True) for n in ("C", "gamma")]
        svm = ConfigurationSpace(space=floats)
        algorithm = Algorithm(id="svm", estimator="sklearn.svm.SVC", hyperparameters=svm)
        self.space = Space(name, (Step("model", (algorithm,)),))
        n_rows = int(by_size[0][1]["n_rows"].iloc[0])
        self.objective = Objective(n_rows=n_rows, n_folds=1, **rows)

    @property
    def best(self) -> float:
        """Least error after training on all rows, in percent."""
        return float(self.errors[0].min())

    @property
    def full_cost(self) -> float:
        """Mean seconds of training on all rows: the unit of costs."""
        return float(self.costs[0].mean())

    def outcome(self, query: Query) -> Outcome:
        """Return error and seconds at the recorded size that is nearest on a logarithmic scale."""
        halvings = min(round(-math.log2(query.subset)), len(self.errors) - 1)
        draw = query.subset_draw % len(self.errors[halvings])
        values = self.errors[halvings][draw], np.log(self.costs[halvings][draw])
        error, log_cost = (self._between(v, query.configuration) for v in values)
        return error, math.exp(log_cost)

    def full_error(self, configuration: Configuration) -> float:
        """Return the error on the validation rows in percent after training on all rows."""
        return self._between(self.errors[0][0], configuration)

    def _between(self, values: np.ndarray, configuration: Configuration) -> float:
        """Interpolate linearly in ln C and ln gamma."""
        chosen = dict(dict(configuration.choices)["model"].values)
        step = LOGS[1] - LOGS[0]
        at = [(math.log(chosen[n]) - LOGS[0]) / step for n in ("C", "gamma")]
        i, j = (min(max(int(a), 0), len(LOGS) - 2) for a in at)
        u, v = at[0] - i, at[1] - j
        square = values[i : i + 2, j : j + 2]
        return float(np.array([1 - u, u]) @ square @ np.array([1 - v, v]))
