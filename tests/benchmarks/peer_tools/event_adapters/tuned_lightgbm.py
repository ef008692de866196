"""LightGBM tuned by 50 trials of Optuna on a hand-made matrix.

Columns are the age at the prediction time, the days of history, the static events (codes without a
time, such as sex), and the counts of each code of at least two training patients in the last 30
days, the last 365 days and ever. A trial is scored by the mean AUROC of three folds of the
training patients. Options: `trials`. The budget does not limit this tool; its seconds are printed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold

from peer_tools.event_sets import ID, LABEL, TIME, EventSplit
from prefect_tune.tasks.data.events import is_birth_code

TRIALS = 50
FOLDS = 3
LEAST = 2
"""Training patients that must have a code."""
WINDOWS = (30, 365, None)
"""Days; None is ever."""


def predictions(
    split: EventSplit, _folder: Path, _seconds: float, options: Mapping[str, str]
) -> NDArray[np.float64]:
    """Tune, fit the best model on all training patients, and predict."""
    import optuna
    from lightgbm import LGBMClassifier

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    labels = split.labels("train")
    y, groups = labels[LABEL].to_numpy(), labels[ID].to_numpy()
    X, X_test = matrices(split)
    folder_of = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=split.seed)
    folds = list(folder_of.split(X, y, groups))
    common = {"subsample_freq": 1, "n_jobs": 1, "random_state": split.seed, "verbose": -1}

    def score(trial: Any) -> float:
        chosen = {
            "learning_rate": trial.suggest_float("learning_rate", 0.01, 0.3, log=True),
            "n_estimators": trial.suggest_int("n_estimators", 30, 500, log=True),
            "num_leaves": trial.suggest_int("num_leaves", 3, 128, log=True),
            "min_child_samples": trial.suggest_int("min_child_samples", 3, 100, log=True),
            "colsample_bytree": trial.suggest_float("colsample_bytree", 0.2, 1.0),
            "subsample": trial.suggest_float("subsample", 0.5, 1.0),
            "reg_alpha": trial.suggest_float("reg_alpha", 1e-3, 10.0, log=True),
            "reg_lambda": trial.suggest_float("reg_lambda", 1e-3, 10.0, log=True),
        }
        areas = []
        for train, held_out in folds:
            fitted = LGBMClassifier(**chosen, **common).fit(X[train], y[train])
            areas.append(roc_auc_score(y[held_out], fitted.predict_proba(X[held_out])[:, 1]))
        return float(np.mean(areas))

    sampler = optuna.samplers.TPESampler(seed=split.seed)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(score, n_trials=int(options.get("trials", TRIALS)))
    fitted = LGBMClassifier(**study.best_params, **common).fit(X, y)
    return np.asarray(fitted.predict_proba(X_test)[:, 1], dtype=np.float64)


def matrices(split: EventSplit) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    """Return the matrices of the training and of the test labels, shape (n, p)."""
    frames = {part: _events_of_rows(split, part) for part in ("train", "test")}
    in_training = frames["train"].drop_duplicates([ID, "code"])["code"].value_counts()
    codes = pd.Index(sorted(in_training.index[in_training >= LEAST]))
    train, test = (
        _matrix(frames[part], len(split.labels(part)), codes) for part in ("train", "test")
    )
    return train, test


def _events_of_rows(split: EventSplit, part: str) -> pd.DataFrame:
    """Return the events of each label up to its time, with the number of the label."""
    labels = split.labels(part)[[ID, TIME]].reset_index(names="row")
    events = split.source.events.merge(labels, on=ID)
    return events[events["time"].isna() | (events["time"] <= events[TIME])]


def _matrix(events: pd.DataFrame, n_rows: int, codes: pd.Index) -> sparse.csr_matrix:
    is_birth = np.array([is_birth_code(code) for code in events["code"]])
    days = (events[TIME] - events["time"]).dt.total_seconds() / 86_400
    is_timed = events["time"].notna().to_numpy()
    age = days[is_birth].groupby(events["row"]).max().reindex(range(n_rows)) / 365.25
    history = days[is_timed & ~is_birth].groupby(events["row"]).max().reindex(range(n_rows))
    column = codes.get_indexer(events["code"])
    blocks = [sparse.csr_array(np.column_stack((age, history)))]
    for window in (0, *WINDOWS):  # 0 is for the facts
        inside = days <= np.inf if window is None else days <= window
        kept = (inside & is_timed & ~is_birth if window != 0 else ~is_timed) & (column >= 0)
        cells = (np.ones(kept.sum()), (events["row"].to_numpy()[kept], column[kept]))
        counts = sparse.coo_array(cells, shape=(n_rows, len(codes)))
        blocks.append(sparse.csr_array(counts))
    return sparse.csr_matrix(sparse.hstack(blocks, dtype=np.float32))  # LightGBM warns of arrays
