"""Tables with many classes, columns or categories: a short study of each ends with a model.

    tests/benchmarks/run flows/large_tables [--budget 60s] [--workers 2] [--only NAME ...]

The tables are random: 20,000 rows of 1,000 classes, 2,000 rows of 10,000 columns, and 200,000 rows
with two columns of 100,000 categories each. Each study runs in a new process and a new home, so its
start-up time counts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from machine import Goals, describe

RUN = [sys.executable, "-m", "prefect_tune.deployments"]


def many_classes(n: int = 20_000, n_classes: int = 1_000) -> pd.DataFrame:
    """Return rows around one center per class."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, n)
    X = rng.normal(size=(n_classes, 10))[y] + rng.normal(0, 0.5, (n, 10))
    return _frame(X).assign(y=[f"class {c:04d}" for c in y])


def many_columns(n: int = 2_000, n_columns: int = 10_000) -> pd.DataFrame:
    """Return two classes that depend on twenty of the columns."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, n_columns))
    return pd.concat([_frame(X), _yes_or_no(X[:, :20] @ rng.normal(size=20))], axis=1)


def many_categories(n: int = 200_000, n_categories: int = 100_000) -> pd.DataFrame:
    """Return two columns of categories, one with an effect, and four numeric columns."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, n_categories, (2, n))
    X = rng.normal(size=(n, 4))
    texts = {"a": [f"a{v}" for v in a], "b": [f"b{v}" for v in b]}
    score = rng.normal(size=n_categories)[a] + X[:, 0] + rng.normal(size=n)
    return pd.concat([_frame(X).assign(**texts), _yes_or_no(score)], axis=1)


def many_rows(n: int) -> pd.DataFrame:
    """Return a long table with two classes, ten numeric columns and a category."""
    rng = np.random.default_rng(0)
    X, category = rng.normal(size=(n, 10)), rng.integers(0, 20, n)
    score = X[:, 0] * X[:, 1] + X[:, 2] + rng.normal(size=20)[category] + rng.normal(size=n)
    return pd.concat([_frame(X), _yes_or_no(score)], axis=1).assign(c=[f"c{v}" for v in category])


def _frame(X: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])


def _yes_or_no(score: np.ndarray) -> pd.Series:
    return pd.Series(np.where(score > 0, "yes", "no"), name="y")


TABLES: Mapping[str, Callable[[], pd.DataFrame]] = {
    "classes": many_classes, "columns": many_columns, "categories": many_categories,
    **{f"{n}_rows": partial(many_rows, n) for n in (10_000, 100_000, 1_000_000)},
}  # fmt: skip
ALWAYS = ["classes", "columns", "categories"]


def study(name: str, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Run a study of a table, and return its result."""
    path = folder / f"{name}.csv"
    TABLES[name]().to_csv(path, index=False)
    words = ["--budget", given.budget, "--workers", str(given.workers), "--study", "large"]
    command = [*RUN, "run", str(path), "--target", "y", *words]
    env = {**os.environ, "PREFECT_TUNE_HOME": str(folder / f"home-{name}")}
    start = perf_counter()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    seconds = perf_counter() - start
    show = [*RUN, "show", "large", "--json"]
    shown = subprocess.run(show, env=env, capture_output=True, text=True, check=False)
    summary = json.loads(shown.stdout) if shown.returncode == 0 else {}
    return {
        "table": name,
        "code": done.returncode,
        "seconds": round(seconds, 1),
        "trials": summary.get("n_trials"),
        "configurations": summary.get("n_begun"),
        "test loss": summary.get("test_loss"),
        "longest line": max(map(len, (done.stdout + done.stderr).splitlines()), default=0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", nargs="*", choices=TABLES, default=ALWAYS)
    given = parser.parse_args()
    print(describe())
    with tempfile.TemporaryDirectory() as folder:
        found = [study(name, Path(folder), given) for name in given.only]
    print(pd.DataFrame(found).to_string(index=False))
    goals = Goals()
    for result in found:
        goals.at_most(f"{result['table']}: exit code, 0 with a model", result["code"], 0)
        goals.at_most(f"{result['table']}: longest line", result["longest line"], 1_000)
    goals.end()


if __name__ == "__main__":
    main()
