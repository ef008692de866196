"""Features of events behind one LightGBM: windows beside the best aggregation of each code.

    tests/benchmarks/run tasks/event_features [--events DATA LABELS]... [--repeats 1] [--no-cohorts]

Cohorts of each family with 20,000 patients, and the data sets that are named. AUROC and error are
means over five folds, with the standard error of the AUROC; 150 trees, all else at its default.
Seconds are CPU seconds of one fold.
"""

import argparse
from collections.abc import Callable, Iterator
from time import process_time
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier
from machine import describe
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold

from prefect_tune.tasks.catalogue.construction import EventAggregation
from prefect_tune.tasks.catalogue.event_windows import AGGREGATIONS, WINDOWS, EventWindows
from prefect_tune.tasks.data.cohort.orders import FAMILIES
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source

Make = Callable[[], Any]


def constructions() -> Iterator[tuple[str, Make]]:
    """The default first, then each aggregation, then one change of the default at a time."""
    yield "windows", EventWindows
    for name in ("binary", "count", "sum", "average"):
        yield f"aggregate {name}", lambda name=name: EventAggregation(3, name)
    defaults = EventWindows().get_params()
    changes: dict[str, tuple[Any, ...]] = {
        "windows": tuple(WINDOWS),
        "aggregations": tuple(AGGREGATIONS),
        "levels": ("code", "both"),
        "scaling": ("none", "tfidf"),
        "min_share": (1e-4, 1e-2),
    }
    for argument, values in changes.items():
        for value in values:
            if value != defaults[argument]:
                yield f"{argument}={value}", lambda a=argument, v=value: EventWindows(**{a: v})


def measure(dataset: Dataset, make: Make, repeats: int) -> str:
    """Scores and seconds of one construction."""
    X, y, groups = dataset.X, dataset.y, dataset.X.rows["subject_id"].to_numpy()
    areas, errors, construct, fit, n_columns = [], [], 0.0, 0.0, 0
    for seed in range(repeats):
        folds = StratifiedGroupKFold(5, shuffle=True, random_state=seed)
        for train, held_out in folds.split(y, y, groups):
            started = process_time()
            made = make().fit(X.take(train))
            features = [made.transform(X.take(rows)) for rows in (train, held_out)]
            construct += process_time() - started
            started = process_time()
            model = LGBMClassifier(n_estimators=150, n_jobs=1, random_state=0, verbose=-1)
            model.fit(features[0].astype(np.float32), y[train])
            fit += process_time() - started
            predicted = model.predict_proba(features[1].astype(np.float32))[:, 1]
            areas.append(roc_auc_score(y[held_out], predicted))
            errors.append(100 * float(np.mean((predicted > 0.5) != y[held_out])))
            n_columns = features[0].shape[1]
    n = len(areas)
    return (
        f"AUROC {np.mean(areas):.4f} +- {np.std(areas, ddof=1) / n**0.5:.4f}, error "
        f"{np.mean(errors):5.2f} %, {n_columns} columns, construct {construct / n:.2f} s, "
        f"fit {fit / n:.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--events", nargs=2, action="append", default=[])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--no-cohorts", action="store_true")
    chosen = parser.parse_args()
    print(describe())
    sources = [Source(data, labels=labels) for data, labels in chosen.events]
    if not chosen.no_cohorts:
        url = "cohort:paper?n_patients=20000&seed=91&family="
        sources = [Source(url + family) for family in FAMILIES] + sources
    for source in sources:
        dataset = read_source(source)
        print(f"{source.data}: {len(dataset.X)} rows, {len(dataset.X.codes)} codes")
        for name, make in constructions():
            print(f"  {name:40s} {measure(dataset, make, chosen.repeats)}", flush=True)
    print(describe())


if __name__ == "__main__":
    main()
