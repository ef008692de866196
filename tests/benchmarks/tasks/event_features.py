"""What each part of the features of events gives, behind one model.

    tests/benchmarks/run tasks/event_features [DATA:LABELS ...] [--patients 5000] [--repeats 1]
        [--model lightgbm|shallow|logistic] [--settings windows,aggregations,...]

Cohorts of each family with that many patients (none with 0), and the sets that are named. All parts
first, then without each of them, then the default, and the paper's aggregations. Areas are means
over five folds of patients, times the repeats; the difference to all parts has the standard error
of repeated cross-validation, whose training rows overlap (Nadeau and Bengio 2003, Machine Learning
52). With `--settings`, the named arguments of `EventWindows` take all of their values together
instead, and the best and their means by value are printed. Seconds are CPU seconds of one fold.

`lightgbm` has 150 trees, all else at its default; `shallow` 200 trees of 6 leaves at a rate of
0.03 on half of the columns; `logistic` is a logistic regression of standardized columns with C
0.003. None is tuned.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from time import process_time
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier
from machine import describe
from numpy.typing import NDArray
from peer_tools.event_sets import EventSet
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from prefect_tune.tasks.catalogue.construction import EventAggregation
from prefect_tune.tasks.catalogue.event_windows import (
    AGGREGATIONS,
    LEVELS,
    SCALINGS,
    WINDOWS,
    EventWindows,
)
from prefect_tune.tasks.data.cohort import FAMILIES
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source

FOLDS = 5
ALL_PARTS = {
    "windows": "30_365", "aggregations": "every", "levels": "both", "scaling": "none",
    "min_share": 1e-3,
}  # fmt: skip
VALUES: dict[str, tuple[Any, ...]] = {
    "windows": tuple(WINDOWS),
    "aggregations": tuple(AGGREGATIONS),
    "levels": tuple(LEVELS),
    "scaling": tuple(SCALINGS),
    "min_share": (1e-3, 1e-2, 5e-2),
}
SHOWN = 12
"""Best settings that are printed."""
MODELS: dict[str, Callable[[], Any]] = {
    "lightgbm": lambda: LGBMClassifier(n_estimators=150, n_jobs=1, random_state=0, verbose=-1),
    "shallow": lambda: LGBMClassifier(
        n_estimators=200, learning_rate=0.03, num_leaves=6, colsample_bytree=0.5, n_jobs=1,
        random_state=0, verbose=-1,
    ),
    "logistic": lambda: make_pipeline(
        StandardScaler(with_mean=False), LogisticRegression(C=0.003, max_iter=300)
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Features:
    """A construction, of which some columns are kept.

    Attributes:
        make: A new estimator.
        is_kept: Whether a column of this name is kept; None for all.
    """

    make: Callable[[], Any]
    is_kept: Callable[[str], bool] | None = None

    def matrices(
        self, dataset: Dataset, train: NDArray[np.intp], held_out: NDArray[np.intp]
    ) -> list[sparse.csr_matrix]:
        """Return those of both parts, shape (n, p)."""
        made = self.make().fit(dataset.rows(train))
        matrices = [made.transform(dataset.rows(rows)) for rows in (train, held_out)]
        if self.is_kept is not None:
            names = made.get_feature_names_out()
            kept = np.flatnonzero([self.is_kept(str(name)) for name in names])
            matrices = [matrix[:, kept] for matrix in matrices]
        return [sparse.csr_matrix(matrix, dtype=np.float32) for matrix in matrices]


def windows(**changed: Any) -> Features:
    """All parts with some arguments changed."""
    return Features(lambda: EventWindows(**{**ALL_PARTS, **changed}))


def without(*endings: str) -> Features:
    """All parts without the columns of these aggregations, or of these names."""
    return Features(
        lambda: EventWindows(**ALL_PARTS),
        lambda name: not any(name.split(", ")[0].endswith(ending) for ending in endings),
    )


def parts() -> Iterator[tuple[str, Features]]:
    """All parts first."""
    yield "all parts", windows()
    yield "no windows", windows(windows="all")
    yield "windows 30", windows(windows="30")
    yield "windows 7_30_90_365_1095", windows(windows="7_30_90_365_1095")
    yield "counts alone", windows(aggregations="count")
    yield "no has", without(": has")
    yield "no recency", without(": recency")
    yield "no sum, no mean", without(": sum", ": mean")
    yield "no min, max, last, slope", without(": min", ": max", ": last", ": slope")
    yield "no values", windows(aggregations="count_recency")
    yield "no prefixes", windows(levels="code")
    yield "prefixes alone", windows(levels="prefixes")
    for scaling in ("log1p", "binary", "tfidf"):
        yield f"counts scaled {scaling}", windows(scaling=scaling)
    for share in (1e-4, 1e-2, 5e-2):
        yield f"min_share {share:g}", windows(min_share=share)
    yield "no age", without("age")
    yield "no facts", without(": is")
    yield "no history, events, days", without("history", "events")
    yield "none of these", without("age", ": is", "history", "events")
    yield "default", Features(EventWindows)
    for name in ("binary", "count", "sum", "average"):
        yield f"paper's {name}", Features(lambda name=name: EventAggregation(3, name))


def measure(dataset: Dataset, features: Features, model: str, repeats: int) -> dict[str, Any]:
    """Return areas, errors, columns and seconds, the first two for each fold."""
    y, groups = dataset.y, dataset.X.rows["subject_id"].to_numpy()
    areas, errors, construct, fit, n_columns = [], [], 0.0, 0.0, 0
    for seed in range(repeats):
        folds = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed)
        for train, held_out in folds.split(y, y, groups):
            started = process_time()
            X, X_held_out = features.matrices(dataset, train, held_out)
            construct += process_time() - started
            started = process_time()
            predicted = MODELS[model]().fit(X, y[train]).predict_proba(X_held_out)[:, 1]
            fit += process_time() - started
            areas.append(roc_auc_score(y[held_out], predicted))
            errors.append(100 * float(np.mean((predicted > 0.5) != y[held_out])))
            n_columns = X.shape[1]
    n = len(areas)
    return {
        "areas": np.array(areas), "error": np.mean(errors), "columns": n_columns,
        "construct": construct / n, "fit": fit / n,
    }  # fmt: skip


def ablate(dataset: Dataset, model: str, repeats: int) -> None:
    """Print the areas with all parts, and the differences without each."""
    first = None
    for name, features in parts():
        found = measure(dataset, features, model, repeats)
        first = found["areas"] if first is None else first
        above = found["areas"] - first
        error = np.sqrt((1 / len(above) + 1 / (FOLDS - 1)) * np.var(above, ddof=1))
        print(
            f"  {name:26s} AUROC {np.mean(found['areas']):.4f} ({np.mean(above):+.4f} +- "
            f"{error:.4f}), error {found['error']:5.2f} %, {found['columns']} columns, "
            f"construct {found['construct']:.2f} s, fit {found['fit']:.2f} s",
            flush=True,
        )


def try_all(dataset: Dataset, model: str, repeats: int, arguments: Sequence[str]) -> None:
    """Print the best settings of these arguments, and the mean area of each value."""
    settings = [
        dict(zip(arguments, values, strict=True))
        for values in product(*(VALUES[argument] for argument in arguments))
    ]
    found = [
        float(np.mean(measure(dataset, windows(**chosen), model, repeats)["areas"]))
        for chosen in settings
    ]
    for i in np.argsort(found)[::-1][:SHOWN]:
        print(f"  {found[i]:.4f}", *(f"{name}={value}" for name, value in settings[i].items()))
    for argument in arguments:
        means = {
            value: np.mean(
                [a for a, chosen in zip(found, settings, strict=True) if chosen[argument] == value]
            )
            for value in VALUES[argument]
        }
        print(f"  {argument}:", ", ".join(f"{value} {mean:.4f}" for value, mean in means.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sets", nargs="*", metavar="DATA:LABELS", type=EventSet.of)
    parser.add_argument("--patients", type=int, default=5_000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--model", choices=list(MODELS), default="lightgbm")
    parser.add_argument("--settings", type=lambda text: text.split(","), default=[])
    chosen = parser.parse_args()
    print(describe())
    sources = [(source.name, Source(source.data, labels=source.labels)) for source in chosen.sets]
    if chosen.patients:
        url = f"cohort:paper?n_patients={chosen.patients}&seed=91&family="
        sources = [(url + family, Source(url + family)) for family in FAMILIES] + sources
    for name, source in sources:
        dataset = read_source(source)
        print(f"{name}: {len(dataset)} rows, {dataset.n_features} codes, {chosen.model}")
        if chosen.settings:
            try_all(dataset, chosen.model, chosen.repeats, chosen.settings)
        else:
            ablate(dataset, chosen.model, chosen.repeats)
    print(describe())


if __name__ == "__main__":
    main()
