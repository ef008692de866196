"""Errors and costs of SVMs over C, gamma and the size of the training subset, recorded once.

    tests/benchmarks/run optimizers/svm_grid ../shared/data PARTIAL [--table mnist_t10k]

An SVM with an RBF kernel on a 13 x 13 grid of ln C and ln gamma in [-10, 10], trained on dyadic
parts of the training rows; up to a quarter on three families of stratified subsets, each size
within the next, above it on the first. What is there in PARTIAL (JSON lines) is not trained again;
the whole is written as `svm_grids/TABLE.parquet` beside this file.

Costs are seconds of processor time of fitting and predicting the validation rows. Test rows are
predicted by what was trained on all rows. What is useless is not trained on, where `TABLES` gives
two limits: cells as wrong as the first (mean of the families) at a 16th, or at an eighth, are
trained on one family at the next size; those as wrong as the second at a quarter neither at half
nor in full, and those at half not in full. They copy the error of the next smaller size, for test
rows too, and their cost is the first family's, or goes on by its last ratio. The column `is_copied`
says so.
"""

import argparse
import json
import math
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from kept_rows import KeptRows
from machine import describe
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

GRIDS = Path(__file__).parent / "svm_grids"
LOGS = np.linspace(-10, 10, 13)
N_DRAWS = 3


@dataclass(frozen=True)
class Plan:
    """How a table is recorded.

    Attributes:
        n_rows: Of training; half of the others are validation rows, half test rows.
        smallest: Halvings of the smallest size.
        repeated: Percent wrong from which a cell is not trained on each family.
        useless: Percent wrong from which it is not trained on more.
    """

    n_rows: int
    smallest: int
    repeated: float = math.inf
    useless: float = math.inf


TABLES = {
    "mnist_t10k": Plan(7_000, 6, 80, 60),
    "cal_housing": Plan(13_760, 7, 30, 20),
    "phishing_websites": Plan(7_370, 7),
}
Cell = tuple[int, int, int, int]
CELL = ("i", "j", "halvings", "draw")


class Data:
    """Training, validation and test rows, and the order of the training rows in each family."""

    def __init__(self, folder: Path, name: str, n_rows: int) -> None:
        frame = pd.read_csv(folder / f"{name}.csv.gz")
        y = np.unique(frame.pop("target").to_numpy(), return_inverse=True)[1]
        x = frame.to_numpy(dtype=float)
        x, rest, self.y, y_rest = train_test_split(
            x, y, train_size=n_rows, stratify=y, random_state=0
        )
        x_held_out, x_test, self.y_held_out, self.y_test = train_test_split(
            rest, y_rest, test_size=0.5, stratify=y_rest, random_state=0
        )
        parts = (x, x_held_out, x_test)
        scaler = None if name == "mnist_t10k" else StandardScaler().fit(x)
        scaled = [p / 255 if scaler is None else scaler.transform(p) for p in parts]
        self.x, self.x_held_out, self.x_test = scaled
        self.orders = [self._stratified(np.random.default_rng(d)) for d in range(N_DRAWS)]

    def _stratified(self, rng: np.random.Generator) -> np.ndarray:
        """Rows in an order of which each beginning has the classes in their proportion."""
        place = np.zeros(len(self.y))
        for label in np.unique(self.y):
            rows = rng.permutation(np.flatnonzero(self.y == label))
            place[rows] = (np.arange(len(rows)) + rng.random()) / len(rows)
        return np.argsort(place)

    def trained(self, cell: Cell) -> dict[str, Any]:
        """Percent wrong of validation rows, of test rows by a full training, and seconds."""
        i, j, halvings, draw = cell
        n = round(len(self.y) / 2**halvings)
        rows = self.orders[draw][:n]
        x, y = self.x[rows], self.y[rows]
        started = process_time()
        model = SVC(C=np.exp(LOGS[i]), gamma=np.exp(LOGS[j]), cache_size=500).fit(x, y)
        error = 100 * np.mean(model.predict(self.x_held_out) != self.y_held_out)
        seconds = process_time() - started
        test = None
        if halvings == 0:
            test = float(100 * np.mean(model.predict(self.x_test) != self.y_test))
        return {"n_rows": n, "error": float(error), "test_error": test, "seconds": seconds}


