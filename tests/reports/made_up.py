"""Reports of studies that were never run: one with everything, one with hardly anything."""

from dataclasses import replace
from typing import Any

import numpy as np

from prefect_tune.deployments.report.figures.fidelities import Fidelities, Level, TrainingCurve
from prefect_tune.deployments.report.figures.model import EnsembleMember, Reproduction
from prefect_tune.deployments.report.figures.paths import PathsTried, StepUse, Use
from prefect_tune.deployments.report.figures.progress import Lead, SearchProgress
from prefect_tune.deployments.report.figures.quality import ModelReport
from prefect_tune.deployments.report.figures.step_times import StepTime
from prefect_tune.deployments.report.figures.trade_offs import TradeOff
from prefect_tune.deployments.report.study_page import StudyReport
from prefect_tune.flows.reading.study_view import CacheUse, StudyView
from prefect_tune.flows.text import FailureGroup
from prefect_tune.optimizers.converter import from_document
from prefect_tune.optimizers.importance import Effect, Importance, Input
from prefect_tune.optimizers.trials.outcome import FailureKind
from prefect_tune.tasks.data.code_coverage import CodeCoverage
from prefect_tune.tasks.fitting.column_effects import CodeEffect, ColumnEffect, ColumnEffects
from prefect_tune.tasks.objective.two_classes import Auroc, Calibration, CalibrationBin

NASTY = (
    "</script><script>alert(1)</script> <img src=x onerror=alert(2)> `tick` \"quote\" 'one' 🦊 & "
    "\x1b[31m"
)
"""A name or message that would be markup, a script, or steer a terminal."""
TRACEBACK = "".join(f'  File "{NASTY}", line {n}, in <module>\n' for n in range(90))
N = 5_000


def choice(algorithm: str, **values: Any) -> dict[str, Any]:
    return {"algorithm": algorithm, "hyperparameters": values}


CONFIGURATION = {"rescale": choice("none"), "fit model": choice("tree", depth=3, note=NASTY)}
SUMMARY = from_document(StudyView, {
    "study": "made-up", "method": "flash", "metric": "error", "space": "small",
    "data": f"s3://me:secret@bucket/{NASTY}", "state": "complete", "n_trials": N, "n_stopped": 40,
    "n_failed": 30, "n_waiting": 0, "n_begun": N - 40,
    "store_options": [],
    "incumbent": {
        "trial": 1, "loss": 12.5, "fidelity": "", "constraints": {"latency_us": 7.0},
        "configuration": CONFIGURATION,
    },
    "finalists": [
        {"trial": 1, "loss": 12.5, "recheck_loss": 13.0},
        {"trial": 2, "loss": 12.75, "recheck_loss": None},
    ],
    "constraints": {"latency_us": 10.0}, "nearest_infeasible": None, "plugins": [],
    "ensemble": {"kind": "agnostic", "members": [], "losses": [], "nested": {"single": 12.5}},
    "model_trial": None, "model_is_partial": False, "instead_of": None,
    "no_model": None, "model_of_folds": False,
    "test_loss_undefined": None, "single_best_test_loss_undefined": None,
    "test_loss": 13.0, "single_best_test_loss": 13.5, "holdout": None, "chance_loss": 50.0,
    "decisions": {"notes": [NASTY], "race": {"begun": 90, "stopped": 40}}, "notes": [],
    "cache": {"hits": 3, "misses": 1, "size_bytes": 2000, "seconds_saved": 4.0},
    "seconds": {
        "total": 75.0, "evaluating": 70.0, "asking": 1.0, "budget": 60.0, "over_budget": 15.0,
    },
})  # fmt: skip
REPRODUCTION = Reproduction(
    command=("prefect-tune", "run", "it's here.csv", "--target", NASTY, "--study", "made-up"),
    longer=("prefect-tune", "run", "it's here.csv", "--budget", "20m", "--study", "made-up"),
    resumed=("prefect-tune", "run", "it's here.csv", "--study", "made-up"),
    removed_option="",
    is_of_frame=False,
    seed=3,
    repeats_itself=False,
    versions={"python": "3.13.1", "scikit-learn": "1.9.0"},
    data="it's here.csv",
    dataset="d" * 64,
    split="e" * 64,
    space="small",
    space_digest="f" * 64,
    flow_run_id=None,
)


def judged() -> ModelReport:
    """A model of patient events, with codes and descriptions that nobody would want."""
    columns = (
        ColumnEffect(f"{NASTY}: count", 0.1, 0.4),
        ColumnEffect(f"{NASTY}: mean, 30 days", None, None),
    )
    codes = (
        CodeEffect(NASTY, 0.12, columns, 2),
        CodeEffect("LAB//1", 0.05, (ColumnEffect("LAB//1: last", 0.05, -0.3),), 1),
        CodeEffect("age, years", 0.01, (ColumnEffect("age, years", 0.01, 0.001),), 1),
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
            for k in range(30)
        ),
    )


