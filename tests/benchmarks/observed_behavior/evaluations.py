"""Twelve trials from four spaces: matrices, held-out predictions, losses and cache hits.

    python -m observed_behavior.evaluations INPUTS OUT.json

Runs four studies, each in its own store, and reads the stored results of every step, trial and
fold. Matrices and predictions are compared by content, because keys contain the versions of the
code, and pickles contain the paths of its modules.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from observed_behavior.product import in_home, printed, printed_json
from prefect_tune import local_server, tune

__all__ = ["STUDIES", "main"]

STUDIES: Mapping[str, Mapping[str, Any]] = {
    "healthcare": {"data": "events.csv", "labels": "labels.csv", "target": "boolean_value"},
    "modern": {"data": "classes.csv"},
    "regression": {"data": "numbers.csv", "drop": ["b", "color"]},
    "random_forest": {"data": "whole.csv", "epochs": 12},
}
"""By space, parameters of `tune` that are not the same for all."""
COMMON = {
    "target": "target", "method": "random", "trials": 3, "workers": 1, "folds": 3, "seed": 3,
    "ensemble": "single", "start": "none", "trial_timeout": "5m", "budget": "30m",
}  # fmt: skip
"""Parameters of all studies; no limit is near, and nothing depends on the clock."""


def observed(inputs: Path, store: Path) -> dict[str, Any]:
    """Run the studies and return their trials."""
    found = {}
    with local_server():
        for space, parameters in STUDIES.items():
            given = {**COMMON, "space": space, "study": space, **parameters}
            given |= {"data": str(inputs / given["data"]), "store": str(store / space)}
            if "labels" in given:
                given["labels"] = str(inputs / given["labels"])
            tune(**given)
            found[space] = _trials(space, store / space)
    return found


def _trials(study: str, store: Path) -> dict[str, Any]:
    trials = printed_json("trials", study, "--store", store)
    return {str(trial["number"]): _trial(trial, store) for trial in trials}


def _trial(trial: Mapping[str, Any], store: Path) -> dict[str, Any]:
    found = {"state": trial["state"], "query": trial["query"]}
    if failure := trial["failure"]:
        found["failure"] = {name: failure[name] for name in ("kind", "message", "step", "fold")}
    outcome = trial["evaluation"] or trial["failure"]
    names = [f"{step['step']}, fold {step['fold']}" for step in outcome["steps"]]
    found["order"] = names
    found["steps"] = {
        name: {"hit": step["hit"], **_matrices(step["key"], store)}
        for name, step in zip(names, outcome["steps"], strict=True)
    }
    if evaluation := trial["evaluation"]:
        values = ("loss", "fold_losses", "constraints", "curve", "fold_curves", "best_epoch")
        found |= {name: evaluation[name] for name in (*values, "trouble")}
        keys = evaluation["predictions"]
        found["predictions"] = [_predictions(key, store) for key in keys]
    return found


def _matrices(key: str, store: Path) -> dict[str, Any]:
    """Return the digests of the matrices of a step result, and of its labels if changed."""
    of_store = ("--store", store)
    names = [part["name"] for part in printed_json("artifacts", "show", key, *of_store)["files"]]
    found = {}
    with TemporaryDirectory() as folder:
        for name in set(names) - {"estimator"}:
            file = Path(folder, f"{name}.parquet")
            printed("artifacts", "export", key, file, "--part", name, *of_store)
            found[name] = _content(file)
    return found


def _predictions(key: str, store: Path) -> dict[str, Any]:
    """Return the digests of the files of a record of predictions: labels and scores."""
    folders = [path for path in (store / "records").rglob(key) if path.is_dir()]
    files = sorted(file for folder in folders for file in folder.rglob("*.parquet"))
    return {file.stem: _content(file) for file in files}


def _content(file: Path) -> dict[str, Any]:
    """Return the digest of a Parquet table's values, bit for bit, with their number and sum."""
    table = pyarrow.parquet.read_table(file)
    digest, n, total = sha256(), 0, 0.0
    for name in table.column_names:
        digest.update(f"column {name} ".encode())
        for values in _leaves(table[name].combine_chunks()):
            digest.update(f"{values.dtype} {len(values)} ".encode())
            if values.dtype == object:
                digest.update(json.dumps(values.tolist(), default=str).encode())
            else:
                digest.update(np.ascontiguousarray(values).tobytes())
                n, total = n + len(values), total + float(np.nansum(values.astype(float)))
    return {"rows": table.num_rows, "numbers": n, "sum": total, "sha256": digest.hexdigest()[:16]}


def _leaves(column: pa.Array) -> Iterator[np.ndarray]:
    """Yield the values of a column, possibly of lists, and the mask of missing values."""
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield column.value_lengths().to_numpy(zero_copy_only=False)
    if pa.types.is_nested(kind):
        flat = column.flatten()
        for part in flat if isinstance(flat, list) else [flat]:
            yield from _leaves(part)
    else:
        yield column.is_null().to_numpy(zero_copy_only=False)
        yield column.to_numpy(zero_copy_only=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("inputs", type=Path)
    parser.add_argument("out", type=Path)
    chosen = parser.parse_args()
    with TemporaryDirectory() as folder, in_home(Path(folder, "home")):
        found = observed(chosen.inputs, Path(folder))
    chosen.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
