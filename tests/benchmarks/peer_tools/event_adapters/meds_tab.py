"""MEDS-Tab 0.2 with its off-by-one mended, by its commands, in an environment of its own.

`prepare` makes the environment in FOLDER/meds-tab. As released, the first of two
aggregations, by patient and time, leaves out the last event of each time, so that times with one
event are empty. `extremes=mended` also mends that minima and maxima of all rows fall into the
first row.

A fifth of the training patients tune: they stop each fit early and choose the best of the trials.
All else is its default: windows of 1, 7, 30 and 365 days and all, counts of codes, counts, sums,
sums of squares, minima and maxima of values, static codes, and XGBoost over its own space; but the
upper end of the least count of a code is the largest count, not a million, which would leave half
of the trials without a column. Only events up to the last label of a patient are written, since
others change no row. They are made into columns once for all splits, which takes minutes. Other
options: `trials`. The seconds of the budget do not bound it.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.model_selection import train_test_split

from peer_tools.event_sets import ID, LABEL, TIME, EventSet, EventSplit
from peer_tools.runs import environment_in

PACKAGE = "meds-tab==0.2.0"
TRIALS = 50
TUNING_SIZE = 0.2
"""Share of the training patients that tune."""
WINDOWS = ("1d", "7d", "30d", "365d", "full")
OF_VALUES = ("value/count", "value/sum", "value/sum_sqd", "value/min", "value/max")
MENDED = {
    'windows = group_df.select(pl.col("min_index", "max_index"))':
    'windows = group_df.select(pl.col("min_index"), pl.col("max_index") + 1)',
}  # fmt: skip
EXTREMES = {
    "row.append(agg_matrix.row)": "row.append(np.full(len(agg_matrix.col), i, dtype=np.int32))"
}
LABELS = Path("labels", "all", "0.parquet")
PATCHED = "generate_summarized_reps.py"


def prepare(home: Path) -> None:
    """Make the environment, if it is not there."""
    environment_in(home / "meds-tab", PACKAGE)


def predictions(
    split: EventSplit,
    folder: Path,
    seconds: float,  # noqa: ARG001
    options: Mapping[str, str],
) -> NDArray[np.float64]:
    """Tabularize once for all splits, tune on this one, and read what the best trial predicts."""
    home = folder.parents[1]
    environment, extremes = home / "meds-tab", options.get("extremes") == "mended"
    name = f"{split.source.name}{'-extremes' if extremes else ''}"
    made = home / "meds-tab-features" / name
    if not (made / "ready").exists():
        _mend(environment, with_extremes=extremes)
        _tabularize(environment, split.source, made)
    parts = _parts(split)
    labels = pd.read_parquet(made / LABELS)
    label = pd.Index(labels["patient"])
    aggregations = set()
    for part, patients in parts.items():
        rows = np.flatnonzero(label.isin(patients))
        path = folder / "labels" / part / "0.parquet"
        path.parent.mkdir(parents=True)
        labels.iloc[rows][[ID, TIME, LABEL]].to_parquet(path, index=False)
        for whole in (made / "tabularize" / "all" / "0").glob("*/*/*.npz"):
            window, kind, aggregation = whole.with_suffix("").parts[-3:]
            aggregations.add(f"{kind}/{aggregation}")
            _write_rows(whole, rows, folder / "tabularize" / part / "0" / window / kind)
    largest = int(pd.read_parquet(made / "metadata" / "codes.parquet")["count"].max())
    _command(
        environment, folder, "xgboost", "--multirun", f"input_dir={made / 'data'}",
        f"output_dir={made}", *_chosen(sorted(aggregations)), "task_name=task",
        f"output_model_dir={folder / 'models'}", f"input_label_cache_dir={folder / 'labels'}",
        f"input_tabularized_cache_dir={folder / 'tabularize'}",
        f"tabularization.min_code_inclusion_count=tag(log, range(2, {largest}))",
        f"hydra.sweeper.n_trials={options.get('trials', TRIALS)}", "hydra.sweeper.n_jobs=1",
        f"hydra.sweeper.sampler.seed={split.seed}",
    )  # fmt: skip
    (best,) = (folder / "models").glob("*/best_trial/held_out_predictions.parquet")
    predicted = pd.read_parquet(best).merge(labels[["patient", ID, TIME]], on=[ID, TIME])
    predicted[ID] = predicted["patient"]
    wanted = split.labels("test")[[ID, TIME]].astype({ID: predicted[ID].dtype})
    found = wanted.merge(predicted, on=[ID, TIME], how="left")
    return found["predicted_boolean_probability"].to_numpy(np.float64)


def _tabularize(environment: Path, source: EventSet, made: Path) -> None:
    """Write a MEDS data set of one shard, and make the columns of all of its labels.

    Nothing in them depends on a split: codes are counted in all shards. The tool skips the files
    that are there, so that what was interrupted goes on.
    """
    dataset, events = source.dataset, source.events
    rows = dataset.X.rows.assign(**{LABEL: dataset.y.astype(bool)}).sort_values([ID, TIME])
    number = pd.Series({patient: i for i, patient in enumerate(rows[ID].unique())})
    labels = rows[[ID, TIME, LABEL]].assign(
        **{ID: rows[ID].map(number), TIME: rows[TIME].astype("datetime64[us]"), "patient": rows[ID]}
    )
    last = events[ID].map(rows.groupby(ID)[TIME].max())
    kept = events[last.notna() & (events["time"].isna() | (events["time"] <= last))]
    shard = pd.DataFrame(
        {
            ID: kept[ID].map(number).astype(np.int64),
            "time": kept["time"].astype("datetime64[us]"),
            "code": kept["code"],
            "numeric_value": kept["value"].astype(np.float32),
        }
    ).sort_values([ID, "time"], na_position="first", kind="stable")
    for path, frame in ((made / "data" / "all" / "0.parquet", shard), (made / LABELS, labels)):
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.to_parquet(path, index=False)
    is_static = shard["time"].isna()
    has_values = shard.loc[~is_static, "numeric_value"].notna().any()
    aggregations = ["code/count", *(OF_VALUES if has_values else ())]
    aggregations += ["static/present"] if is_static.any() else []
    places = [f"input_dir={made / 'data'}", f"output_dir={made}"]
    _command(environment, made, "describe", *places)
    places += [*_chosen(aggregations), f"input_label_dir={made / 'labels'}"]
    for what in ("tabularize-static", "tabularize-time-series"):
        _command(environment, made, what, *places)
    (made / "ready").touch()


def _parts(split: EventSplit) -> dict[str, NDArray[Any]]:
    largest = split.labels("train").groupby(ID)[LABEL].max()
    train, tuning = train_test_split(
        largest.index.to_numpy(), test_size=TUNING_SIZE, stratify=largest, random_state=split.seed
    )
    return {"train": train, "tuning": tuning, "held_out": split.labels("test")[ID].to_numpy()}


def _write_rows(whole: Path, rows: NDArray[np.intp], folder: Path) -> None:
    """Write some rows of a matrix, in the form in which the tool keeps it."""
    kept = np.load(whole)
    (data, row, column), shape = kept["array"], kept["shape"]
    matrix = sparse.csr_array((data, (row.astype(int), column.astype(int))), shape=tuple(shape))
    part = sparse.coo_array(matrix[rows])
    row, column = part.coords
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / whole.name, array=np.array([part.data, row, column]), shape=part.shape)


def _chosen(aggregations: Sequence[str]) -> list[str]:
    return [
        f"tabularization.aggs=[{','.join(aggregations)}]",
        f"tabularization.window_sizes=[{','.join(WINDOWS)}]",
    ]


def _mend(environment: Path, *, with_extremes: bool) -> None:
    """Write the aggregations anew, mended."""
    (module,) = environment.glob(f"lib/*/site-packages/MEDS_tabular_automl/{PATCHED}")
    original = module.with_suffix(".released")
    if not original.exists():
        original.write_text(module.read_text())
    text = original.read_text()
    for old, new in {**MENDED, **(EXTREMES if with_extremes else {})}.items():
        assert text.count(old) == 1, f"{PACKAGE} is not as expected: {old}"
        text = text.replace(old, new)
    module.write_text(text)


def _command(environment: Path, folder: Path, name: str, *arguments: str) -> None:
    """Run one of its commands, with one thread."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    command = [environment / "bin" / f"meds-tab-{name}", *arguments]
    with (folder / "log").open("a") as log:
        subprocess.run(
            command, env={**kept, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"},
            stdout=log, stderr=log, check=True, cwd=folder,
        )  # fmt: skip