def record(data: Data, path: Path, plan: Plan) -> list[dict[str, Any]]:
    """All cells, from small sizes to large ones, with what is copied."""
    kept, done = KeptRows(path, *CELL), dict[Cell, dict[str, Any]]()
    cells = [(i, j) for i in range(len(LOGS)) for j in range(len(LOGS))]
    for halvings in range(plan.smallest, -1, -1):
        for i, j in cells:
            for draw in range(N_DRAWS if halvings >= 2 else 1):
                cell = (i, j, halvings, draw)
                key = dict(zip(CELL, cell, strict=True))
                done[cell] = kept.get_or_make(key, partial(recorded, data, done, cell, plan))
        size = [r for (_, _, h, _), r in done.items() if h == halvings]
        took = sum(r["seconds"] for r in size if not r["is_copied"])
        n_copied = sum(r["is_copied"] for r in size)
        least = min(r["error"] for r in size)
        print(
            f"1/{2**halvings}: {len(size) - n_copied} trained in {took:.0f} s, {n_copied} copied, "
            f"least error {least:.2f} %; {describe()}",
            flush=True,
        )
    return [done[cell] for cell in sorted(done)]


def recorded(
    data: Data, done: dict[Cell, dict[str, Any]], cell: Cell, plan: Plan
) -> dict[str, Any]:
    """What a cell came to, trained or copied."""
    is_useless = _is_useless(done, cell, plan)
    row = _copied(done, cell) if is_useless else data.trained(cell)
    return {**row, **dict(zip(CELL, cell, strict=True)), "is_copied": is_useless}


def _is_useless(done: dict[Cell, dict[str, Any]], cell: Cell, plan: Plan) -> bool:
    """Whether a cell is known from smaller sizes not to be worth its training."""
    i, j, halvings, draw = cell
    if halvings > 3 or (halvings >= 2 and draw == 0):
        return False
    before = [done[i, j, halvings + 1, d] for d in range(N_DRAWS if halvings >= 1 else 1)]
    limit = plan.repeated if halvings >= 2 else plan.useless
    return float(np.mean([r["error"] for r in before])) >= limit


def _copied(done: dict[Cell, dict[str, Any]], cell: Cell) -> dict[str, Any]:
    """The error of the next smaller size, and a cost as the first family's or as it grew."""
    i, j, halvings, draw = cell
    before = done[i, j, halvings + 1, draw]
    if halvings >= 2:
        first = done[i, j, halvings, 0]
        return {**before, "n_rows": first["n_rows"], "seconds": first["seconds"]}
    ratio = before["seconds"] / done[i, j, halvings + 2, draw]["seconds"]
    test = before["error"] if halvings == 0 else None
    n = 2 * before["n_rows"]
    return {**before, "n_rows": n, "seconds": ratio * before["seconds"], "test_error": test}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("partial", help="folder of what was trained so far")
    parser.add_argument("--table", choices=tuple(TABLES), default="mnist_t10k")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(describe())
    plan = TABLES[options.table]
    data = Data(Path(options.data), options.table, plan.n_rows)
    partial = Path(options.partial)
    partial.mkdir(parents=True, exist_ok=True)
    path = partial / f"{options.table}-{plan.n_rows}.jsonl"
    rows = record(data, path, plan)
    for row in rows:
        row["log_c"], row["log_gamma"] = LOGS[row.pop("i")], LOGS[row.pop("j")]
    GRIDS.mkdir(exist_ok=True)
    meta = {"n_held_out": len(data.y_held_out), "n_classes": len(np.unique(data.y))}
    meta["n_rarest"] = int(np.bincount(data.y).min())
    table = pa.Table.from_pylist(rows)
    table = table.replace_schema_metadata({"rows": json.dumps(meta)})
    pq.write_table(table, GRIDS / f"{options.table}.parquet")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
