"""Reports without real studies: one with everything, one with hardly anything."""

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
from prefect_tune.tasks.final.figures import (
    Auroc,
    Calibration,
    CalibrationBin,
    CodeCoverage,
    CodeEffect,
    ColumnEffect,
    ColumnEffects,
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
    n_stopped=40, n_failed=30, n_waiting=0, n_begun=N - 40,
    incumbent={
        "trial": 1, "loss": 12.5, "fidelity": "", "constraints": {"latency_us": 7.0},
        "configuration": CONFIGURATION,
    },
    finalists=[
        {"trial": 1, "loss": 12.5, "recheck_loss": 13.0},
        {"trial": 2, "loss": 12.75, "recheck_loss": None},
    ],
    ensemble={"kind": "agnostic", "members": [], "losses": [], "nested": {"single": 12.5}},
    model_trial=None, single_best_test_loss=13.5,
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
    """Return a model of patient events, with hostile codes and descriptions."""
    columns = (ColumnEffect(f"{NASTY}: count", 0.4), ColumnEffect(f"{NASTY}: mean, 30 days", None))
    codes = (
        CodeEffect(NASTY, 0.12, columns, 2),
        CodeEffect("LAB//1", 0.05, (ColumnEffect("LAB//1: last", -0.3),), 1),
        CodeEffect("age, years", 0.01, (ColumnEffect("age, years", 0.001),), 1),
    )
    bins = tuple(CalibrationBin(40, p, p + 0.02, p, p + 0.1) for p in (0.1, 0.2, 0.4))
    return ModelReport(
        n_rows=120,
        units="patients",
        classes=("no", NASTY),
        auroc=Auroc(0.8, 0.75, 0.85, 1_000, 90),
        calibration=Calibration(bins, 0.02, 0.15, 0.16),
        is_balanced=True,
        effects=ColumnEffects(codes, 9, 120),
        effects_of=1,
        measure="auroc",
        descriptions={NASTY: f"{NASTY} {'long ' * 30}", "LAB//1": "Sodium"},
        coverage=tuple(
            CodeCoverage(f"{NASTY} {k}", NASTY if k else "", 1 / (k + 1), 2.5, (0.5, None))
            for k in range(21)
        ),
    )


def full(n: int = N) -> StudyReport:
    """Return a study of n evaluations with everything, with hostile names and messages."""
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
            "saved_seconds": 12.0, "kept": 5, "kept_bytes": 10**6, "evicted": 3,
            "evicted_bytes": 10**5, "refused": 1, "refused_bytes": 0,
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
        levels=pd.DataFrame([
            {"fidelity": name, "share": share, "evaluated": 90, "failed": 3, "seconds": 90.0,
             "first_after": 1.0, "last_after": 9.0}
            for name, share in (("folds 1 of 3", 1 / 3), ("full", 1.0))
        ]),
        curves=pd.DataFrame([
            {"trial": k, "model": "tree" if k % 3 else NASTY, "is_partial": False,
             "losses": [30.0 / (e + 1) for e in range(10)], "configuration": k, "epochs": 10,
             "best": 3.0, "trainings": 2}
            for k in range(1, 7)
        ]),
        members=pd.DataFrame({
            "trial": [1, 2], "weight": [0.7, 0.3], "loss": [12.5, 12.75], "path": NASTY
        }),
        importance=Importance(
            90, 40.0, 0.6,
            (Effect(Input("fit model"), 0.5, 0.1),
             Effect(Input("fit model", "tree", NASTY), 0.1, 0.1)),
        ),
        model=judged(),
        reproduction=REPRODUCTION,
    )  # fmt: skip


def leads(*rows: tuple[float, int, int, str, float]) -> pd.DataFrame:
    """Return the incumbents of a study."""
    columns = ["seconds", "evaluations", "trial", "fidelity", "loss"]
    return pd.DataFrame(rows, columns=columns)


def empty() -> StudyReport:
    """Return a study without an ended trial."""
    nothing = {"incumbent": None, "n_trials": 0, "n_failed": 0, "n_stopped": 0, "n_begun": 0,
               "ensemble": None, "finalists": (), "test_loss": None, "constraints": {},
               "single_best_test_loss": None, "decisions": {}, "state": "running",
               "chance_loss": None}  # fmt: skip
    some = full()
    tables = ("progress", "incumbents", "algorithms", "paths", "step_times", "trade_offs",
              "levels", "curves", "members")  # fmt: skip
    return replace(
        some,
        **{name: getattr(some, name).head(0) for name in tables},
        summary=replace(SUMMARY, **nothing, cache=CacheUse(0, 0, 0, 0.0)),
        failures=(),
        importance=Importance(0, reason="it takes 20 configurations or more"),
        model=ModelReport(),
    )


def failed() -> StudyReport:
    """Return a study whose trials have all failed."""
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