def full(n: int = N) -> StudyReport:
    """A study of n evaluations with everything, of names and messages that nobody would want."""
    rng = np.random.default_rng(0)
    losses = (15 + rng.gamma(2.0, size=n) * 4).tolist()
    states = ["failed" if k % 170 == 0 else "stopped" if k % 3 else "complete" for k in range(n)]
    losses[1], states[1] = 12.5, "complete"
    use = Use(9, 7, 1, 14.0, 12.5, 1)
    return StudyReport(
        series=None,
        summary=SUMMARY,
        created=1.7e9,
        progress=SearchProgress(
            list(range(n)),
            [k * 0.7 for k in range(n)],
            [None if s == "failed" else loss for s, loss in zip(states, losses, strict=True)],
            [1.0] * n,
            states,
            ["folds 1 of 3" if state == "stopped" else "" for state in states],
            ["design" if k < 40 else NASTY for k in range(n)],
            [Lead(0.0, 1, 0, 20.0), Lead(0.7, 2, 1, 12.5)],
        ),
        paths=PathsTried(
            2,
            [StepUse("rescale", {"none": use, NASTY: use}), StepUse("fit model", {"tree": use})],
            [(("none", "tree"), use), ((NASTY, "tree"), use)],
        ),
        step_times=[StepTime("fit model", 9, 50.0, 4, 0.1, 12.0, 5, 10**6, 3, 10**5, 1)],
        failures=[
            FailureGroup(
                FailureKind.ERROR, "fit model", f"{NASTY}\nsecond line", TRACEBACK, [0, 170], 3.0
            ),
            FailureGroup(
                FailureKind.TIMEOUT, "fit model", "took more than 15 s", "", list(range(28)), 420.0
            ),
        ],
        trade_offs=[
            TradeOff("latency_us", 10.0, list(range(150)), losses[:150],
                     rng.gamma(2.0, size=150).tolist(), [1, 5], 3)
        ],
        fidelities=Fidelities(
            [Level("folds 1 of 3", 1 / 3, 90, 3, 90.0), Level("", 1.0, 50, 2, 200.0)],
            300,
            [TrainingCurve(k, [k - 1, k], [5], [30.0 / (e + 1) for e in range(10)], k % 2 == 0,
                           "tree" if k % 3 else NASTY) for k in range(1, 40)],
        ),
        members=[
            EnsembleMember(1, 0.7, 12.5, CONFIGURATION),
            EnsembleMember(2, 0.3, 12.75, CONFIGURATION),
        ],
        importance=Importance(
            90, 40.0, 0.6,
            (Effect(Input("fit model"), 0.5, 0.1, 0.6, 0.1),
             Effect(Input("fit model", "tree", NASTY), 0.1, 0.1, 0.2, 0.1)),
        ),
        model=judged(),
        reproduction=REPRODUCTION,
    )  # fmt: skip


def empty() -> StudyReport:
    """A study of which no trial has ended."""
    nothing = {"incumbent": None, "n_trials": 0, "n_failed": 0, "n_stopped": 0, "n_begun": 0,
               "ensemble": None, "finalists": (), "test_loss": None, "constraints": {},
               "single_best_test_loss": None, "decisions": {}, "state": "running",
               "chance_loss": None}  # fmt: skip
    return StudyReport(
        series=None,
        summary=replace(SUMMARY, **nothing, cache=CacheUse(0, 0, 0, 0.0)),
        created=1.7e9,
        progress=SearchProgress(),
        paths=PathsTried(0, (), ()),
        step_times=(),
        failures=(),
        trade_offs=(),
        fidelities=Fidelities(),
        members=(),
        importance=Importance(0, reason="it takes 20 configurations or more"),
        model=ModelReport(),
        reproduction=REPRODUCTION,
    )


def failed() -> StudyReport:
    """A study whose trials have all failed."""
    n = 30
    some = full()
    of_failed = SearchProgress(list(range(n)), [1.0] * n, [None] * n, [1.0] * n, ["failed"] * n,
                         [""] * n, [""] * n)  # fmt: skip
    never = Use(n, 0, n, None, None, None)
    return replace(
        empty(),
        summary=replace(empty().summary, n_trials=n, n_failed=n, n_begun=n, state="failed"),
        progress=of_failed,
        paths=PathsTried(1, [StepUse("fit model", {"tree": never})], ()),
        failures=some.failures,
    )


def beyond_limits() -> StudyReport:
    """A study whose full trials are all beyond its limits."""
    near = replace(SUMMARY.incumbent, constraints={"latency_us": 12.34})
    changed = {"incumbent": None, "nearest_infeasible": near, "state": "failed", "ensemble": None,
               "test_loss": None, "single_best_test_loss": None, "finalists": ()}  # fmt: skip
    some = full()
    summary, progress = replace(SUMMARY, **changed), replace(some.progress, leads=())
    return replace(some, summary=summary, members=(), progress=progress)
