"""Reports made without studies: a full report, and nearly empty reports."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from flow_studies import study_view

from prefect_tune.deployments.report.judged_model import ModelReport
from prefect_tune.deployments.report.study_report import Reproduction, StudyReport
from prefect_tune.flows.reading.study_view import CacheUse
from prefect_tune.flows.wording.text import FailureGroup
from prefect_tune.optimizers.importance import Effect, Importance, Input
from prefect_tune.optimizers.trials.outcome import FailureKind
from prefect_tune.tasks.final.quality import (
    LossInterval,
    calibration,
    class_curve,
    class_quality,
    errors_of_bins,
    residual_counts,
)

NASTY = (
    "</script><script>alert(1)</script> <img src=x onerror=alert(2)> `tick` \"quote\" 'one' 🦊 & "
    "\x1b[31m"
)
"""A name or message that would be markup, a script, or steer a terminal."""
TRACEBACK = "".join(f'  File "{NASTY}", line {n}, in <module>\n' for n in range(3))
N = 5_000


def choice(algorithm: str, **values: Any) -> dict[str, Any]:
    return {"algorithm": algorithm, "hyperparameters": values}


CONFIGURATION = {"rescale": choice("none"), "fit model": choice("tree", depth=3, note=NASTY)}
SUMMARY = study_view(
    study="made-up", method="flash", data=f"s3://me:secret@bucket/{NASTY}", n_trials=N,
    n_complete=N - 30, n_partial=40, n_failed=30, n_waiting=0, n_begun=N - 40,
    incumbent={
        "trial": 1, "loss": 12.5, "fidelity": "", "constraints": {"latency_us": 7.0},
        "configuration": CONFIGURATION,
    },
    finalists=[
        {"trial": 1, "loss": 12.5, "recheck_loss": 13.0},
        {"trial": 2, "loss": 12.75, "recheck_loss": None},
    ],
    ensemble={"kind": "agnostic", "members": [], "losses": [], "nested": {"single": 12.5}},
    model_trial=None, single_best_test_loss=13.5, is_of_events=True,
    decisions={"notes": [NASTY], "race": {"begun": 90, "stopped": 40}},
    seconds={
        "total": 75.0, "evaluating": 70.0, "asking": 1.0, "budget": 60.0, "over_budget": 15.0,
    },
)  # fmt: skip
REPRODUCTION = Reproduction(
    command=("prefect-tune", "run", "it's here.csv", "--target", NASTY, "--study", "made-up"),
    longer=("prefect-tune", "run", "it's here.csv", "--budget", "20m", "--study", "made-up"),
    resumed=("prefect-tune", "run", "it's here.csv", "--study", "made-up"),
    obstacle="",
    repeats_itself=False,
    facts={"data": "it's here.csv", "seed": "3", "python": "3.13.1"},
)


def judged() -> ModelReport:
    """Return the report of a model of patient events, with hostile codes and descriptions."""
    effects = pd.DataFrame(
        [
            (NASTY, f"{NASTY}: count", 0.4, 0.12, 0.01, f"{NASTY} {'long ' * 30}"),
            (NASTY, f"{NASTY}: mean, 30 days", None, 0.12, 0.01, f"{NASTY} {'long ' * 30}"),
            ("LAB//1", "LAB//1: last", -0.3, 0.05, 0.002, "Sodium"),
            ("age, years", "age, years", 0.001, 0.01, 0.001, ""),
        ],
        columns=["code", "column", "direction", "strength", "spread", "description"],
    )
    y = np.arange(120) % 3 > 1
    score = np.linspace(0.1, 0.6, 120) + 0.3 * y
    classes = class_quality(y, score > 0.5, ["no", NASTY]).rename(columns={"rows": "test_rows"})
    confusion = [("no", "no", 60), ("no", NASTY, 20), (NASTY, "no", 10), (NASTY, NASTY, 30)]
    coverage = {
        "code": [f"{NASTY} {k}" for k in range(21)],
        "description": ["", *[NASTY] * 20],
        "n_patients": 10,
        "patients": [1 / (k + 1) for k in range(21)],
        "events": 2.5,
        "patients_of_0": 0.5,
        "patients_of_1": np.nan,
    }
    return ModelReport(
        n_training=480,
        n_rows=120,
        units="patients",
        classes=("no", NASTY),
        intervals={
            "error": LossInterval(25.0, 20.0, 30.0, 1_000, 90),
            "auroc": LossInterval(0.2, 0.15, 0.25, 1_000, 90),
        },
        is_balanced=True,
        tables={
            "classes": classes.assign(training_rows=[400, 80]),
            "confusion": pd.DataFrame(confusion, columns=["actual", "predicted", "rows"]),
            "curves": class_curve(y, score).assign(label=NASTY),
            "calibration": calibration(y, score),
            "effects": effects,
            "coverage": pd.DataFrame(coverage),
        },
        effects_of=1,
        n_sample=120,
        n_codes=9,
        measure="auroc",
        n_hidden=3,
    )


def of_table() -> ModelReport:
    """Return the report of a model of a table with three classes, one of them without test rows."""
    y = np.arange(90) % 2
    classes = class_quality(y, y, ["a", "b", NASTY]).rename(columns={"rows": "test_rows"})
    curve = {"column": "age", "kind": "number", "label": "a", "score": [0.1, 0.4]}
    place = {**curve, "column": NASTY, "kind": "category", "value": ["north", NASTY]}
    since = {**curve, "column": "since", "kind": "date", "value": [16_000.0, 18_000.0]}
    columns = [("age", "number", 0.0, "18 to 90"), (NASTY, "category", 0.25, "north, 2 rare")]
    effects = {"code": ["age"], "column": "age", "direction": 0.5, "strength": 0.2}
    return ModelReport(
        n_training=300,
        n_rows=90,
        intervals={"error": LossInterval(0.0, 0.0, 4.0, 0, 90)},
        tables={
            "classes": classes.assign(training_rows=[150, 100, 50]),
            "confusion": pd.DataFrame({"actual": ["a", "b"], "predicted": ["a", "b"], "rows": 45}),
            "curves": class_curve(y == 1, y * 0.5).assign(label="b"),
            "effects": pd.DataFrame({**effects, "spread": 0.1, "description": ""}),
            "dependence": pd.concat(
                map(pd.DataFrame, ({**curve, "value": [20.0, 60.0]}, place, since))
            ),
            "columns": pd.DataFrame(columns, columns=["column", "kind", "missing", "values"]),
        },
        effects_of=1,
        n_sample=90,
        n_codes=2,
        measure="error",
    )


def of_numbers() -> ModelReport:
    """Return the report of a regression model."""
    y = np.arange(100.0)
    return ModelReport(
        n_training=300,
        n_rows=100,
        intervals={"r2": LossInterval(0.2, None, None, 0, 1), "auroc": None},
        tables={
            "by_predicted": errors_of_bins(y, y + 1, y + 1),
            "by_actual": errors_of_bins(y, y + 1, y),
            "residuals": residual_counts(y, y + y % 7),
        },
    )


def full(n: int = N) -> StudyReport:
    """Return the full report of a study of n evaluations, with hostile names and messages."""
    rng = np.random.default_rng(0)
    losses = (15 + rng.gamma(2.0, size=n) * 4).tolist()
    states = ["failed" if k % 170 == 0 else "complete" for k in range(n)]
    losses[1] = 12.5
    partial = [k % 3 > 0 and k % 170 > 0 and k != 1 for k in range(n)]
    use = {"configurations": 9, "full": 7, "failed": 1, "best": 12.5, "trial": 1, "median": 14.0}
    return StudyReport(
        series=None,
        summary=SUMMARY,
        created=1.7e9,
        progress=pd.DataFrame({
            "trial": range(n),
            "seconds": [k * 0.7 for k in range(n)],
            "evaluations": range(1, n + 1),
            "loss": [None if s == "failed" else x for s, x in zip(states, losses, strict=True)],
            "cost_seconds": 1.0,
            "state": states,
            "is_partial": partial,
            "fidelity": ["folds 1 of 3" if of else "full" for of in partial],
            "phase": ["design" if k < 40 else NASTY for k in range(n)],
        }),
        incumbents=leads((0.0, 1, 0, "full", 20.0), (0.7, 2, 1, "full", 12.5)),
        algorithms=pd.DataFrame([
            {"step": "rescale", "algorithm": "none", **use},
            {"step": "rescale", "algorithm": NASTY, **use},
            {"step": "fit model", "algorithm": "tree", **use},
        ]),
        paths=pd.DataFrame([
            {"params_rescale": name, "params_fit model": "tree", **use} for name in ("none", NASTY)
        ]),
        step_times=pd.DataFrame([{
            "step": "fit model", "served": 4, "load_seconds": 0.1, "made": 9, "made_seconds": 50.0,
            "saved_seconds": 12.0,
        }]),
        failures=[
            FailureGroup(
                FailureKind.ERROR, "fit model", f"{NASTY}\nsecond line", TRACEBACK, [0, 170], 3.0
            ),
            FailureGroup(
                FailureKind.TIMEOUT, "fit model", "took more than 15 s", "", list(range(28)), 420.0
            ),
        ],
        trade_offs=pd.DataFrame({
            "quantity": "latency_us",
            "trial": range(150),
            "loss": losses[:150],
            "value": rng.gamma(2.0, size=150),
            "is_best": [k in {1, 5} for k in range(150)],
        }),
        members=pd.DataFrame({
            "trial": [1, 2], "weight": [0.7, 0.3], "loss": [12.5, 12.75], "path": NASTY
        }),
        importance=Importance(
            90, 40.0, 0.6,
            (Effect(Input("fit model"), 0.5, 0.1),
             Effect(Input("fit model", "tree", NASTY), 0.1, 0.1)),
        ),
        notes=(f"left out: {NASTY} (a different string in almost every row)",),
        model=judged(),
        reproduction=REPRODUCTION,
    )  # fmt: skip


def leads(*rows: tuple[float, int, int, str, float]) -> pd.DataFrame:
    """Return the incumbents of a study."""
    columns = ["seconds", "evaluations", "trial", "fidelity", "loss"]
    return pd.DataFrame(rows, columns=columns)


def empty() -> StudyReport:
    """Return the report of a study in which no trial has ended."""
    nothing = {"incumbent": None, "n_trials": 0, "n_complete": 0, "n_partial": 0,
               "n_failed": 0, "n_begun": 0,
               "ensemble": None, "finalists": (), "test_loss": None, "constraints": {},
               "single_best_test_loss": None, "decisions": {}, "state": "running",
               "chance_loss": None}  # fmt: skip
    some = full()
    tables = ("progress", "incumbents", "algorithms", "paths", "step_times", "trade_offs",
              "members")  # fmt: skip
    return replace(
        some,
        **{name: getattr(some, name).head(0) for name in tables},
        summary=replace(SUMMARY, **nothing, cache=CacheUse(0, 0, 0, 0.0)),
        failures=(),
        importance=Importance(0, reason="it takes 20 configurations or more"),
        model=ModelReport(),
    )


def failed() -> StudyReport:
    """Return the report of a study whose trials have all failed."""
    n, some = 30, full()
    unknown = {"full": 0, "best": None, "trial": None, "median": None}
    return replace(
        empty(),
        summary=replace(empty().summary, n_trials=n, n_failed=n, n_begun=n, state="failed"),
        progress=some.progress.head(n).assign(loss=None, state="failed"),
        algorithms=some.algorithms.assign(**unknown),
        paths=some.paths.assign(**unknown),
        failures=some.failures,
    )
