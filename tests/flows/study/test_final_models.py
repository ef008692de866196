"""Studies that evaluated anything end with a model: flows, a server and workers, all real."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_line import CommandLine
from inputs import table, write_table

from prefect_tune.deployments.estimator.pipeline_search import PipelineSearch
from prefect_tune.flows.progress import observed_by
from prefect_tune.flows.study.predict import final_model
from prefect_tune.flows.study.study import StudyFailed
from prefect_tune.flows.study.summary import summarize
from prefect_tune.flows.tuning import tune
from prefect_tune.flows.workers.clusters import workers_started_early
from prefect_tune.storage import ArtifactStore, StoreAddress

pytestmark = pytest.mark.usefixtures("server", "workers")

SPACE = """
import os
import signal
import threading
from time import sleep

import numpy as np
from ConfigSpace import ConfigurationSpace, Float, Integer
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

from prefect_tune import Algorithm, Flags, Space, Step
from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE

N_TRAINING = 120
'''Rows of 150, without the test part: more than any fold trains on.'''


class Locked(DecisionTreeClassifier):
    '''Cannot be pickled.'''

    def fit(self, X, y):
        self.lock_ = threading.Lock()
        return super().fit(X, y)


class OneWay(DecisionTreeClassifier):
    '''Can be pickled, and not be read back.'''

    def __setstate__(self, state):
        raise ValueError("one way")


class Forgetful(DecisionTreeClassifier):
    '''Loses what it has learned when it is pickled.'''

    def __getstate__(self):
        return {k: v for k, v in super().__getstate__().items() if k != "tree_"}


class Turned(DecisionTreeClassifier):
    '''Takes each class for another one once it is read back.'''

    def __setstate__(self, state):
        super().__setstate__({**state, "classes_": state["classes_"][::-1]})


class Deep(DecisionTreeClassifier):
    '''Is nested too deeply for pickle.'''

    def fit(self, X, y):
        self.nested_ = []
        for _ in range(100_000):
            self.nested_ = [self.nested_]
        return super().fit(X, y)


class Lambda(DecisionTreeClassifier):
    '''Needs cloudpickle.'''

    def fit(self, X, y):
        self.same_ = lambda X: X
        return super().fit(X, y)


class Partly(DecisionTreeClassifier):
    '''Cannot be fitted on all training rows.'''

    def fit(self, X, y):
        if len(X) == N_TRAINING:
            raise ValueError("too many rows")
        return super().fit(X, y)


class Dying(DecisionTreeClassifier):
    '''Kills its worker when it is fitted on all training rows.'''

    def fit(self, X, y):
        if len(X) == N_TRAINING:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fit(X, y)


class Greedy(DecisionTreeClassifier):
    '''Has no memory for all training rows.'''

    def fit(self, X, y):
        if len(X) == N_TRAINING:
            raise MemoryError("no room")
        return super().fit(X, y)


class Blind(DecisionTreeClassifier):
    '''Cannot predict the rows of which column a is 1000.'''

    def predict(self, X):
        if (np.asarray(X) == 1000).any():
            raise ValueError("out of range")
        return super().predict(X)


class Slow(DecisionTreeClassifier):
    '''Takes its time in each fold, so that ten of them take longer than the study may.'''

    def fit(self, X, y):
        if len(X) < N_TRAINING:
            sleep(4)
        return super().fit(X, y)


class Unlocked(TransformerMixin, BaseEstimator):
    '''A step that can be pickled by nobody, and hands on its rows.'''

    def fit(self, X, y=None):
        self.lock_ = threading.Lock()
        return self

    def transform(self, X):
        return X


def one(name, estimator, *space, **fixed):
    return Algorithm(
        id=name, estimator=estimator, fixed=fixed,
        hyperparameters=ConfigurationSpace(space=space), flags=Flags(stochastic=True),
    )


def models(*algorithms):
    return Space("own", (IMPUTE, ENCODE, Step("fit model", algorithms)))


