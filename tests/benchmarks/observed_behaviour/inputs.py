"""Small inputs that both sides read: tables, patients' events, and a space whose models fail."""

from pathlib import Path

import numpy as np
import pandas as pd

__all__ = ["write_inputs"]

SPACE = '''"""Three models, one of which always fails."""

from ConfigSpace import ConfigurationSpace, Float, Integer

from prefect_tune import Algorithm, Flags, Space, Step

DEPTH = ConfigurationSpace(space=[Integer("max_depth", (1, 12))])
SEEDED = Flags(stochastic=True)
PENALTY = ConfigurationSpace(space=[Float("C", (1e-3, 1e3), log=True)])
space = Space(
    "failing",
    (
        Step("rescale", (
            Algorithm(id="none"),
            Algorithm(id="standardize", estimator="sklearn.preprocessing.StandardScaler"),
        )),
        Step("fit model", (
            Algorithm(id="tree", estimator="sklearn.tree.DecisionTreeClassifier",
                      fixed={"random_state": 0}, hyperparameters=DEPTH),
            Algorithm(id="line", estimator="sklearn.linear_model.LogisticRegression",
                      hyperparameters=PENALTY, flags=SEEDED),
            Algorithm(id="broken", estimator="sklearn.linear_model.LogisticRegression",
                      fixed={"solver": "no such solver"}, hyperparameters=PENALTY, flags=SEEDED),
        )),
    ),
)
'''


def write_inputs(folder: Path) -> None:
    """Write three tables, `events.csv` with `labels.csv`, and `failing.py`."""
    rng = np.random.default_rng(11)
    n = 240
    x = rng.normal(size=(n, 4)).round(6)
    colour = rng.choice(["red", "green", "blue"], n)
    frame = pd.DataFrame(x, columns=list("abcd")).assign(
        count=rng.integers(0, 9, n), colour=colour, code=[f"{i % 7:03d}" for i in range(n)]
    )
    score = x[:, 0] + 0.8 * (colour == "red") + 0.4 * x[:, 1] * x[:, 2] + 0.3 * rng.normal(size=n)
    frame.loc[rng.choice(n, n // 10, replace=False), "b"] = np.nan
    frame.loc[rng.choice(n, n // 10, replace=False), "colour"] = None
    whole = frame[["a", "c", "d", "count"]]
    classes = np.where(score > 0.3, "yes", "no")
    frame.assign(target=classes).to_csv(folder / "classes.csv", index=False)
    frame.assign(target=score.round(6)).to_csv(folder / "numbers.csv", index=False)
    whole.assign(target=classes).to_csv(folder / "whole.csv", index=False)
    _write_events(folder, rng)
    (folder / "failing.py").write_text(SPACE)


def _write_events(folder: Path, rng: np.random.Generator) -> None:
    rows, labels = [], []
    for patient in range(100, 220):
        is_case = patient % 2 == 0
        rows.append((patient, None, f"SEX//{patient % 3 % 2}", None))
        for day in range(1, 12):
            code = f"LAB//{rng.integers(8)}"
            rows.append((patient, f"2020-01-{day:02d}T08:00:00", code, round(rng.normal(), 4)))
        rows.append((patient, "2020-01-13T08:00:00", f"RARE//{patient % 37}", None))
        if rng.random() < (0.8 if is_case else 0.25):
            rows.append((patient, "2020-01-15T08:00:00", "DRUG//A", 1.0))
        labels.append((patient, "2020-02-01T00:00:00", "case" if is_case else "control"))
    events = pd.DataFrame(rows, columns=["subject_id", "time", "code", "numeric_value"])
    events.to_csv(folder / "events.csv", index=False)
    columns = ["subject_id", "prediction_time", "label"]
    pd.DataFrame(labels, columns=columns).to_csv(folder / "labels.csv", index=False)
