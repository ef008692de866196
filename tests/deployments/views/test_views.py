"""Studies, trials and comparisons in a terminal: golden files."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from flow_studies import SUMMARY, USELESS, plan, study_view
from reports.compared import curves_of, replicate

from prefect_tune.deployments.views.artifact import print_totals
from prefect_tune.deployments.views.comparison import print_comparison
from prefect_tune.deployments.views.console import CONSOLE
from prefect_tune.deployments.views.study import print_studies, print_summary
from prefect_tune.deployments.views.trial import first_trials, print_trial, print_trials
from prefect_tune.flows.comparison.standings import standings
from prefect_tune.flows.options.store_location import default_store
from prefect_tune.flows.reading.opened_study import ExplainedTrial, Moments, ValueRange
from prefect_tune.flows.reading.study_view import StudyView
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.facts import ModelFacts, StudyFacts, WeightedTrial
from prefect_tune.optimizers.documents import from_document, to_document
from prefect_tune.storage.index import CacheCounts, CacheTotals
from prefect_tune.tasks.objective.metric import Quantity, QuantityBound

Show = Callable[..., None]
"""Prints a title, and below it what a function prints of its arguments."""


@pytest.fixture
def show(capsys, monkeypatch, file_regression) -> Iterator[Show]:
    """Collect the output of a test, and compare it with a file."""
    monkeypatch.setattr(CONSOLE, "width", 160)

    def show(title: str, view: Callable[..., None], *arguments: Any, **options: Any) -> None:
        print(f"# {title}")
        view(*arguments, **options)
        print()

    yield show
    lines = map(str.rstrip, capsys.readouterr().out.splitlines())
    text = re.sub(r"at \d{4}-\d\d-\d\d [\d:]{8}", "at TIME", "\n".join(lines))
    file_regression.check(text, extension=".txt")


def rechecked(*looks: tuple[int, float, float | None]) -> dict[str, Any]:
    keys = ("trial", "loss", "recheck_loss")
    return {"finalists": [dict(zip(keys, look, strict=True)) for look in looks]}


BEST = SUMMARY["incumbent"]
MEMBERS = [{"trial": n, "weight": w} for n, w in ((7, 0.125), (1, 0.5), (2, 0.375))]
ENSEMBLE = {
    "kind": "greedy", "members": MEMBERS, "losses": [12.5, 11.0],
    "nested": {"single": 12.9, "greedy": 12.0, "agnostic": 12.1},
}  # fmt: skip
OTHER = {"fit model": {"algorithm": "stump", "hyperparameters": {"depth": 1}}}
NOTHING_SAVED = {"hits": 3, "misses": 1, "size_bytes": 2000, "seconds_saved": -4.0}
NO_MODEL = {"model_trial": None, "test_loss": None, "single_best_test_loss": None}
STUDIES: dict[str, dict[str, Any]] = {
    "a study that has ended": {},
    "another store": {"store_options": ["--store", "/my store"]},
    "no failed trial": {"n_failed": 0},
    "a useless model": {"usefulness": to_document(USELESS)},
    "a model that is not useless": {"usefulness": to_document(replace(USELESS, is_useless=False))},
    "no model could be fitted": {"state": "failed", "no_model": "3 refits failed"},
    "no trial is complete": {
        "state": "failed", "n_complete": 0, "n_failed": 3, "incumbent": None, **NO_MODEL,
    },
    "the model is another trial": {
        "model_trial": {**BEST, "trial": 2, "configuration": OTHER},
        "instead_of": {"trials": [1], "reason": "r", "failures": [{"trials": [1], "reason": "r"}]},
    },
    "a model of the folds": {"model_of_folds": True, "constraints": {}},
    "a model of a single holdout": {"model_of_folds": True, "holdout": 0.1},
    "a model of the first fold of a DataFrame": {"model_of_folds": True, "resume_command": ""},
    "nothing has run": {
        "incumbent": None, "n_trials": 1, **NO_MODEL,
        "cache": {"hits": 0, "misses": 0, "size_bytes": 0, "seconds_saved": 0.0},
    },
    "the cache has cost seconds": {"cache": NOTHING_SAVED},
    "partial evaluations": {
        "n_trials": 31, "n_complete": 30, "n_partial": 24, "n_begun": 8,
        "incumbent": {**BEST, "fidelity": "subset 1/9"},
        "decisions": {"race": {"begun": 12, "stopped": 7}},
    },
    "the first finalist stays": rechecked((1, 12.5, 13.5), (4, 12.6, 14.4)),
    "another finalist is chosen": rechecked((4, 12.0, 14.0), (1, 12.5, 12.5), (5, 12.5, None)),
    "the first finalist failed": rechecked((1, 12.5, None), (4, 12.6, 14.4)),
    "finalists of another time": rechecked((4, 12.0, 12.0), (5, 12.0, 12.1)),
    "no trial within the constraints": {
        "incumbent": None, **NO_MODEL,
        "nearest_infeasible": {**BEST, "constraints": {"latency_us": 30.0}},
    },
    "an ensemble": {"ensemble": ENSEMBLE, "test_loss": 12.0},
    "no ensemble was better": {
        "ensemble": {"kind": "single", "members": [{"trial": 1, "weight": 1.0}]}
    },
    "confirmations of Fabolas": {"method": "fabolas", "metric": "auroc", "decisions": {
        "confirmations": [
            {"trial": 3, "predicted": 0.2, "deviation": 0.012, "loss": 0.251, "disagrees": True},
        ],
    }},
    "best epoch of BAPI": {"method": "bapi", "decisions": {
        "configurations": 4, "t_max": 50, "epochs": 120, "spared": 0, "at_once": 0, "ends": {},
        "least": {"trial": 3, "loss": 11.5}, "thawed": 0,
    }},
    "notes of the method": {"decisions": {"notes": ["subsets cannot help [here]"]}},
}  # fmt: skip


def test_displayed_studies_equal_the_golden_file(show) -> None:
    for title, changes in STUDIES.items():
        view = study_view(**changes)
        show(title, print_summary, view)
        assert from_document(StudyView, json.loads(json.dumps(view.to_json()))) == view
    noted = study_view(**STUDIES["notes of the method"])
    show("notes of the method, by the command show", print_summary, noted, notes=True)
    part = {**BEST, "fidelity": "subset 1/8"}
    rows = {}, {"study": "t", "incumbent": None}, {"study": "u", "incumbent": part}
    show("all studies", print_studies, [study_view(**row) for row in rows])
    show("some of the studies", print_studies, [study_view()], 3)
    show("no study", print_studies, [])
    counts = {**NOTHING_SAVED, "evicted": 0, "refused": 0}
    steps = {"scale": CacheCounts(**counts)}
    show(
        "the store", print_totals, CacheTotals(**counts, budget_bytes=9000, count=1, steps=steps), 0
    )


STEP = {"step": "impute", "fold": 0, "hit": True, "seconds": 0.5, "load_seconds": 0.25, "key": "k"}
EVALUATION: dict[str, Any] = {
    "loss": 12.5, "fold_losses": [10.0, 15.0], "cost_seconds": 1.25, "cost_uncached_seconds": 3.5,
    "load_seconds": 6.25, "constraints": {},
    "steps": [STEP, {**STEP, "fold": 1, "hit": False, "seconds": 0.75, "load_seconds": 0.0}],
}  # fmt: skip
PIPELINE = {
    "rescale": {"algorithm": "none", "hyperparameters": {}},
    "fit model": {"algorithm": "svm", "hyperparameters": {"C": 0.25}},
}
USUAL = {"fit model": {"algorithm": "svm", "hyperparameters": {"C": 1.0, "gamma": 2}}}
TRIAL: dict[str, Any] = {
    "number": 4, "state": "complete", "attempts": 1, "query": {"configuration": PIPELINE},
    "evaluation": EVALUATION, "failure": None,
}  # fmt: skip
LEADER = TRIAL | {
    "number": 2, "evaluation": EVALUATION | {"loss": 11.0, "fold_losses": [12.0, 10.0]}
}  # fmt: skip
PART = {
    **TRIAL, "number": 3, "state": "stopped", "query": {**TRIAL["query"], "folds": 1},
    "evaluation": EVALUATION | {"loss": 10.0},
}  # fmt: skip
MEASURED = EVALUATION | {
    "constraints": {"latency_us": 60.0}, "curve": [4.0, 2.0, 3.0], "best_epoch": 2,
    "resumed_from": 1,
}  # fmt: skip
FAILED = {
    "state": "failed",
    "evaluation": None,
    "failure": {
        "kind": "timeout", "message": "took more than 30 s", "step": "fit model", "fold": 1,
        "traceback": "Traceback:\n  File [x]\n", "output": "step 1\n\x1b[31mstep 2",
    },
}  # fmt: skip


def explain(
    best: dict[str, Any] = LEADER,
    same: Sequence[dict[str, Any]] = (),
    moments: Moments | None = None,
    options: dict[str, Any] | None = None,
    members: Sequence[int] = (),
    **changed: Any,
) -> None:
    """Print a trial of a study."""
    address = SimpleNamespace(url=default_store(), database="")
    weighted = tuple(WeightedTrial(number, 1.0) for number in members)
    study: Any = SimpleNamespace(
        name="s",
        plan=plan(method="flash", chance_loss=50.0, **options or {}),
        facts=StudyFacts(model=ModelFacts(members=weighted)),
        store=SimpleNamespace(address=address),
    )
    print_trial(
        ExplainedTrial(
            study, TrialView(TRIAL | changed), moments or Moments(0.0, 0.0), TrialView(best),
            [*map(TrialView, same)], {"rescale": ["none", "minmax"]},
            {"fit model": {"C": ValueRange(1.0, "a number from 0.03125 to 32768", log=True)}},
        )
    )  # fmt: skip


def test_displayed_trials_equal_the_golden_file(show) -> None:
    reason = {"phase": "tuning", "text": "best [EI]"}
    show("beside the best trial", explain, moments=Moments(0.0, 0.0, reason=reason))
    show("the best trial", explain, best=TRIAL, members=[4])
    show("default values", explain, query={"configuration": USUAL})
    bound = QuantityBound(Quantity("latency_us"), 50.0)
    of_parts = {"same": [PART, TRIAL], "evaluation": MEASURED}
    show("a constraint, a part and a curve", explain, **of_parts, options={"constraint": (bound,)})
    show("a failure", explain, **FAILED, moments=Moments(0.0, 0.0, output_bytes=1234))


CONFIGURATION = {
    "rescale": {"algorithm": "minmax", "hyperparameters": {}},
    "fit model": {"algorithm": "tree", "hyperparameters": {}},
}
WAITING = {
    "number": 0, "state": "waiting", "query": {"configuration": CONFIGURATION},
    "evaluation": None, "failure": None, "attempts": 0,
}  # fmt: skip


def test_displayed_lists_equal_the_golden_file(show) -> None:
    of_study = plan(folds=3, epochs=50)
    evaluation = {"loss": 12.5, "cost_seconds": 2.0, "constraints": {}, "steps": []}
    hits = [{"hit": hit} for hit in (True, False)]
    measured = evaluation | {"constraints": {"latency_us": 7.0}, "steps": hits}
    complete = {**WAITING, "number": 1, "state": "complete", "evaluation": measured}
    show("full trials", print_trials, [*map(TrialView, (WAITING, complete))], of_study, {})
    fidelity = {"subset": 1 / 27, "subset_draw": 1, "folds": 1, "epochs": 10}
    query = {"configuration": {"rescale": {"algorithm": "none", "hyperparameters": {}}}, **fidelity}
    stopped = {**complete, "state": "stopped", "evaluation": evaluation, "query": query}
    trials = [*map(TrialView, (WAITING, stopped, {**WAITING, "number": 2}))]
    show("partial trials, one resumed", print_trials, trials, of_study, first_trials(trials))
    tests = {"a": 3.0, "b": 2.0}
    curves = curves_of(
        replicate(name, repeat, [9.0], tests[name]) for name in tests for repeat in (0, 1)
    )
    show("a comparison", print_comparison, standings(curves), ["curves.parquet"])