depth = Integer("max_depth", (2, 20), default=5)
stump = one("stump", DecisionTreeClassifier, max_depth=1, max_features=1)
locked = models(one("better", Locked, depth), stump)
one_way = models(one("better", OneWay, depth), stump)
forgetful = models(one("better", Forgetful, depth), stump)
turned = models(one("better", Turned, depth), stump)
deep = models(one("better", Deep, depth), stump)
partly = models(one("better", Partly, depth), stump)
dying = models(one("better", Dying, depth), stump)
greedy = models(one("better", Greedy, depth), stump)
lambdas = models(one("better", Lambda, depth))
blind = models(one("better", Blind, depth))
unlocked = Space(
    "own",
    (IMPUTE, ENCODE, Step("pass", (one("pass", Unlocked),)), Step("fit model", (stump,))),
)
rate = Float("learning_rate_init", (1e-3, 0.1), log=True, default=0.01)
slow = models(one("slow", Slow, depth))
networks = models(one("network", MLPClassifier, rate, hidden_layer_sizes=[8], batch_size=2))
"""


class Notes:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)

    def warn(self, text: str) -> None:
        self.note(text)

    def ended(self, *_: Any) -> None: ...

    def tick(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def workers(server: str) -> Any:  # noqa: ARG001 - flows go there
    with workers_started_early(2, None):
        yield


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "own.py").write_text(SPACE)
    return {
        "data": str(write_table(tmp_path)), "target": "target", "method": "random", "race": False,
        "ensemble": "single", "workers": 2, "store": str(tmp_path / "store"), "study": "s",
    }  # fmt: skip


def run(given: dict[str, Any], space: str, **changed: Any) -> tuple[dict[str, Any], list[str]]:
    """The summary of a study, and its notes."""
    own = f"{Path(given['data']).parent / 'own.py'}:{space}"
    with observed_by(notes := Notes()):
        return tune(**{**given, "space": own, **changed}), notes.texts


def model_of(given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return final_model(ArtifactStore(StoreAddress(given["store"])), given["study"])


@pytest.mark.parametrize(
    ("space", "reason"),
    [
        ("locked", "cannot pickle"),
        ("one_way", "one way"),
        ("forgetful", "tree_"),
        ("turned", "predicts other values"),
        ("deep", "deep recursion"),
        ("partly", "too many rows"),
        ("dying", "worker process died"),
        ("greedy", "no room"),
    ],
)
def test_the_next_best_that_can_be_kept_is_the_model(given, space, reason) -> None:
    summary, notes = run(given, space, trials=12)
    assert summary["state"] == "complete"
    best = summary["incumbent"]
    assert best["configuration"]["fit model"]["algorithm"] == "better"
    assert summary["model_trial"]["configuration"]["fit model"]["algorithm"] == "stump"
    assert summary["instead_of"]["trials"] == [best["trial"]]
    assert reason in summary["instead_of"]["reason"]
    assert len(summary["instead_of"]["failures"]) <= 3
    assert any(reason in note for note in notes)
    assert summary["test_loss"] is not None
    model, about = model_of(given)
    assert about["trial"] == summary["model_trial"]["trial"]
    assert len(model.predict(table().drop(columns="target"))) == 150


def test_what_pickle_refuses_is_kept_by_cloudpickle(given, tmp_path, monkeypatch) -> None:
    summary, _ = run(given, "lambdas", trials=2)
    assert summary["instead_of"] is None
    monkeypatch.chdir(tmp_path)
    command = CommandLine(tmp_path)
    store = ("--store", given["store"])
    table().drop(columns="target").to_csv("new.csv", index=False)
    assert command.json("predict", "s", "new.csv", "--out", "p.csv", *store)["rows"] == 150
    assert command("export", "s", "model.pkl", *store).exit_code == 0


def test_a_step_that_cannot_be_pickled_is_fitted_whenever_it_is_needed(given) -> None:
    """Its trials count. Only a model cannot be made of them."""
    with pytest.raises(StudyFailed, match=r"ended without a model.*pass: .* cannot pickle"):
        run(given, "unlocked", trials=1)
    store = ArtifactStore(StoreAddress(given["store"]))
    assert summarize(store, "s")["n_failed"] == 0
    assert "cannot pickle" in summarize(store, "s")["no_model"]
    assert run(given, "locked", study="other", trials=3)[0]["no_model"] is None


@pytest.mark.parametrize(
    ("metric", "reason"), [("roc_auc_ovr", "no row of class maybe"), ("error", "out of range")]
)
def test_an_undefined_test_loss_leaves_the_model(
    given, tmp_path, monkeypatch, metric, reason
) -> None:
    if metric == "roc_auc_ovr":
        frame = table()
        frame.loc[frame["c"] > 0.5, "target"] = "maybe"
        frame.to_csv(given["data"], index=False)
    rows = table(40, seed=1)
    rows.assign(a=rows["a"] if metric == "roc_auc_ovr" else 1000.0).to_csv(
        tmp_path / "test.csv", index=False
    )
    test = str(tmp_path / "test.csv")
    summary, notes = run(given, "blind", trials=2, metric=metric, test=test, test_size=None)
    assert summary["test_loss"] is None
    assert reason in summary["test_loss_undefined"]
    assert any(reason in note for note in notes)
    monkeypatch.chdir(tmp_path)
    command, store = CommandLine(tmp_path), ("--store", given["store"])
    assert reason in " ".join(command("show", "s", *store).stdout.split())
    assert reason in command.json("show", "s", *store)["test_loss_undefined"]
    assert command("report", "s", "--out", "r.html", *store).exit_code == 0
    assert reason in Path("r.html").read_text()
    assert command("export", "s", "m.pkl", *store).exit_code == 0
    assert reason in Path("m.md").read_text()


def test_a_negative_target_leaves_a_metric_of_logarithms_undefined(given, tmp_path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(150, 3)), columns=["a", "b", "c"])
    frame["target"] = np.exp(frame["a"])
    frame.to_csv(given["data"], index=False)
    frame.assign(target=-2.0).to_csv(tmp_path / "test.csv", index=False)
    summary = tune(
        **{**given, "test": str(tmp_path / "test.csv"), "metric": "neg_mean_squared_log_error",
           "space": "regression", "trials": 4}
    )  # fmt: skip
    assert summary["test_loss"] is None
    assert "less than or equal to -1" in summary["test_loss_undefined"]


PARTIAL: dict[str, dict[str, Any]] = {
    "halving": {
        "method": "halving", "race": None, "folds": 10, "budget": "20s", "space": "own.py:slow",
    },
    "race": {"race": True, "folds": 10, "budget": "20s", "space": "own.py:slow"},
    "bapi": {"method": "bapi", "race": None, "epochs": 1000, "budget": "8s", "workers": 1,
             "space": "own.py:networks"},
}  # fmt: skip


def search_partially(given: dict[str, Any], kind: str, **more: Any) -> dict[str, Any]:
    """Run a study whose budget ends during partial evaluations."""
    changed = {**PARTIAL[kind], **more}
    folder = Path(given["data"]).parent
    space = changed["space"]
    changed["space"] = f"{folder}/{space}" if ".py" in space else space
    return tune(**{**given, **changed})


@pytest.mark.parametrize("kind", PARTIAL)
def test_the_best_partial_evaluation_is_the_model_where_none_is_full(
    given, tmp_path, monkeypatch, kind
) -> None:
    summary = search_partially(given, kind)
    assert summary["state"] == "complete"
    assert summary["n_trials"] == summary["n_stopped"] + summary["n_failed"]
    assert summary["model_is_partial"]
    assert summary["model_trial"]["trial"] == summary["incumbent"]["trial"]
    assert summary["model_trial"]["fidelity"]
    assert summary["test_loss"] is not None
    monkeypatch.chdir(tmp_path)
    command, store = CommandLine(tmp_path), ("--store", given["store"])
    fidelity = summary["model_trial"]["fidelity"]
    assert f"the best partial one, trial {summary['model_trial']['trial']} ({fidelity})" in (
        " ".join(command("show", "s", *store).stdout.split())
    )
    table().drop(columns="target").to_csv("new.csv", index=False)
    assert command.json("predict", "s", "new.csv", "--out", "p.csv", *store)["rows"] == 150
    assert command("export", "s", "m.pkl", *store).exit_code == 0
    assert fidelity in Path("m.md").read_text()
    assert command("report", "s", "--out", "r.html", *store).exit_code == 0
    assert fidelity in Path("r.html").read_text()


@pytest.mark.parametrize(("most", "is_met"), [(10**9, True), (10, False)])
def test_a_partial_evaluation_is_the_model_only_within_the_constraints(given, most, is_met) -> None:
    limits = [f"model_size_bytes<={most}"]
    if is_met:
        summary = search_partially(given, "halving", constraint=limits)
        assert summary["model_is_partial"]
        assert summary["model_trial"]["constraints"]["model_size_bytes"] <= most
        return
    with pytest.raises(
        StudyFailed, match=r"none of \d+ partial evaluations? .* where 10 is allowed"
    ):
        search_partially(given, "halving", constraint=limits)
    summary = summarize(ArtifactStore(StoreAddress(given["store"])), "s")
    assert summary["incumbent"] is None
    assert summary["model_trial"] is None
    assert summary["nearest_infeasible"]["constraints"]["model_size_bytes"] > most


def test_an_estimator_of_a_partial_evaluation_predicts(given) -> None:
    frame, space = table(), f"{Path(given['data']).parent / 'own.py'}:slow"
    search = PipelineSearch(
        method="halving", space=space, folds=10, budget="20s", workers=1, test_size=0.2, verbose=0,
        store=given["store"],
    ).fit(frame.drop(columns="target"), frame["target"])  # fmt: skip
    assert search.summary_["model_is_partial"]
    assert len(search.predict(frame.drop(columns="target"))) == 150
    assert search.cv_results_["fidelity"][search.best_index_]
