"""Trials that hang, eat memory or die: real worker processes, ended for real."""

from typing import Any

import psutil
import pytest
from inputs import write_table
from prefect_api import flow_runs, task_runs

from prefect_tune.flows.tuning import retry, tune
from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress
from prefect_tune.tasks.bad_input import BadInput

SPACE = """
import ctypes
import os
import signal

import numpy as np
from ConfigSpace import ConfigurationSpace, Float
from sklearn.base import BaseEstimator, ClassifierMixin

from prefect_tune import Algorithm, Space, Step
from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE


class Hangs(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        ctypes.PyDLL(None).sleep(1000)  # holds the interpreter's lock

    def predict(self, X):
        raise NotImplementedError


class Eats(Hangs):
    def fit(self, X, y):
        eaten = []
        while True:
            eaten.append(np.ones(20_000_000))


class Dies(Hangs):
    def fit(self, X, y):
        os.kill(os.getpid(), signal.SIGSEGV)


works = Algorithm(
    id="works",
    estimator="sklearn.naive_bayes.GaussianNB",
    hyperparameters=ConfigurationSpace(space=[Float("var_smoothing", (1e-9, 1.0), log=True)]),
)
hostile = [Algorithm(id=c.__name__.lower(), estimator=c) for c in (Hangs, Eats, Dies)]
space = Space("hostile", (IMPUTE, ENCODE, Step("fit model", (works, *hostile))))
"""


pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture(scope="module")
def parameters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "hostile.py").write_text(SPACE)
    return {
        "data": str(write_table(folder)),
        "target": "target",
        "space": f"{folder / 'hostile.py'}:space",
        "store": str(folder / "store"),
        "study": "hostile",
        "method": "random",
        "trials": 12,
        "workers": 2,
        "trial_timeout": "12s",
        "trial_memory": "700MB",
        "task_runs": "steps",
    }


@pytest.fixture(scope="module")
def trials(server: str, parameters: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:  # noqa: ARG001
    """All trials of the study by the algorithm of their model."""
    before = set(psutil.pids())
    tune(**parameters)
    left = [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
    assert not [p for p in left if "dask" in p.name()]
    found: dict[str, list[dict[str, Any]]] = {}
    for trial in Ledger(ArtifactStore(StoreAddress(parameters["store"])).database).trials(
        "hostile"
    ):
        algorithm = trial["query"]["configuration"]["fit model"]["algorithm"]
        found.setdefault(algorithm, []).append(trial)
    assert set(found) == {"works", "hangs", "eats", "dies"}
    return found


def test_other_trials_do_not_notice(trials) -> None:
    assert {t["state"] for t in trials["works"]} == {"complete"}
    assert {t["attempts"] for t in trials["works"]} == {1}


@pytest.mark.parametrize(
    ("algorithm", "kind", "message", "attempts"),
    [
        ("hangs", "timeout", "took more than 12 s (raise the limit with --trial-timeout)", 1),
        ("eats", "memory", "more than 0.7 GB (raise the limit with --trial-memory)", 1),
        ("dies", "crashed", "the worker process died in 2 attempts", 2),
    ],
)
def test_the_trial_has_failed_with_its_kind_step_fold_and_cost(
    trials, algorithm, kind, message, attempts
) -> None:
    for trial in trials[algorithm]:
        failure = trial["failure"]
        assert (trial["state"], trial["attempts"]) == ("failed", attempts)
        assert (failure["kind"], failure["step"], failure["fold"]) == (kind, "fit model", 0)
        assert message in failure["message"]
        assert failure["cost_seconds"] > (12 if kind == "timeout" else 0)


def test_a_failure_says_what_each_step_took_until_then_and_what_was_served(trials) -> None:
    before = {(step, fold) for step in ("impute", "encode") for fold in range(3)}
    failures = [t["failure"] for name in ("hangs", "eats", "dies") for t in trials[name]]
    for failure in failures:
        steps = failure["steps"]
        assert {(s["step"], s["fold"]) for s in steps} == before
        taken = sum(s["load_seconds"] + (0 if s["hit"] else s["seconds"]) for s in steps)
        assert taken <= failure["cost_seconds"]
    made = [s["key"] for f in failures for s in f["steps"] if not s["hit"]]
    assert len(made) == len(set(made)) <= 6  # all others were served


def test_every_task_run_has_ended_and_says_why(trials) -> None:
    run = max((r for r in flow_runs() if r.name.startswith("hostile")), key=lambda r: r.created)
    of_trials = {r.name: r for r in task_runs(run.id) if r.name.startswith("trial ")}
    assert all(r.state is not None and r.state.is_final() for r in task_runs(run.id))
    hung = of_trials[f"trial {trials['hangs'][0]['number']}"]
    assert hung.state_name == "TimedOut"
    assert hung.state.message.startswith("fit model, fold 0: took more than 12 s")
    for number in (trials[fate][0]["number"] for fate in ("hangs", "eats", "dies")):
        end = f"; see prefect-tune show hostile --trial {number}"
        assert of_trials[f"trial {number}"].state.message.endswith(end)


def test_a_failed_trial_can_be_run_again_with_other_limits(trials, parameters) -> None:
    number = trials["hangs"][0]["number"]
    retry("hostile", [number], store=parameters["store"], workers=1, trial_timeout="2s")
    ledger = Ledger(ArtifactStore(StoreAddress(parameters["store"])).database)
    failure = ledger.trials("hostile")[number]["failure"]
    assert failure["message"] == "took more than 2 s (raise the limit with --trial-timeout)"


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("trial_timeout", "60", r"--trial-timeout 60: a duration is a number with its unit"),
        ("trial_memory", "4", r"--trial-memory 4: a size is a number with its unit"),
        ("trial_memory", "100MB", r"--trial-memory 100MB: .* name at least 500.0MB"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused(parameters, option, value, message) -> None:
    with pytest.raises(BadInput, match=message):
        tune(**{**parameters, option: value, "study": "refused"})
